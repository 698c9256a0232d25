"""The engine port on Temporal: starts workflows and talks to them. Reads are the ledger's alone.

A command's row in the ledger comes first, because there idempotency and limits are decided; its workflow comes right
after. Should the process die in between, the row is found by the reconciler, by the same command sent again, or by the
first callback, and its workflow is started then. It has the job's id, so it is never started twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from msgspec.structs import replace
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from lucius.domain.callbacks import TokenSigner
from lucius.domain.decide import decide
from lucius.domain.directive import CallbackUrls, build_directive, message_id
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Callback, Operation
from lucius.domain.job import JOB_TERMINAL, TEMPORAL, Job
from lucius.engines.temporal.activities import Hands, is_unsent
from lucius.engines.temporal.client import ensure_search_attributes, search_attributes_of
from lucius.engines.temporal.messages import WORKFLOW, JobStart
from lucius.engines.temporal.reconciler import Reconciler
from lucius.engines.temporal.settings import TemporalSettings
from lucius.engines.temporal.teller import Teller, guarded, unavailable
from lucius.engines.temporal.worker import make_worker
from lucius.ports.bus import Bus, Message
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, NewJob, Started, Told
from lucius.ports.ledger import Change, Committed, Duplicate, Ledger, Saturated
from lucius.ports.observer import Observer

T = TypeVar("T")

OUTBOX_MAX = 10_000


class _Unpublished:
    """For decisions outside a workflow: ids from the clock, and nothing is published from here."""

    claim_seconds = 0.0
    publishes_inside = False

    def __init__(self, clock: Clock) -> None:
        self.lease_id = clock.lease_id
        self.jitter = clock.jitter


class TemporalEngine:
    changes_elsewhere_seconds = 0.1

    def __init__(
        self,
        connect: Callable[[], Awaitable[Client]],
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        signer: TokenSigner,
        urls: CallbackUrls,
        observer: Observer,
        settings: TemporalSettings,
        trace: Callable[[Job, int], str | None] = lambda job, index: None,
        *,
        works: bool = True,
        reconciles: bool = True,
        elsewhere: Engine | None = None,
    ) -> None:
        """`works`: whether this process also polls for workflow tasks, or leaves that to `lucius worker`.

        `elsewhere` drives the jobs of this ledger that are not this engine's: those from before a migration.
        """
        self._connect = connect
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._signer = signer
        self._urls = urls
        self._observer = observer
        self._settings = settings
        self._trace = trace
        self._works = works
        self._elsewhere = elsewhere
        self._reconciles = reconciles
        self._fresh = _Unpublished(clock)
        self._rpc = timedelta(seconds=settings.rpc_timeout_seconds)
        self._hands = Hands(
            ledger, bus, clock, observer, self._compose, self._changed, settings.publish_timeout_seconds
        )
        self._calls: set[asyncio.Task[Any]] = set()
        self._watchers: dict[str, dict[asyncio.Event, bool]] = {}
        self._is_open = False
        self._is_away = False
        self._working: asyncio.Task[None] | None = None
        self._upkeep: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TemporalEngine:
        self._client = await self._connect()
        if self._settings.search_attributes:
            try:
                await ensure_search_attributes(self._client)
            except RPCError as error:
                raise InfrastructureError.unavailable(
                    f"the search attributes cannot be added to the namespace {self._client.namespace}: {error.message};"
                    " add LuciusTenant, LuciusStatus, LuciusRequestType and LuciusProtocol (Keyword), or set"
                    " LUCIUS_TEMPORAL_SEARCH_ATTRIBUTES=false"
                ) from error
        self._teller = Teller(
            self._client, self._ledger, self._clock, self._fresh, self.start, self._changed, self._call,
            self._elsewhere, self._rpc,
        )  # fmt: skip
        if self._works:
            self._working = asyncio.create_task(make_worker(self._client, self._hands, self._settings).run())
        if self._reconciles:
            reconciler = Reconciler(self._client, self._ledger, self._clock, self._observer, self._settings, self.start)
            self._upkeep = [
                self._every(self._settings.reconcile_interval, "temporal drift", reconciler.heal),
                self._every(self._settings.reconcile_interval, "bus upkeep", self._bus.upkeep),
            ]
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: answer who waits, finish the workflow tasks under way; the rest is Temporal's to keep."""
        self._is_open = False
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._settings.stop_seconds)
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        for events in self._watchers.values():
            for event in events:
                event.set()

    # --- The port ----------------------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        return self._call(self._submit(new))

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[Told | None]:
        return self._teller.tell(job_id, tenant_id, fact)

    async def retry_outbox(self) -> int:
        rows = await guarded(self._ledger.outbox(OUTBOX_MAX))
        jobs = await guarded(self._ledger.load([row.job_id for row in rows]))
        waiting = [job for job in jobs.values() if job.engine == TEMPORAL and is_unsent(job)]
        for job in waiting:
            await self._teller.signal(job, "retry_dispatch")
        others = await self._elsewhere.retry_outbox() if self._elsewhere is not None else 0
        return len(waiting) + others

    async def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> bool:
        event = asyncio.Event()
        watchers = self._watchers.setdefault(job_id, {})
        watchers[event] = until_ended
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
            return True
        except TimeoutError:
            return False
        finally:
            del watchers[event]
            if not watchers:
                self._watchers.pop(job_id, None)

    async def health(self) -> dict[str, Any]:
        if self._working is not None and self._working.done():
            raise InfrastructureError.unavailable("the Temporal worker has stopped")
        ledger = await self._ledger.health()
        await self._reach()
        return {**ledger, "bus": "ok", "engine": f"temporal at {self._settings.address}"}

    # --- Commands ----------------------------------------------------------------------------------------------------

    async def _submit(self, new: NewJob) -> Started | Duplicate | Saturated:
        if self._is_away:
            await self._reach()  # Nothing is accepted while the engine is known to be out of reach.
        decision = decide(None, new.fact, self._clock.now(), self._fresh)
        job = replace(decision.job, engine=TEMPORAL)
        change = Change(before=None, after=job, events=decision.events, claim=new.claim, limits=new.limits)
        outcome = (await guarded(self._ledger.commit([change])))[0]
        if isinstance(outcome, Duplicate):
            if outcome.status not in JOB_TERMINAL:
                await self._heal(outcome.job_id)
            return outcome
        if isinstance(outcome, Saturated):
            return outcome
        assert isinstance(outcome, Committed), outcome
        self._observer.turn_done(1, 0.0, [change])
        try:
            await self.start(replace(job, revision=job.revision + 1), new.claim.key)
        except InfrastructureError as error:
            # It is accepted all the same: the row is durable, and the reconciler starts its workflow.
            self._is_away = True
            self._observer.failed(f"starting the workflow of job {job.job_id}", error)
        return Started(job.job_id, job.status)

    async def start(self, job: Job, claim_key: bytes | None = None, again: bool = False) -> bool:
        """Start a job's workflow; False if it was started before. `again` starts another run of one that is over."""
        policy = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
        try:
            await self._client.start_workflow(
                WORKFLOW,
                JobStart(job=job, claim_key=claim_key, is_searchable=self._settings.search_attributes),
                id=job.job_id,
                task_queue=self._settings.task_queue,
                id_reuse_policy=policy,
                task_timeout=timedelta(seconds=self._settings.task_seconds),
                search_attributes=search_attributes_of(job) if self._settings.search_attributes else None,
                rpc_timeout=self._rpc,
                request_eager_start=self._works,
            )
        except WorkflowAlreadyStartedError:
            return False
        except RPCError as error:
            raise unavailable(error) from error
        return True

    async def _heal(self, job_id: str) -> None:
        job = (await guarded(self._ledger.load([job_id]))).get(job_id)
        if job is not None and job.engine == TEMPORAL and not job.is_terminal:
            await self.start(job)

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin at once, and hold on to it: a caller that goes away takes nothing back."""
        if not self._is_open:
            work.close()
            raise InfrastructureError.unavailable("this process is stopping; ask again")
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _reach(self) -> None:
        try:
            await self._client.service_client.check_health(timeout=self._rpc)
        except RPCError as error:
            raise unavailable(error) from error
        self._is_away = False

    def _changed(self, job: Job) -> None:
        for event, until_ended in self._watchers.get(job.job_id, {}).items():
            if job.is_terminal or not until_ended:
                event.set()

    def _compose(self, job: Job, step_index: int) -> Message:
        body, properties = build_directive(
            job, step_index, self._clock.now(), self._signer, self._urls, self._trace(job, step_index)
        )
        step = job.steps[step_index]
        name = message_id(job.job_id, step.spec.step_id, step.attempt_no)
        return Message(id=name, topic=job.spec.routing.topic, body=body, properties=properties)

    def _every(self, seconds: float, name: str, act: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        async def loop() -> None:
            while True:
                try:
                    await act()
                except Exception as error:
                    self._observer.failed(name, error)
                await asyncio.sleep(seconds)

        return asyncio.create_task(loop(), name=name)

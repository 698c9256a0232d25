"""The engine port on Temporal: starts workflows and signals them. Reads use only the ledger.

A command's row in the ledger is written first, because the ledger decides about idempotency and limits; its workflow is
started right after. If the process dies in between, the reconciler, a repetition of the command or the first callback
finds the row and starts the workflow. The workflow has the job's id, so it is never started twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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
from lucius.domain.directive import CallbackUrls
from lucius.domain.effects import Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Callback, DirectiveDied, Operation
from lucius.domain.job import JOB_TERMINAL, TEMPORAL, Job, JobSpec
from lucius.domain.step import StepSpec
from lucius.engines.dead_directives import DeadDirectives
from lucius.engines.directives import Trace, composer, drop_past, undelivered
from lucius.engines.job_watchers import JobWatchers
from lucius.engines.loops import every
from lucius.engines.temporal.activities import JobActivities
from lucius.engines.temporal.client import ensure_search_attributes, search_attributes_of
from lucius.engines.temporal.messages import WORKFLOW, JobStart
from lucius.engines.temporal.reconciler import Reconciler
from lucius.engines.temporal.settings import TemporalSettings
from lucius.engines.temporal.signal_sender import SignalSender, guarded, unavailable
from lucius.engines.temporal.worker import run_worker
from lucius.engines.temporal.workflow_state import ask_workflow
from lucius.engines.tenant_cap import LOOP, TenantCap
from lucius.ports.bus import Bus, Delivery
from lucius.ports.clock import Clock
from lucius.ports.engine import CallbackReply, Engine, NewJob, OutboxRetry, Started
from lucius.ports.ledger import Change, Committed, Duplicate, Ledger, LedgerUnavailable, Saturated
from lucius.ports.observer import Observer
from lucius.ports.readiness import Check, NotReady

T = TypeVar("T")

DEAD_LOOK_SECONDS = 1.0
"""How often to look for directives that the bus has given up on."""
CAP_LOOK_SECONDS = 1.0
"""How often a worker looks for attempts that wait for their tenant's cap and that it does not know of."""


class _Unpublished:
    """For decisions outside a workflow: ids come from the clock, and nothing is published."""

    claim_seconds = 0.0
    publishes_inside = False

    def __init__(self, clock: Clock) -> None:
        self.lease_id = clock.lease_id
        self.jitter = clock.jitter

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False


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
        trace: Trace = lambda job, index: None,
        *,
        works: bool = True,
        reconciles: bool = True,
        elsewhere: Engine | None = None,
    ) -> None:
        """`works`: whether this process also polls for workflow tasks, or leaves that to `lucius worker`.

        `elsewhere` drives the jobs of this ledger that belong to another engine: those from before a migration.
        """
        self._connect = connect
        self._watchers = JobWatchers()
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._compose = composer(clock, signer, urls, trace)
        self._works = works
        self._elsewhere = elsewhere
        self._reconciles = reconciles
        self._id_source = _Unpublished(clock)
        self._rpc = timedelta(seconds=settings.rpc_timeout_seconds)
        self._dead = DeadDirectives(bus, self._died, observer)
        self._cap: TenantCap | None = None
        if works and not bus.takes_turns:
            maximum = settings.tenant_unacknowledged_max
            self._cap = TenantCap(ledger, TEMPORAL, maximum, CAP_LOOK_SECONDS, counts_unsent=False)
        self._activities = JobActivities(
            ledger, bus, clock, observer, self._compose, self._watchers.notify, settings.publish_timeout_seconds,
            self._cap,
        )  # fmt: skip
        self._calls: set[asyncio.Task[Any]] = set()
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
        self._sender = SignalSender(
            self._client, self._ledger, self._clock, self._id_source, self.start, self._watchers.notify, self._call,
            self._activities.settle, self._elsewhere, self._rpc,
        )  # fmt: skip
        if self._cap is not None:
            await self._cap.open(self._observer)
            releasing = self._cap.run(self._release, self._observer)
            self._upkeep.append(asyncio.create_task(releasing, name=LOOP))
        if self._works:
            self._working = asyncio.create_task(run_worker(self._client, self._activities, self._settings))
        if self._reconciles:
            reconciler = Reconciler(self._client, self._ledger, self._clock, self._observer, self._settings, self.start)
            self._upkeep += [
                every(self._settings.reconcile_interval, "temporal drift", reconciler.heal, self._observer),
                every(DEAD_LOOK_SECONDS, "dead directives", self._dead.look, self._observer),
                every(self._settings.reconcile_interval, "bus upkeep", self._bus.upkeep, self._observer),
            ]
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: answer waiting callers and finish the current workflow tasks; Temporal keeps the rest."""
        self._is_open = False
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._settings.stop_seconds)
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        self._watchers.release_all()

    # --- The port ----------------------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        return self._call(self._submit(new))

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[CallbackReply | None]:
        return self._sender.tell(job_id, tenant_id, fact)

    async def newest(self, job: Job) -> Job:
        if job.engine != TEMPORAL or job.is_terminal:
            return job
        newest = await ask_workflow(self._client, job)
        if newest is None:
            raise InfrastructureError.unavailable(f"no worker answers for job {job.job_id}; ask again")
        return newest

    async def drop_past(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await guarded(drop_past(self._ledger, self._bus, deliveries, self._observer))

    async def retry_outbox(self) -> OutboxRetry:
        retried = 0
        try:
            async for job_ids in undelivered(self._ledger, TEMPORAL):
                jobs = await self._ledger.load(job_ids)
                await asyncio.gather(*(self._sender.signal(job, "retry_dispatch") for job in jobs.values()))
                retried += len(jobs)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        if self._elsewhere is None:
            return OutboxRetry(retried)
        others = await self._elsewhere.retry_outbox()
        return replace(others, retried=retried + others.retried)

    def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> asyncio.Future[bool]:
        return self._watchers.wait(job_id, timeout_seconds, until_ended)

    def checks(self) -> list[Check]:
        own = [Check(name="temporal", look=self._look_at_temporal)]
        if self._works:
            own.append(Check(name="temporal_worker", look=self._look_at_worker))
        return own + (self._elsewhere.checks() if self._elsewhere is not None else [])

    async def _died(self, job_id: str, fact: DirectiveDied) -> None:
        job = (await self._ledger.load([job_id])).get(job_id)
        if job is None or job.engine != TEMPORAL:
            return
        if decide(job, fact, self._clock.now(), self._id_source).outcome is Outcome.APPLIED:
            await self._sender.signal(job, "directive_died", fact)

    async def _release(self, job_ids: list[str]) -> None:
        """Their workflows publish; if another worker runs them, its own count decides."""
        jobs = await self._ledger.load(job_ids)
        await asyncio.gather(*(self._sender.signal(job, "retry_dispatch") for job in jobs.values()))

    # --- Commands ----------------------------------------------------------------------------------------------------

    async def _submit(self, new: NewJob) -> Started | Duplicate | Saturated:
        if self._is_away:
            await self._reach()  # Nothing is accepted while the engine is known to be unreachable.
        decision = decide(None, new.fact, self._clock.now(), self._id_source)
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
            # It is accepted anyway: the row is durable, and the reconciler starts its workflow.
            self._is_away = True
            self._observer.failed(f"starting the workflow of job {job.job_id}", error)
        return Started(job.job_id, job.status)

    async def start(self, job: Job, claim_key: bytes | None = None, again: bool = False) -> bool:
        """Start a job's workflow; False if it was started before. `again` starts another run of a workflow that has
        ended."""
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
        """Begin at once, and continue even if the caller goes away."""
        if not self._is_open:
            work.close()
            raise InfrastructureError.unavailable("this process is stopping; ask again")
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _look_at_temporal(self) -> str:
        await self._reach()
        return f"{self._settings.address}, namespace {self._settings.namespace}"

    async def _look_at_worker(self) -> str:
        if self._working is None or self._working.done():
            raise NotReady("the Temporal worker has stopped")
        return f"polls the task queue {self._settings.task_queue}"

    async def _reach(self) -> None:
        try:
            await self._client.service_client.check_health(timeout=self._rpc)
        except RPCError as error:
            raise unavailable(error) from error
        self._is_away = False

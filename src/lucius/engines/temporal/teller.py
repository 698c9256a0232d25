"""Tells jobs what happened: facts that arrive together for one job go to its workflow as one signal.

A service that answers at once sends ACK and RESULT in one batch. As two signals they would be two writes in Temporal
and mostly two workflow tasks; as one they are one of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from lucius.domain.decide import decide
from lucius.domain.draft import Fresh
from lucius.domain.effects import Event, Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import (
    Acked,
    Callback,
    CancelAsked,
    HeartbeatSeen,
    Operation,
    PauseAsked,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import TEMPORAL, Job, JobStatus
from lucius.engines.temporal.messages import StepCallback
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, Told
from lucius.ports.ledger import Change, Conflict, Ledger, LedgerUnavailable

T = TypeVar("T")

SIGNALS: dict[type, str] = {
    Acked: "step_ack",
    Resulted: "step_result",
    HeartbeatSeen: "step_heartbeat",
    CancelAsked: "cancel",
    PauseAsked: "pause",
    ResumeAsked: "resume",
}
TRIES_MAX = 10
TOGETHER_MAX = 16
"""How many callbacks go in one signal. A RESULT is always the last of them: it may be large."""


class _Said(NamedTuple):
    tenant_id: str | None
    fact: Callback | Operation
    answer: asyncio.Future[Told | None]


class Teller:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: Clock,
        fresh: Fresh,
        start: Callable[..., Awaitable[bool]],
        changed: Callable[[Job], None],
        hold: Callable[[Coroutine[Any, Any, None]], object],
        elsewhere: Engine | None,
        rpc_timeout: timedelta,
    ) -> None:
        """`hold` runs what is told to its end, whoever goes away meanwhile; it raises once nothing more is taken."""
        self._client = client
        self._ledger = ledger
        self._clock = clock
        self._fresh = fresh
        self._start = start
        self._changed = changed
        self._hold = hold
        self._elsewhere = elsewhere
        self._rpc = rpc_timeout
        self._gathering: dict[str, list[_Said]] = {}

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[Told | None]:
        said = _Said(tenant_id, fact, asyncio.get_running_loop().create_future())
        batch = self._gathering.get(job_id)
        if batch is not None and _goes_with(batch, fact):
            batch.append(said)
        else:
            batch = [said]
            self._hold(self._deliver(job_id, batch))
            self._gathering[job_id] = batch
        return said.answer

    async def signal(self, job: Job, name: str, *arguments: Any) -> bool:
        """Hand something to the job's workflow; False if the job has ended meanwhile."""
        handle = self._client.get_workflow_handle(job.job_id)
        for is_last in (False, True):
            try:
                await handle.signal(name, args=list(arguments), rpc_timeout=self._rpc)
                return True
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND or is_last:
                    raise unavailable(error) from error
            # The ledger has the job and Temporal has not, or no longer: it is started from where the ledger knows it.
            if not await self._start(job):
                current = (await guarded(self._ledger.load([job.job_id]))).get(job.job_id)
                if current is None or current.is_terminal:
                    return False
                await self._start(current, again=True)
        return False

    async def _deliver(self, job_id: str, batch: list[_Said]) -> None:
        """Runs when all that came in one go is gathered. Every caller is answered, or told why not."""
        if self._gathering.get(job_id) is batch:
            del self._gathering[job_id]
        try:
            answers = await self._tell(job_id, batch)
        except Exception as error:
            for said in batch:
                if not said.answer.done():
                    said.answer.set_exception(error)
        else:
            for said, answer in zip(batch, answers, strict=True):
                if not said.answer.done():
                    said.answer.set_result(answer)
        finally:
            for said in batch:
                said.answer.cancel()  # Where this itself was cancelled; else they are done.

    async def _tell(self, job_id: str, batch: Sequence[_Said]) -> Sequence[Told | None]:
        for _ in range(TRIES_MAX):
            job = (await guarded(self._ledger.load([job_id]))).get(job_id)
            if job is None:
                return [None for _ in batch]
            if job.engine != TEMPORAL:
                return [await self._tell_elsewhere(job, said) for said in batch]
            answers, after, events, facts = self._decided(job, batch)
            if job.is_terminal:
                # Its workflow is over, or about to be, and writes no more: what comes now is recorded from here.
                if after is not job and not await self._record_late(job, after, events):
                    continue
                return answers
            if facts and not await self._signal_all(job, facts):
                continue
            return answers
        raise InfrastructureError.unavailable("the job kept changing; ask again")

    def _decided(
        self, job: Job, batch: Sequence[_Said]
    ) -> tuple[list[Told | None], Job, tuple[Event, ...], list[Callback | Operation]]:
        """What to answer, going by the ledger, and what to hand on; the workflow decides for itself."""
        answers: list[Told | None] = []
        events: tuple[Event, ...] = ()
        facts: list[Callback | Operation] = []
        after = job
        for said in batch:
            if said.tenant_id is not None and job.spec.tenant_id != said.tenant_id:
                answers.append(None)
                continue
            decision = decide(after, said.fact, self._clock.now(), self._fresh)
            after, outcome = decision.job, decision.outcome
            events += decision.events
            if outcome is Outcome.APPLIED or not isinstance(said.fact, Operation):
                facts.append(said.fact)
            if outcome is Outcome.APPLIED and not job.is_terminal:
                outcome = Outcome.RECEIVED
            answers.append(Told(outcome, after.status, after.status is JobStatus.CANCELLING))
        return answers, after, events, facts

    async def _signal_all(self, job: Job, facts: list[Callback | Operation]) -> bool:
        if len(facts) == 1:
            return await self.signal(job, SIGNALS[type(facts[0])], facts[0])
        callbacks = [StepCallback.of(fact) for fact in facts if not isinstance(fact, Operation)]
        return await self.signal(job, "step_callbacks", callbacks)

    async def _tell_elsewhere(self, job: Job, said: _Said) -> Told | None:
        if self._elsewhere is None:
            raise InfrastructureError.unavailable(f"job {job.job_id} is driven by the engine {job.engine}")
        return await self._elsewhere.tell(job.job_id, said.tenant_id, said.fact)

    async def _record_late(self, before: Job, after: Job, events: tuple[Event, ...]) -> bool:
        outcome = (await guarded(self._ledger.commit([Change(before=before, after=after, events=events)])))[0]
        if isinstance(outcome, Conflict):
            return False
        self._changed(after)
        return True


def _goes_with(batch: list[_Said], fact: Callback | Operation) -> bool:
    """Operations go alone, and nothing goes behind a RESULT."""
    last = batch[-1].fact
    return len(batch) < TOGETHER_MAX and not isinstance(last, Resulted | Operation) and not isinstance(fact, Operation)


async def guarded(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except LedgerUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error


def unavailable(error: RPCError) -> InfrastructureError:
    return InfrastructureError.unavailable(f"Temporal does not answer: {error.message}")

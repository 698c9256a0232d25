"""Sends facts to workflows: facts that arrive together for one job are one signal.

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

from lucius.domain.draft import IdSource
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import (
    Acked,
    Callback,
    CancelAsked,
    ForceCancelAsked,
    HeartbeatSeen,
    Operation,
    PauseAsked,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import TEMPORAL, Job
from lucius.engines.temporal.expectation import Expected, Holder, expect
from lucius.engines.temporal.messages import StepCallback
from lucius.engines.temporal.workflow_state import ask_workflow
from lucius.ports.bus import DeliveryRef
from lucius.ports.clock import Clock
from lucius.ports.engine import CallbackReply, Engine
from lucius.ports.ledger import Change, Conflict, Ledger, LedgerUnavailable

T = TypeVar("T")

SIGNALS: dict[type, str] = {
    Acked: "step_ack",
    Resulted: "step_result",
    HeartbeatSeen: "step_heartbeat",
    CancelAsked: "cancel",
    ForceCancelAsked: "force_cancel",
    PauseAsked: "pause",
    ResumeAsked: "resume",
}
TRIES_MAX = 10
TOGETHER_MAX = 16
"""How many callbacks go in one signal. A RESULT is always the last of them: it may be large."""


class _Said(NamedTuple):
    tenant_id: str | None
    fact: Callback | Operation
    answer: asyncio.Future[CallbackReply | None]


class SignalSender:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: Clock,
        id_source: IdSource,
        start: Callable[..., Awaitable[bool]],
        changed: Callable[[Job], None],
        hold: Callable[[Coroutine[Any, Any, None]], object],
        settle: Callable[[Sequence[DeliveryRef]], Awaitable[None]],
        elsewhere: Engine | None,
        rpc_timeout: timedelta,
    ) -> None:
        """`hold` runs a call to its end even if the caller goes away; it raises once the engine is stopping."""
        self._client = client
        self._ledger = ledger
        self._clock = clock
        self._id_source = id_source
        self._start = start
        self._changed = changed
        self._hold = hold
        self._settle = settle
        self._elsewhere = elsewhere
        self._rpc = rpc_timeout
        self._gathering: dict[str, list[_Said]] = {}

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[CallbackReply | None]:
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
        """Send something to the job's workflow; False if the job has ended meanwhile."""
        handle = self._client.get_workflow_handle(job.job_id)
        for is_last in (False, True):
            try:
                await handle.signal(name, args=list(arguments), rpc_timeout=self._rpc)
                return True
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND or is_last:
                    raise unavailable(error) from error
            # The ledger has the job and Temporal does not, or no longer: start it from the ledger's state.
            if not await self._start(job):
                current = (await guarded(self._ledger.load([job.job_id]))).get(job.job_id)
                if current is None or current.is_terminal:
                    return False
                await self._start(current, again=True)
        return False

    async def _deliver(self, job_id: str, batch: list[_Said]) -> None:
        """Runs when everything that arrived together is collected. Every caller gets an answer or an error."""
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
                said.answer.cancel()  # Only if this task was cancelled; otherwise they are done.

    async def _tell(self, job_id: str, batch: Sequence[_Said]) -> Sequence[CallbackReply | None]:
        for _ in range(TRIES_MAX):
            job = (await guarded(self._ledger.load([job_id]))).get(job_id)
            if job is None:
                return [None for _ in batch]
            if job.engine != TEMPORAL:
                return [await self._tell_elsewhere(job, said) for said in batch]
            expected = expect(job, [(said.tenant_id, said.fact) for said in batch], self._clock.now(), self._id_source)
            if job.is_terminal:
                # Its workflow has ended, or is about to, and writes no more: record later callbacks from here.
                if expected.job is not job and not await self._record_late(job, expected):
                    continue
            else:
                if not await self._note_holders(job, expected.holders):
                    continue
                if expected.is_refused_operation:
                    expected = await self._by_the_workflow(job, batch[0])
                if expected.facts and not await self._signal_all(job, expected.facts):
                    continue
            if expected.settled:
                await self._settle(expected.settled)
            return expected.answers
        raise InfrastructureError.unavailable("the job kept changing; ask again")

    async def _note_holders(self, job: Job, holders: Sequence[Holder]) -> bool:
        """Record which instances have their attempts, for every process to see before the workflow has decided; False
        if another instance was first, or the attempt has been answered meanwhile."""
        for holder in holders:
            noted = await guarded(
                self._ledger.note_holder(
                    job.job_id, holder.step_index, holder.attempt_no, holder.lease_id, holder.instance
                )
            )
            if noted != holder.instance:
                return False
        return True

    async def _by_the_workflow(self, job: Job, said: _Said) -> Expected:
        """An operation that the ledger's state does not allow. The workflow may know more than the ledger, so only the
        workflow can refuse; while no worker answers, the operation is sent to it undecided."""
        newest = await ask_workflow(self._client, job)
        if newest is None:
            return Expected.undecided(job, said.fact)
        return expect(newest, [(said.tenant_id, said.fact)], self._clock.now(), self._id_source)

    async def _signal_all(self, job: Job, facts: Sequence[Callback | Operation]) -> bool:
        if len(facts) == 1:
            return await self.signal(job, SIGNALS[type(facts[0])], facts[0])
        callbacks = [StepCallback.of(fact) for fact in facts if not isinstance(fact, Operation)]
        return await self.signal(job, "step_callbacks", callbacks)

    async def _tell_elsewhere(self, job: Job, said: _Said) -> CallbackReply | None:
        if self._elsewhere is None:
            raise InfrastructureError.unavailable(f"job {job.job_id} is driven by the engine {job.engine}")
        return await self._elsewhere.tell(job.job_id, said.tenant_id, said.fact)

    async def _record_late(self, job: Job, expected: Expected) -> bool:
        change = Change(before=job, after=expected.job, events=expected.events)
        outcome = (await guarded(self._ledger.commit([change])))[0]
        if isinstance(outcome, Conflict):
            return False
        self._changed(expected.job)
        return True


def _goes_with(batch: list[_Said], fact: Callback | Operation) -> bool:
    """Operations are sent alone, and nothing follows a RESULT."""
    last = batch[-1].fact
    return len(batch) < TOGETHER_MAX and not isinstance(last, Resulted | Operation) and not isinstance(fact, Operation)


async def guarded(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except LedgerUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error


def unavailable(error: RPCError) -> InfrastructureError:
    return InfrastructureError.unavailable(f"Temporal does not answer: {error.message}")

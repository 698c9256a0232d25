"""Withdrawal: a job that is being cancelled ends at once if its directive can be removed from the bus.

`CANCELLING` is committed first. If the process dies before the rest is done, nothing is lost: the ack deadline ends the
job, and settles its directive.
"""

from __future__ import annotations

import asyncio

from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import DirectiveWithdrawn
from lucius.domain.job import JobStatus
from lucius.engines.directives import current_directive_ref
from lucius.engines.outbox.work import Tell
from lucius.ports.bus import Bus, BusUnavailable
from lucius.ports.engine import CallbackReply
from lucius.ports.ledger import Ledger, LedgerUnavailable
from lucius.ports.observer import Observer


class Withdrawal:
    def __init__(self, ledger: Ledger, bus: Bus, observer: Observer, tell: Tell, timeout_seconds: float) -> None:
        self._ledger = ledger
        self._bus = bus
        self._observer = observer
        self._tell = tell
        self._timeout = timeout_seconds

    async def follow_up(self, job_id: str, reply: CallbackReply | None) -> CallbackReply | None:
        """The final answer to an input: if the job is `CANCELLING`, the outcome of withdrawing its directive."""
        if reply is None or reply.status is not JobStatus.CANCELLING:
            return reply
        try:
            return await self._withdraw(job_id) or reply
        except (BusUnavailable, LedgerUnavailable, InfrastructureError, TimeoutError) as error:
            # The cancel is durable anyway, and the ack deadline ends the job.
            self._observer.failed(f"withdrawing the directive of job {job_id}", error)
            return reply

    async def _withdraw(self, job_id: str) -> CallbackReply | None:
        job = (await self._ledger.load([job_id])).get(job_id)
        if job is None or not job.awaits_withdrawal:
            return None
        async with asyncio.timeout(self._timeout):
            if not await self._bus.withdraw([current_directive_ref(job)]):
                return None
        step = job.current_step
        return await self._tell(job_id, DirectiveWithdrawn(step.spec.step_id, step.attempt_no))

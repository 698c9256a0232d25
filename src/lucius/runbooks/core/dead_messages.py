"""Dead letters of runbooks: what each is about, and its effect while it is dead. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from lucius.domain.time import Instant, iso
from lucius.ports.bus import DeliveryRef
from lucius.runbooks.core.answers import RunbookDeadMessage
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.messages import BATCH_INIT, PHASE_DUE
from lucius.runbooks.core.states import Kind

JOB = "job"
RESULT = "result"
SENTENCES_MAX = 5
"""Dead messages that a batch's `waiting_for` lists individually."""


class DeadRunbookMessage(Struct, frozen=True, kw_only=True):
    ref: DeliveryRef
    type: str
    """One of the five message types, `job` or `result`."""
    reason: str
    dead_at: Instant
    delivery_count: int
    has_body: bool
    batch_id: int
    phase_id: int | None = None
    phase: str | None = None
    member_id: int | None = None
    member: str | None = None
    execution: tuple[Kind, int] | None = None
    step: str | None = None
    worker_id: str | None = None
    timeout_at: Instant | None = None
    is_awaited: bool
    """Whether the batch still waits for the effect of this message."""

    @property
    def can_be_sent(self) -> bool:
        """A job can be rebuilt from its step; any other message needs its stored body."""
        return self.is_awaited and (self.type == JOB or self.has_body)

    @property
    def subject(self) -> str:
        """What it is about, for messages."""
        names = (("phase", self.phase), ("member", self.member), ("step", self.step))
        return ", ".join(f"{name} {value}" for name, value in names if value is not None) or f"batch {self.batch_id}"


class DeadMessages:
    """The awaited dead messages of one batch, indexed by subject."""

    def __init__(self, messages: Iterable[DeadRunbookMessage]) -> None:
        self.awaited = [one for one in messages if one.is_awaited]
        self._executions = {one.execution: one for one in self.awaited if one.execution is not None}

    def of_execution(self, one: Execution) -> DeadRunbookMessage | None:
        return self._executions.get((one.kind, one.id))

    def of_phase(self, phase_id: int) -> DeadRunbookMessage | None:
        return next((one for one in self.awaited if one.type == PHASE_DUE and one.phase_id == phase_id), None)

    def of_init(self) -> DeadRunbookMessage | None:
        return next((one for one in self.awaited if one.type == BATCH_INIT), None)

    def of_member(self, member_id: int) -> DeadRunbookMessage | None:
        """The message that the member joined or left."""
        return next((one for one in self.awaited if one.execution is None and one.member_id == member_id), None)

    def in_flight(self, kind: Kind, phase_id: int | None = None) -> int:
        """Steps of a kind, and of a phase, that count as in flight but whose job or result is dead."""
        return sum(
            one.type in (JOB, RESULT)
            and one.execution is not None
            and one.execution[0] == kind
            and phase_id in (None, one.phase_id)
            for one in self.awaited
        )

    def sentences(self) -> list[str]:
        listed = [explain(one) for one in self.awaited[:SENTENCES_MAX]]
        more = len(self.awaited) - len(listed)
        return listed if more <= 0 else [*listed, f"{more} more dead messages: see the list of dead letters"]


NONE_DEAD = DeadMessages(())


def explain(one: DeadRunbookMessage) -> str:
    """What died and what ends the wait, as part of a sentence."""
    head = f"{one.type} message {one.ref.message_id} ({one.subject}) is a dead letter since {iso(one.dead_at)}"
    head += f" ({one.reason})"
    if one.type in (JOB, RESULT):
        until = "" if one.timeout_at is None else f"the step times out at {iso(one.timeout_at)}"
        if one.type == JOB:
            return f"{head}: worker {one.worker_id} does not have it; send it again, or {until or 'cancel the batch'}"
        return f"{head}: it cannot be sent again, its body is not stored; {until or 'retry the member'}"
    again = "send it again, or " if one.can_be_sent else ""
    return f"{head}: {again}the orchestrator recovers it from the tables"


def shown(one: DeadRunbookMessage) -> RunbookDeadMessage:
    """The representation in the API."""
    return {
        "messageId": one.ref.message_id, "type": one.type, "batch_id": one.batch_id, "phase": one.phase,
        "member": one.member, "step": one.step, "awaited": one.is_awaited, "can_be_sent": one.can_be_sent,
        "reason": one.reason, "dead_at": iso(one.dead_at),
    }  # fmt: skip


def polls(one: Execution, poll_count: int) -> bool:
    """Whether a step waits for this poll check."""
    return one.awaits_poll(poll_count)

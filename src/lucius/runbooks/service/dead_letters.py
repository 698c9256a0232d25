"""Dead messages of runbooks, for operators: what they are about, and how to send them again."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.errors import CallerError
from lucius.ports.bus import Bus, DeadLetter, DeliveryRef
from lucius.ports.database import Script
from lucius.runbooks.core.answers import BatchActed, RunbookDeadMessage
from lucius.runbooks.core.dead_messages import JOB, DeadRunbookMessage, shown
from lucius.runbooks.core.messages import TOPICS
from lucius.runbooks.engine import dead_messages
from lucius.runbooks.engine.dispatch import job_message
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.service.scope import missing_batch
from lucius.runbooks.store import executions

LETTERS_MAX = 1_000
"""How many of the newest dead letters of runbooks one call examines."""


class DeadLetters:
    def __init__(self, turns: Turns, bus: Bus) -> None:
        self._turns = turns
        self._bus = bus

    async def newest(self) -> list[DeadLetter]:
        return await self._bus.dead_letters(LETTERS_MAX, TOPICS)

    async def describe(self, letters: Sequence[DeadLetter]) -> dict[DeliveryRef, RunbookDeadMessage]:
        """What each of these is about, as the API shows it; letters without a batch are left out."""
        found = await self._turns.database.scan(lambda: dead_messages.look_up(letters))
        return {ref: shown(one) for ref, one in found.items()}

    async def send_again(self, batch_id: int, message_ids: Sequence[str] | None, actor: str) -> BatchActed:
        """Send a batch's dead messages again: the given ones, or all that the batch still waits for."""
        letters = await self.newest()
        wanted = await self._turns.take(lambda turn: self._wanted(turn, batch_id, letters, message_ids), actor)
        back = await self._bus.send_again(wanted) if wanted else set()
        sent = sorted(ref.message_id for ref in back)
        if sent:
            await self._turns.take(lambda turn: _note(turn, batch_id, sent), actor)
        return {"batch_id": batch_id, "sent": sent, "more": len(letters) == LETTERS_MAX}

    def _wanted(
        self, turn: Turn, batch_id: int, letters: Sequence[DeadLetter], message_ids: Sequence[str] | None
    ) -> Script[dict[DeliveryRef, bytes | None]]:
        """The letters to send, each with its body if it must be rebuilt."""
        yield from turn.lock([batch_id])
        if batch_id not in turn.batches:
            raise missing_batch(batch_id)
        found = yield from dead_messages.look_up(letters)
        own = [one for one in found.values() if one.batch_id == batch_id]
        if message_ids is None:
            chosen = [one for one in own if one.can_be_sent]
        else:
            chosen = [_named(own, batch_id, message_id) for message_id in message_ids]
        bodies: dict[DeliveryRef, bytes | None] = {}
        for one in chosen:
            _ensure_granted(turn, one)
            bodies[one.ref] = (yield from _job_body(turn, one)) if one.type == JOB else None
        return bodies


def _named(own: Sequence[DeadRunbookMessage], batch_id: int, message_id: str) -> DeadRunbookMessage:
    one = next((one for one in own if one.ref.message_id == message_id), None)
    if one is None:
        raise CallerError.of("NOT_FOUND", f"batch {batch_id} has no dead message {message_id[:200]}")
    if not one.is_awaited:
        raise CallerError.of("CONFLICT", f"nothing in batch {batch_id} waits for message {message_id} any more")
    if not one.can_be_sent:
        detail = f"message {message_id} cannot be sent again: the bus does not store bodies of dead {one.type} messages"
        raise CallerError.of("CONFLICT", detail)
    return one


def _ensure_granted(turn: Turn, one: DeadRunbookMessage) -> None:
    if one.type == JOB:
        refusal = turn.grants.worker_refusal(turn.batches[one.batch_id].runbook_name, one.ref.subscription)
        if refusal is not None:
            raise CallerError.of("CONFLICT", f"message {one.ref.message_id} cannot be sent again: {refusal}")


def _job_body(turn: Turn, one: DeadRunbookMessage) -> Script[bytes]:
    assert one.execution is not None
    [execution] = yield from executions.by_ids(one.execution[0], [one.execution[1]])
    return job_message(turn, turn.batches[one.batch_id], execution).body


def _note(turn: Turn, batch_id: int, message_ids: Sequence[str]) -> Script[None]:
    yield from turn.lock([batch_id])
    turn.note("messages-sent-again", turn.batches[batch_id], messages=list(message_ids[:100]), count=len(message_ids))

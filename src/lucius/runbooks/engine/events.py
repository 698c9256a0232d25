"""Applies each of the five messages to its batch."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.messages import BATCH_INIT, MEMBER_ADDED, MEMBER_REMOVED, PHASE_DUE, Event
from lucius.runbooks.engine import facts, members
from lucius.runbooks.engine.turn import Turn


def take_event(turn: Turn, event: Event) -> Script[None]:
    """Apply one message to a locked batch."""
    batch = turn.batches.get(event.batch_id)
    if batch is None:
        return
    if event.type == BATCH_INIT:
        turn.touch(batch.id).is_init = True
    elif event.type == PHASE_DUE:
        turn.touch(batch.id).phases.add(event.subject_id)
    elif event.type == MEMBER_ADDED:
        yield from members.add_member(turn, batch, event.subject_id)
    elif event.type == MEMBER_REMOVED:
        yield from members.remove_member(turn, batch, event.subject_id)
    else:
        yield from facts.take_poll_check(turn, event.kind, event.subject_id, event.poll_count)

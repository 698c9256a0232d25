"""Applies each of the five messages to its batch."""

from __future__ import annotations

from lucius.ports.database import Script
from lucius.runbooks.core.messages import (
    BATCH_INIT,
    MEMBER_ADDED,
    MEMBER_REMOVED,
    PHASE_DUE,
    Event,
    MessageInvalid,
)
from lucius.runbooks.core.records import Batch
from lucius.runbooks.engine import adoption, facts, members
from lucius.runbooks.engine.turn import Turn


def take_event(turn: Turn, event: Event) -> Script[None]:
    """Apply one message to a locked batch. Raises `MessageInvalid` if the batch is not of the message's runbook."""
    batch = turn.batches.get(event.batch_id)
    if batch is None:
        return
    version = yield from _version(turn, batch, event)
    if turn.is_shared:
        yield from adoption.adopt_batch(turn, batch)
    if event.type == BATCH_INIT:
        yield from adoption.adopt_init(turn, batch)
        turn.touch(batch.id).is_init = True
    elif event.type == PHASE_DUE:
        yield from adoption.adopt_phase(turn, batch, event.subject_id)
        turn.touch(batch.id).phases.add(event.subject_id)
    elif event.type == MEMBER_ADDED:
        yield from members.add_member(turn, batch, event.subject_id)
    elif event.type == MEMBER_REMOVED:
        yield from members.remove_member(turn, batch, event.subject_id, version)
    else:
        yield from facts.take_poll_check(turn, event)


def _version(turn: Turn, batch: Batch, event: Event) -> Script[int]:
    """The version that the message names. A newer one than the batch's is its own from now on; LUCIUS's scheduler moves
    the batch before it sends anything of a new version, another one may leave that to the orchestrator."""
    if event.runbook not in (None, batch.runbook_name):
        raise MessageInvalid(f"batch {batch.id} is of runbook {batch.runbook_name}, not {event.runbook}")
    if event.version is None:
        return batch.version
    if event.version > batch.version:
        yield from adoption.follow(turn, batch, event.version)
    return event.version

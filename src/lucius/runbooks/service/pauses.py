"""Batches that an operator pauses, resumes, or moves to another time. Each is one transaction on the locked batch."""

from __future__ import annotations

from lucius.domain.errors import CallerError
from lucius.domain.time import Instant, iso
from lucius.ports.database import Script
from lucius.runbooks.core.answers import BatchActed, MovedPhase
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import BATCH_ENDED, PENDING
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import batches, phases


def ensure_open(batch: Batch) -> None:
    if batch.status in BATCH_ENDED:
        raise CallerError.of("CONFLICT", f"batch {batch.id} has ended: it is {batch.status}")


def pause(turn: Turn, batch: Batch, reason: str) -> Script[BatchActed]:
    ensure_open(batch)
    if not batch.is_paused:
        why = f"paused by {turn.actor}: {reason}" if reason else f"paused by {turn.actor}"
        yield from batches.pause(batch, turn.now, why)
        turn.note("batch-paused", batch, **said(reason))
    return {"batch_id": batch.id, "status": batch.status}


def resume(turn: Turn, batch: Batch, reason: str) -> Script[BatchActed]:
    """What is ready is sent at once; phases that became due meanwhile begin at the scheduler's next round. A batch that
    `max_failures` holds as well stays held: that is another decision."""
    yield from batches.pause(batch, None, None)
    turn.touch(batch.id)
    turn.note("batch-resumed", batch, **said(reason))
    return {"batch_id": batch.id, "status": batch.status, "steps": 0, "held": batch.held_at is not None}


def reschedule(
    turn: Turn, batch: Batch, start: Instant, reason: str, dry_run: bool, if_start: Instant | None
) -> Script[BatchActed]:
    ensure_open(batch)
    before, shift = batch.starts_at, start - batch.starts_at
    if if_start is not None and if_start != before:
        detail = f"batch {batch.id} starts at {utc(before)}, not at {utc(if_start)}: somebody has rescheduled it"
        raise CallerError.of("CONFLICT", detail)
    pending = [phase for phase in (yield from phases.of_batch(batch.id)) if phase.status == PENDING]
    if not pending:
        raise CallerError.of("CONFLICT", f"every phase of batch {batch.id} has begun: there is nothing to move")
    moved: list[MovedPhase] = [
        {
            "phase": phase.name, "due_at": iso(phase.due_at), "new_due_at": iso(phase.due_at + shift),
            "overdue": phase.due_at + shift <= turn.now,
        }
        for phase in pending
    ]  # fmt: skip
    if shift and not dry_run:
        yield from batches.set_delay(batch, start - batch.start)
        yield from phases.move(batch.id, shift)
        yield from phases.clear_waits(batch.id)
        turn.log.anything(batch.id)
        names = [phase.name for phase in pending]
        turn.note("batch-rescheduled", batch, before=utc(before), after=utc(start), phases=names, **said(reason))
    return {
        "batch_id": batch.id, "status": batch.status, "previous_start": iso(before), "start": iso(start),
        "moved": moved, "dry_run": dry_run,
    }  # fmt: skip

"""Creation of batches: their rows, phases and members, and the start of their init."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant
from lucius.ports.database import Script
from lucius.runbooks.core import making, messages
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.due_times import due_at
from lucius.runbooks.core.records import Batch, RunbookRow
from lucius.runbooks.core.states import ACTIVE, BECAUSE_OVERDUE, DETECTED, INIT_DISPATCHED, PENDING, SKIPPED
from lucius.runbooks.engine.progress import close_batch
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import batches, inits, members, phases
from lucius.runbooks.store.batches import NewBatch
from lucius.runbooks.store.inits import NewInit
from lucius.runbooks.store.phases import NewPhase

OVERDUE = "overdue when detected, and overdue_behavior is ignore"


def create_batch(
    turn: Turn, row: RunbookRow, runbook: Runbook, start: Instant, origin: str, advance: str
) -> Script[Batch]:
    """Create a batch with its phases and no members yet. Overdue phases follow `overdue_behavior`."""
    batch_id = yield from batches.create(
        NewBatch(
            runbook_id=row.id, start=start, detected_at=turn.now, runbook_name=row.name,
            tenant_id=tenant_of_runbook(row.name), origin=origin, advance=advance, created_by=turn.actor,
        )
    )  # fmt: skip
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    yield from add_phases(turn, batch, row, runbook, skips_overdue=row.overdue_behavior == "ignore")
    turn.note("batch-detected", batch, start=messages.utc(start), version=row.version, origin=origin)
    return batch


def add_phases(turn: Turn, batch: Batch, row: RunbookRow, runbook: Runbook, skips_overdue: bool) -> Script[None]:
    rows = []
    is_immediate = runbook.source is not None and runbook.source.batch_time_column is None
    on_time_from = min(turn.now, batch.starts_at) if is_immediate else turn.now
    for phase in runbook.phases:
        due = due_at(batch.starts_at, phase.offset_minutes)
        # A phase due right now is on time, and so is one due within the current five minutes.
        skipped = skips_overdue and due < on_time_from and batch.advance == "time"
        rows.append(
            NewPhase(
                batch_id=batch.id, name=phase.name, offset_minutes=phase.offset_minutes, due_at=due,
                version=row.version, status=SKIPPED if skipped else PENDING,
                completed_at=turn.now if skipped else None, error_message=OVERDUE if skipped else None,
                skip_cause=BECAUSE_OVERDUE if skipped else None,
            )
        )  # fmt: skip
    yield from phases.add(rows)
    turn.log.anything(batch.id)


def add_members(
    turn: Turn, batch: Batch, keys: Sequence[str], announce: bool, by_source: bool, reason: str = ""
) -> Script[list[tuple[int, str]]]:
    """Add members to a locked batch; `announce`: notify the orchestrator of each, because the batch has begun."""
    added = yield from members.add(batch.id, keys, turn.now, turn.actor, by_source)
    turn.log.members(batch.id, (member_id for member_id, _ in added))
    if announce and added:
        yield from members.set_add_dispatched([member_id for member_id, _ in added], turn.now)
        for member_id, key in added:
            turn.messages.append(
                messages.member_change(
                    messages.MEMBER_ADDED, batch.runbook_name, batch.version, batch.id, member_id, key
                )
            )
            turn.note("member-added", batch, member_id, member=key, **said(reason))
    return added


def remove_members(
    turn: Turn, batch: Batch, leaving: Sequence[tuple[int, str]], reason: str, by_source: bool
) -> Script[None]:
    yield from members.remove([member_id for member_id, _ in leaving], turn.now, turn.actor, by_source)
    for member_id, key in leaving:
        turn.messages.append(
            messages.member_change(messages.MEMBER_REMOVED, batch.runbook_name, batch.version, batch.id, member_id, key)
        )
        turn.note("member-removed", batch, member_id, member=key, reason=reason)
    yield from close_batch(turn, batch)  # It may have been open only for a member that was held.


def start_batch(turn: Turn, batch: Batch, runbook: Runbook) -> Script[None]:
    """The batch is complete: run its init, or go straight to its phases."""
    if batch.status != DETECTED:
        return
    if runbook.init:
        yield from start_init(turn, batch, runbook)
        return
    yield from batches.set_status(batch, ACTIVE)
    turn.note("batch-active", batch)
    yield from close_batch(turn, batch)  # All its phases are skipped if it was detected late.


def start_init(turn: Turn, batch: Batch, runbook: Runbook) -> Script[None]:
    special = making.specials(batch)
    rows = []
    for index, step in enumerate(runbook.init):
        outputs = known_outputs(runbook, "init", "init", index)
        shared = making.new_execution(batch.id, step, index, None, special, outputs)
        rows.append(NewInit(runbook_version=batch.version, **shared))
    yield from inits.insert(rows)
    yield from batches.start_init(batch, INIT_DISPATCHED, turn.now)
    count = yield from members.count_active(batch.id)
    turn.messages.append(messages.batch_init(batch.runbook_name, batch.version, batch.id, batch.start, count))
    turn.note("init-dispatched", batch, version=batch.version)

"""Batches as they come into being: their rows, their phases, their members, and the start of their init."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks import messages
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.definition.variables import known_outputs
from lucius.runbooks.orchestrator.progress import close_batch
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import ACTIVE, DETECTED, INIT_DISPATCHED, PENDING, SKIPPED
from lucius.runbooks.tables import batches, executions, making
from lucius.runbooks.tables.batches import Batch
from lucius.sql.database import Fetch, Run, Script

MINUTE_MILLIS = 60_000
IMMEDIATE_MILLIS = 5 * MINUTE_MILLIS
"""`immediate` batches start at the whole five minutes that have begun, so that who comes together goes together."""

_CREATE = (
    "INSERT INTO batches (runbook_id, batch_start_time, status, detected_at, runbook_name, origin, advance)"
    " VALUES ($1, $2, 'detected', $3, $4, $5, $6) RETURNING id"
)
_ADD_PHASE = (
    "INSERT INTO phase_executions (batch_id, phase_name, offset_minutes, due_at, runbook_version, status, completed_at,"
    " error_message, failures_forgiven) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)"
    " ON CONFLICT (batch_id, runbook_version, phase_name) DO NOTHING"
)
_ADD_MEMBER = (
    "INSERT INTO batch_members (batch_id, member_key, status, added_at, added_by) VALUES ($1, $2, 'active', $3, $4)"
    " ON CONFLICT (batch_id, member_key) WHERE status = 'active' DO NOTHING"
)
_MEMBER_IDS = (
    "SELECT id, member_key FROM batch_members WHERE batch_id = $1 AND status = 'active'"
    " AND member_key = ANY($2::text[]) AND add_dispatched_at IS NULL"
)
_ADD_TOLD = "UPDATE batch_members SET add_dispatched_at = $2 WHERE id = $1"
_REMOVE = (
    "UPDATE batch_members SET status = 'removed', removed_at = $2, remove_dispatched_at = $2, removed_by = $3"
    " WHERE id = $1 AND status = 'active'"
)
_COUNT = "SELECT COUNT(*) FROM batch_members WHERE batch_id = $1 AND status = 'active'"
_START_INIT = "UPDATE batches SET status = $3, init_dispatched_at = $4 WHERE id = $1 AND status = $2"


class RunbookRow(Struct, frozen=True):
    """A published version, as the scheduler needs it."""

    id: int
    name: str
    version: int
    data_table: str
    overdue_behavior: str
    rerun_init: bool
    ignore_overdue_applied: bool


RUNBOOK = (
    "SELECT id, name, version, data_table_name, overdue_behavior, rerun_init, ignore_overdue_applied FROM runbooks"
)


def due_at(start: Instant, offset_minutes: int) -> Instant:
    return start - offset_minutes * MINUTE_MILLIS


def create_batch(
    turn: Turn, row: RunbookRow, runbook: Runbook, start: Instant, origin: str, advance: str
) -> Script[Batch]:
    """A batch with its phases and, so far, no members. Overdue phases follow `overdue_behavior`."""
    batch_id = (yield Fetch(_CREATE, (row.id, start, turn.now, row.name, origin, advance)))[0][0]
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    yield from add_phases(turn, batch, row, runbook, skips_overdue=row.overdue_behavior == "ignore")
    turn.note("batch-detected", batch, start=messages.utc(start), version=row.version, origin=origin)
    return batch


def add_phases(turn: Turn, batch: Batch, row: RunbookRow, runbook: Runbook, skips_overdue: bool) -> Script[None]:
    rows = []
    is_immediate = runbook.source is not None and runbook.source.batch_time_column is None
    on_time_from = min(turn.now, batch.start) if is_immediate else turn.now
    for phase in runbook.phases:
        due = due_at(batch.start, phase.offset_minutes)
        # A phase that is due at this very moment is on time, and so is one of the five minutes that have begun.
        skipped = skips_overdue and due < on_time_from and batch.advance == "time"
        ended = (SKIPPED, turn.now, "overdue when it was found, and overdue_behavior is ignore")
        rows.append(
            (
                batch.id,
                phase.name,
                phase.offset_minutes,
                due,
                row.version,
                *(ended if skipped else (PENDING, None, None)),
            )
        )
    yield Run(_ADD_PHASE, rows)


def add_members(turn: Turn, batch: Batch, keys: Sequence[str], told: bool) -> Script[list[tuple[int, str]]]:
    """New members of a batch that is locked; `told`: the orchestrator hears of each, because the batch has begun."""
    yield Run(_ADD_MEMBER, [(batch.id, key, turn.now, turn.actor) for key in keys], at_once=True)
    added = [(row[0], row[1]) for row in (yield Fetch(_MEMBER_IDS, (batch.id, list(keys))))]
    if told and added:
        yield Run(_ADD_TOLD, [(member_id, turn.now) for member_id, _ in added])
        for member_id, key in added:
            turn.messages.append(
                messages.member_change(
                    messages.MEMBER_ADDED, batch.runbook_name, batch.version, batch.id, member_id, key
                )
            )
            turn.note("member-added", batch, member_id, member=key)
    return added


def remove_members(turn: Turn, batch: Batch, members: Sequence[tuple[int, str]], reason: str) -> Script[None]:
    yield Run(_REMOVE, [(member_id, turn.now, turn.actor) for member_id, _ in members])
    for member_id, key in members:
        turn.messages.append(
            messages.member_change(messages.MEMBER_REMOVED, batch.runbook_name, batch.version, batch.id, member_id, key)
        )
        turn.note("member-removed", batch, member_id, member=key, reason=reason)


def start_batch(turn: Turn, batch: Batch, runbook: Runbook) -> Script[None]:
    """The batch is whole: run its init, or go straight to its phases."""
    if batch.status != DETECTED:
        return
    if runbook.init:
        yield from start_init(turn, batch, runbook)
        return
    yield Run(batches.SET_BATCH_STATUS, [(batch.id, DETECTED, ACTIVE, None, None)])
    batch.status = ACTIVE
    turn.note("batch-active", batch)
    yield from close_batch(turn, batch)  # It may have been found so late that all its phases are skipped.


def start_init(turn: Turn, batch: Batch, runbook: Runbook) -> Script[None]:
    special = making.specials(batch)
    rows = []
    for index, step in enumerate(runbook.init):
        outputs = known_outputs(runbook, "init", "init", index)
        rows.append((batch.version, *making.shared_values(batch.id, step, index, None, special, outputs)))
    yield Run(executions.INSERT["init_executions"], rows)
    yield Run(_START_INIT, [(batch.id, batch.status, INIT_DISPATCHED, turn.now)])
    batch.status = INIT_DISPATCHED
    count = (yield Fetch(_COUNT, [batch.id]))[0][0]
    turn.messages.append(messages.batch_init(batch.runbook_name, batch.version, batch.id, batch.start, count))
    turn.note("init-dispatched", batch, version=batch.version)

"""Batches as people see them: one line each in a list, and one as a whole, with what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucius.domain.time import Instant
from lucius.runbooks.definition.durations import show_offset
from lucius.runbooks.operations import missing_batch
from lucius.runbooks.states import PHASE, STEP
from lucius.runbooks.tables import controls, executions
from lucius.runbooks.tables.batches import Batch, Phase
from lucius.runbooks.tables.definitions import Definitions
from lucius.runbooks.views.pages import Conditions, moment, page
from lucius.runbooks.waiting import BatchState, StepCount, batch_waits
from lucius.sql.database import Fetch, Row, Script
from lucius.sql.runbook_tables import OPEN

_BATCH = (
    "SELECT b.id, b.runbook_id, b.batch_start_time, b.status, b.runbook_name, b.origin, b.advance, b.held_at,"
    " b.hold_reason, b.error_message, b.completed_at, r.version, r.data_table_name, b.detected_at"
    " FROM batches b JOIN runbooks r ON r.id = b.runbook_id"
)
# Each of these counts reads an index alone.
_ALL_MEMBERS = "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) GROUP BY batch_id"
_ACTIVE_MEMBERS = (
    "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) AND status = 'active'"
    " GROUP BY batch_id"
)
_FAILED_MEMBERS = (
    "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) AND status = 'active'"
    " AND failed_at IS NOT NULL GROUP BY batch_id"
)
_PHASES = (
    "SELECT batch_id, status, COUNT(*) FROM phase_executions WHERE batch_id = ANY($1::bigint[])"
    " GROUP BY batch_id, status"
)
_PHASE_LIST = (
    "SELECT id, batch_id, phase_name, offset_minutes, due_at, runbook_version, status, dispatched_at, completed_at,"
    " member_count, barrier_index, failures_forgiven, error_message FROM phase_executions WHERE batch_id = $1"
    " ORDER BY id"
)
_STEP_COUNTS = (
    "SELECT s.phase_execution_id, s.step_index, MIN(s.step_name), s.status, s.in_flight, s.ready, COUNT(*)"
    " FROM phase_executions p JOIN step_executions s ON s.phase_execution_id = p.id WHERE p.batch_id = $1"
    " GROUP BY s.phase_execution_id, s.step_index, s.status, s.in_flight, s.ready"
    " ORDER BY s.phase_execution_id, s.step_index"
)
_FOLLOWUPS = (
    f"SELECT kind, in_flight, COUNT(*) FROM followup_executions WHERE batch_id = $1 AND {OPEN} GROUP BY kind, in_flight"
    " ORDER BY kind"
)
_INIT = "e.batch_id = $1 ORDER BY e.runbook_version, e.step_index"


def batch_page(
    runbook: str | None, status: str | None, limit: int, before: int | None
) -> Script[tuple[list[dict[str, Any]], int | None]]:
    conditions = Conditions()
    if runbook is not None:
        conditions.add("b.runbook_name = ?", runbook)
    if status is not None:
        conditions.add("b.status = ?", status)
    if before is not None:
        conditions.add("b.id < ?", before)
    rows, next_id = yield from page(conditions.fetch(_BATCH, "b.id DESC", limit + 1), limit)
    return (yield from _lines(rows)), next_id


def batch_exists(batch_id: int) -> Script[Batch]:
    rows = yield Fetch(f"{_BATCH} WHERE b.id = $1", [batch_id])
    if not rows:
        raise missing_batch(batch_id)
    return Batch(*rows[0][:-1])


def whole_batch(batch_id: int, definitions: Definitions, now: Instant) -> Script[dict[str, Any]]:
    rows = yield Fetch(f"{_BATCH} WHERE b.id = $1", [batch_id])
    if not rows:
        raise missing_batch(batch_id)
    batch = Batch(*rows[0][:-1])
    shown = (yield from _lines(rows))[0]
    runbook = yield from definitions.get(batch.runbook_name, batch.version)
    control = yield from controls.read(batch.runbook_name)
    init = yield from executions.select("init_executions", _INIT, batch_id)
    phase_rows = yield Fetch(_PHASE_LIST, [batch_id])
    phases = [Phase(*row[:-1]) for row in phase_rows]
    counts = [StepCount(*row) for row in (yield Fetch(_STEP_COUNTS, [batch_id]))]
    followups = [(row[0], bool(row[1]), row[2]) for row in (yield Fetch(_FOLLOWUPS, [batch_id]))]
    state = BatchState(
        batch=batch, runbook=runbook, automation=control.automation, init=init, phases=phases, counts=counts,
        followups=followups, now=now,
    )  # fmt: skip
    return {
        **shown,
        "init": [
            {
                "version": one.version, "step": one.step_name, "status": one.status, "attempts": one.dispatch_count,
                "error": one.error_message, "dispatched_at": moment(one.dispatched_at),
                "completed_at": moment(one.completed_at),
            }
            for one in init
        ],
        "phase_list": [_phase(phase, row[-1], counts) for phase, row in zip(phases, phase_rows, strict=True)],
        "waiting_for": batch_waits(state),
    }  # fmt: skip


def _lines(rows: Sequence[Row]) -> Script[list[dict[str, Any]]]:
    ids = [row[0] for row in rows]
    if not ids:
        return []
    everybody = {row[0]: row[1] for row in (yield Fetch(_ALL_MEMBERS, [ids]))}
    active = {row[0]: row[1] for row in (yield Fetch(_ACTIVE_MEMBERS, [ids]))}
    failed = {row[0]: row[1] for row in (yield Fetch(_FAILED_MEMBERS, [ids]))}
    phases: dict[int, dict[str, int]] = {}
    for batch_id, status, count in (yield Fetch(_PHASES, [ids])):
        phases.setdefault(batch_id, dict.fromkeys(PHASE, 0))[status] = count
    return [
        {
            "batch_id": row[0], "runbook": row[4], "version": row[11], "start": moment(row[2]), "status": row[3],
            "origin": row[5], "advance": row[6], "held_at": moment(row[7]), "hold_reason": row[8], "error": row[9],
            "detected_at": moment(row[13]), "completed_at": moment(row[10]),
            "members": {
                "active": active.get(row[0], 0), "removed": everybody.get(row[0], 0) - active.get(row[0], 0),
                "failed": failed.get(row[0], 0),
            },
            "phases": phases.get(row[0], dict.fromkeys(PHASE, 0)),
        }
        for row in rows
    ]  # fmt: skip


def _phase(phase: Phase, error: str | None, counts: Sequence[StepCount]) -> dict[str, Any]:
    steps: dict[int, dict[str, Any]] = {}
    for one in counts:
        if one.phase_id == phase.id:
            known = {"step": one.step_name, "step_index": one.step_index, "counts": dict.fromkeys(STEP, 0)}
            step = steps.setdefault(one.step_index, known)
            step["counts"][one.status] += one.count
    return {
        "phase": phase.name, "version": phase.version, "offset": show_offset(phase.offset_minutes),
        "due_at": moment(phase.due_at), "status": phase.status, "dispatched_at": moment(phase.dispatched_at),
        "completed_at": moment(phase.completed_at), "error": error, "steps": list(steps.values()),
    }  # fmt: skip

"""Members of a batch with their steps: the grid, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lucius.domain.time import Instant
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.execution import Execution
from lucius.runbooks.states import DISPATCHED
from lucius.runbooks.tables import batches, controls, executions
from lucius.runbooks.tables.batches import Phase
from lucius.runbooks.tables.definitions import Definitions, step_of
from lucius.runbooks.views.batches import batch_exists
from lucius.runbooks.views.pages import Conditions, moment, page
from lucius.runbooks.waiting import MemberState, member_waits
from lucius.sql.database import Fetch, Row, Script
from lucius.sql.runbook_tables import OPEN

MEMBER_FILTERS = ("active", "removed", "failed", "all")
RESULT_CHARS_MAX = 2_000
"""Of a step's result in a list; a longer one is shown where one member is asked for."""

_MEMBER = "SELECT id, member_key, status, failed_at, added_at, removed_at FROM batch_members"
_STEPS = "e.batch_member_id = ANY($1::bigint[]) ORDER BY e.batch_member_id, e.phase_execution_id, e.step_index"
_FOLLOWUPS = "e.batch_member_id = ANY($1::bigint[]) ORDER BY e.id"
_AT_BARRIER = (
    "SELECT COUNT(*) FROM step_executions WHERE phase_execution_id = $1 AND step_index = $2"
    f" AND {OPEN} AND catching_up = FALSE"
)


def member_page(
    batch_id: int, status: str, key: str | None, limit: int, after: int | None, definitions: Definitions, now: Instant
) -> Script[tuple[list[dict[str, Any]], int | None]]:
    batch = yield from batch_exists(batch_id)
    rows, next_id = yield from page(_wanted(batch_id, status, key, limit, after), limit)
    if not rows:
        return [], None
    ids = [row[0] for row in rows]
    steps = _by_member((yield from executions.select("step_executions", _STEPS, ids)))
    followups = _by_member((yield from executions.select("followup_executions", _FOLLOWUPS, ids)))
    phases = {phase.id: phase for phase in (yield from batches.phases_of(batch_id))}
    runbooks: dict[int, Runbook] = {}
    for version in {batch.version, *(phase.version for phase in phases.values())}:
        runbooks[version] = yield from definitions.get(batch.runbook_name, version)
    barriers = yield from _barriers(phases, runbooks)
    control = yield from controls.read(batch.runbook_name)
    shown = []
    for row in rows:
        own = steps.get(row[0], [])
        state = MemberState(
            batch=batch, runbook=runbooks[batch.version], automation=control.automation, is_active=row[2] == "active",
            has_failed=row[3] is not None, steps=own, followups=followups.get(row[0], []), phases=phases,
            barriers=barriers, retries=_retries(own, runbooks), now=now,
        )  # fmt: skip
        shown.append(_member(row, state, phases, is_alone=key is not None))
    return shown, next_id


def _wanted(batch_id: int, status: str, key: str | None, limit: int, after: int | None) -> Fetch:
    conditions = Conditions()
    conditions.add("batch_id = ?", batch_id)
    if status != "all":
        conditions.add("status = ?", "removed" if status == "removed" else "active")
    if status == "failed":
        conditions.add("failed_at IS NOT NULL")
    if key is not None:
        conditions.add("member_key = ?", key)
    if after is not None:
        conditions.add("id > ?", after)
    return conditions.fetch(_MEMBER, "id", limit + 1)


def _by_member(found: Sequence[Execution]) -> dict[int, list[Execution]]:
    grouped: dict[int, list[Execution]] = {}
    for one in found:
        if one.member_id is not None:
            grouped.setdefault(one.member_id, []).append(one)
    return grouped


def _barriers(phases: Mapping[int, Phase], runbooks: Mapping[int, Runbook]) -> Script[dict[int, tuple[str, int]]]:
    found = {}
    for phase in phases.values():
        runbook = runbooks[phase.version]
        if phase.status != DISPATCHED or runbook.progression != "barrier" or phase.barrier_index is None:
            continue
        steps = runbook.phase(phase.name).steps
        if phase.barrier_index < len(steps):
            count = (yield Fetch(_AT_BARRIER, (phase.id, phase.barrier_index)))[0][0]
            found[phase.id] = (steps[phase.barrier_index].name, count)
    return found


def _retries(steps: Sequence[Execution], runbooks: Mapping[int, Runbook]) -> dict[int, int]:
    waiting = [one for one in steps if one.retry_at is not None]
    return {one.id: step_of(runbooks[one.version], one).retry.max_retries for one in waiting}


def _member(row: Row, state: MemberState, phases: Mapping[int, Phase], is_alone: bool) -> dict[str, Any]:
    return {
        "member_id": row[0], "member": row[1], "status": row[2], "failed_at": moment(row[3]),
        "added_at": moment(row[4]), "removed_at": moment(row[5]),
        "steps": [_step(one, is_alone) for one in state.steps],
        "followups": [
            {
                "kind": one.kind, "list": one.list_name, "step": one.step_name, "status": one.status,
                "error": one.error_message,
            }
            for one in state.followups
        ],
        "waiting_for": member_waits(state),
    }  # fmt: skip


def _step(one: Execution, is_alone: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "phase": one.list_name, "step": one.step_name, "status": one.status, "attempts": one.dispatch_count,
        "error": one.error_message, "dispatched_at": moment(one.dispatched_at),
        "completed_at": moment(one.completed_at),
    }  # fmt: skip
    if one.result_json is not None:
        if is_alone or len(one.result_json) <= RESULT_CHARS_MAX:
            shown["result"] = msgspec.Raw(one.result_json)
        else:
            shown["result_chars"] = len(one.result_json)
    return shown

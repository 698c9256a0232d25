"""Lists of steps that run in order, one at a time: init of a batch, rollback of a step, removal of a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucius.runbooks.definition.model import Runbook, Step
from lucius.runbooks.definition.variables import known_outputs
from lucius.runbooks.execution import Execution, Kind
from lucius.runbooks.orchestrator.progress import close_batch, end_batch
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import ACTIVE, BECAUSE_FAILED, FAILED, INIT_DISPATCHED, PENDING, SKIPPED, SUCCEEDED
from lucius.runbooks.tables import batches, executions, making
from lucius.runbooks.tables.batches import Batch
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

FOLLOWUPS = "followup_executions"
SKIP_PENDING = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $2, error_message = $3"
    " WHERE batch_id = $1 AND status = 'pending'"
)
DROP_UNBEGUN = (
    "DELETE FROM step_executions WHERE phase_execution_id IN"
    " (SELECT p.id FROM phase_executions p WHERE p.batch_id = $1 AND p.status = 'skipped')"
)
"""Steps of phases that never began: their maker died before it could begin them, and they would be in the way."""
BUSY_MEMBERS = (
    "SELECT DISTINCT batch_member_id FROM step_executions WHERE batch_member_id = ANY($1::bigint[])"
    " AND in_flight = TRUE"
)


# --- Init ------------------------------------------------------------------------------------------------------------


def advance_init(turn: Turn, batch: Batch) -> Script[None]:
    """Make the next init step ready; when all have succeeded the batch is active, when one has failed it has too."""
    if batch.status != INIT_DISPATCHED:
        return
    where = "e.batch_id = $1 AND e.runbook_version = $2 ORDER BY e.step_index"
    chain = turn.changes.hold((yield from executions.select("init_executions", where, batch.id, batch.version)))
    current = next((one for one in chain if one.status != SUCCEEDED), None)
    if current is None:
        yield Run(batches.SET_BATCH_STATUS, [(batch.id, batch.status, ACTIVE, None, None)])
        batch.status = ACTIVE
        turn.note("batch-active", batch)
        yield from close_batch(turn, batch)
    elif current.is_open:
        if current.status == PENDING:  # One that polls or waits for its retry is not due yet.
            current.make_ready()
    else:
        reason = f"init step {current.step_name}: {current.error_message or current.status}"
        yield from stop_phases(turn, batch, reason)
        yield from end_batch(turn, batch, FAILED, reason)


def stop_phases(turn: Turn, batch: Batch, reason: str) -> Script[None]:
    """Phases that have not begun never will."""
    yield Run(SKIP_PENDING, [(batch.id, turn.now, reason)])
    yield Run(DROP_UNBEGUN, [(batch.id,)])
    turn.note("phases-skipped", batch, reason=reason, status=SKIPPED)


# --- Rollbacks and removals ------------------------------------------------------------------------------------------


def begin(
    turn: Turn,
    batch: Batch,
    kind: Kind,
    parent: tuple[int, int],
    of: tuple[int | None, int | None, int, str],
    steps: Sequence[Step],
    runbook: Runbook,
    data: Mapping[str, Any] | None,
) -> Script[None]:
    """Make a chain. `parent` is its cause and the round of it; `of` the member, phase, version and list."""
    special = making.specials(batch)
    rows = []
    for index, step in enumerate(steps):
        outputs = known_outputs(runbook, kind, of[3], index)
        if of[0] is None:  # For a step of init: it has what init gave.
            outputs |= known_outputs(runbook, "init", "init", len(runbook.init))
        rows.append((kind, *parent, *of, *making.shared_values(batch.id, step, index, data, special, outputs)))
    if rows:
        yield Run(executions.INSERT[FOLLOWUPS], rows)
        turn.note(f"{kind}-started", batch, of[0], list=of[3], steps=[step.name for step in steps])


def advance(turn: Turn, batch: Batch) -> Script[None]:
    """Make the next step of every chain ready that may go on; after the last, say so to whoever it was for."""
    touched = turn.touch(batch.id)
    if not touched.members and not touched.is_init:
        return
    members = sorted(touched.members)
    where = f"e.batch_member_id = ANY($1::bigint[]) AND e.{OPEN} ORDER BY e.id"
    found = yield from executions.select(FOLLOWUPS, where, members)
    if touched.is_init:
        where = f"e.batch_id = $1 AND e.batch_member_id IS NULL AND e.{OPEN} ORDER BY e.id"
        found += yield from executions.select(FOLLOWUPS, where, batch.id)
    rows = turn.changes.hold(found)
    chains: dict[tuple[str, int | None, int], list[Execution]] = {}
    for one in rows:
        chains.setdefault((one.kind, one.parent_id, one.round), []).append(one)
    if not chains:
        return
    busy = {row[0] for row in (yield Fetch(BUSY_MEMBERS, [members]))} if members else set()
    rolling_back = {one.member_id for one in rows if one.kind == "rollback" and one.is_open}
    for (kind, _, _), chain in chains.items():
        first = min(chain, key=lambda one: one.step_index)
        waits = kind == "removal" and (first.member_id in busy or first.member_id in rolling_back)
        if first.status == PENDING and not waits:
            first.make_ready()


def conclude(turn: Turn, batch: Batch, ended: Sequence[Execution]) -> Script[None]:
    """Steps of chains have ended: those after a failed one never run; a whole rollback marks what it was for."""
    for one in ended:
        where = "e.kind = $1 AND e.parent_id = $2 AND e.round = $3 ORDER BY e.step_index"
        chain = turn.changes.hold((yield from executions.select(FOLLOWUPS, where, one.kind, one.parent_id, one.round)))
        if one.has_failed:
            reason = f"{one.kind} step {one.step_name} failed: {one.error_message}"
            for later in chain:
                later.cancel(turn.now, BECAUSE_FAILED, reason)
            turn.note(f"{one.kind}-failed", batch, one.member_id, reason=reason)
            if one.kind == "rollback":
                parent = yield from _parent(turn, one)
                parent.error_message = f"{parent.error_message}; {reason}"
        elif all(step.status == SUCCEEDED for step in chain):
            turn.note(f"{one.kind}-done", batch, one.member_id, list=one.list_name)
            if one.kind == "rollback":
                parent = yield from _parent(turn, one)
                if parent.dispatch_count == one.round and parent.roll_back():
                    turn.count(parent.status)


def _parent(turn: Turn, rollback: Execution) -> Script[Execution]:
    """What a rollback is for: a member's step, or one of init."""
    assert rollback.parent_id is not None
    found = yield from executions.by_ids("init" if rollback.member_id is None else "step", [rollback.parent_id])
    return turn.changes.hold(found)[0]

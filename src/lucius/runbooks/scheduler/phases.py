"""Phases that are due: their steps are made, a page of members at a time, and then the orchestrator is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucius.domain.time import Instant
from lucius.runbooks import messages
from lucius.runbooks.definition.variables import known_outputs
from lucius.runbooks.orchestrator.members import BEGUN, add_member
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import ACTIVE, BECAUSE_FAILED, PENDING
from lucius.runbooks.tables import batches, executions, making
from lucius.runbooks.tables.batches import Batch, Phase
from lucius.runbooks.tables.data_tables import last_known
from lucius.sql.database import Fetch, Run, Script

PAGE = 400
"""Members whose steps are made in one transaction: few enough for others to get their turn in between."""
PHASES_MAX = 100

DUE = (
    "SELECT p.id, p.batch_id FROM phase_executions p JOIN batches b ON b.id = p.batch_id"
    " LEFT JOIN runbook_controls c ON c.name = b.runbook_name"
    " WHERE p.status = 'pending' AND p.due_at <= $1 AND b.status = 'active' AND b.held_at IS NULL"
    " AND b.advance = 'time' AND (c.automation IS NULL OR c.automation = TRUE) ORDER BY p.due_at, p.id LIMIT $2"
)
_MEMBERS = (
    "SELECT id, member_key, failed_at FROM batch_members WHERE batch_id = $1 AND status = 'active' AND id > $2"
    " ORDER BY id LIMIT $3"
)
_MEMBER_IDS = "SELECT id FROM batch_members WHERE batch_id = $1 AND status = 'active' ORDER BY id"
_BEHIND = (
    "SELECT m.id FROM batch_members m WHERE m.batch_id = $1 AND m.status = 'active' AND m.add_dispatched_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM step_executions s WHERE s.batch_member_id = m.id AND s.phase_execution_id < $2)"
)
"""Who has joined, but of whom the orchestrator may not have heard yet: this phase must not run before their earlier."""
_DISPATCH = (
    "UPDATE phase_executions SET status = 'dispatched', dispatched_at = $2, member_count = $3"
    " WHERE id = $1 AND status = 'pending'"
)


def due_phases(now: Instant) -> Script[list[tuple[int, int]]]:
    """Phase and batch, the most overdue first."""
    return [(row[0], row[1]) for row in (yield Fetch(DUE, (now, PHASES_MAX)))]


def make_steps(turn: Turn, batch: Batch, phase: Phase, after_id: int) -> Script[int | None]:
    """Make the steps of the next page of members: the last of them, or None when there are no more."""
    rows = yield Fetch(_MEMBERS, (batch.id, after_id, PAGE))
    if not rows:
        return None
    current = yield from turn.runbook(batch)
    data = yield from last_known(current, batch.version, [row[1] for row in rows])
    runbook = yield from turn.runbook(batch, phase.version)
    special, steps = making.specials(batch), runbook.phase(phase.name).steps
    outputs = [known_outputs(runbook, "step", phase.name, index) for index in range(len(steps))]
    made: list[tuple[Any, ...]] = []
    for member_id, key, failed_at in rows:
        cancelled = making.Cancelled(BECAUSE_FAILED, "the member failed in an earlier phase", turn.now)
        for index, step in enumerate(steps):
            ending = cancelled if failed_at is not None else None
            shared = making.shared_values(batch.id, step, index, data.get(key), special, outputs[index], ending)
            made.append((phase.id, member_id, False, *shared))
    yield Run(executions.INSERT["step_executions"], made, at_once=True)
    return int(rows[-1][0])


def dispatch_phase(turn: Turn, batch: Batch, phase: Phase, last_id: int) -> Script[bool]:
    """Every member has its steps, those too who came meanwhile: the phase begins."""
    while (made := (yield from make_steps(turn, batch, phase, last_id))) is not None:
        last_id = made
    if any(one.id < phase.id and one.status in BEGUN for one in (yield from batches.phases_of(batch.id))):
        for row in (yield Fetch(_BEHIND, (batch.id, phase.id))):
            yield from add_member(turn, batch, row[0])
    ids = [row[0] for row in (yield Fetch(_MEMBER_IDS, [batch.id]))]
    yield Run(_DISPATCH, [(phase.id, turn.now, len(ids))])
    turn.messages += messages.phase_due(
        batch.runbook_name, phase.version, batch.id, (phase.id, phase.name, phase.offset_minutes, phase.due_at), ids
    )
    turn.note("phase-dispatched", batch, phase=phase.name, version=phase.version, members=len(ids))
    return True


def make_page(phase_id: int, batch_id: int, after_id: int, turn: Turn) -> Script[int | None]:
    """A transaction of its own for each page; None also when the phase is no longer to be begun."""
    found = yield from _load(turn, phase_id, batch_id)
    return None if found is None else (yield from make_steps(turn, *found, after_id))


def begin(phase_id: int, batch_id: int, last_id: int, turn: Turn) -> Script[bool]:
    found = yield from _load(turn, phase_id, batch_id)
    return False if found is None else (yield from dispatch_phase(turn, *found, last_id))


def _load(turn: Turn, phase_id: int, batch_id: int) -> Script[tuple[Batch, Phase] | None]:
    """Lock the batch and look whether the phase is still to be begun."""
    yield from turn.lock([batch_id])
    phases: Sequence[Phase] = yield from batches.phases_by_ids([phase_id])
    batch = turn.batches.get(batch_id)
    if batch is None or not phases or phases[0].status != PENDING:
        return None
    if batch.status != ACTIVE or batch.held_at is not None:  # It was so when the phase was found to be due.
        return None
    return batch, phases[0]

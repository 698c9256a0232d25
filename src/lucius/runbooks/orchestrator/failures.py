"""What follows from failed steps: later ones are cancelled, rollbacks begin, and too many of them stop the phase."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.runbooks.execution import Execution
from lucius.runbooks.orchestrator import chains
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import BECAUSE_FAILED, BECAUSE_LIMIT, DISPATCHED
from lucius.runbooks.tables import batches, executions
from lucius.runbooks.tables.batches import Batch, Phase
from lucius.runbooks.tables.data_tables import last_known
from lucius.runbooks.tables.definitions import step_of
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import UNHAPPY

FAILED_MEMBERS = (
    "SELECT COUNT(DISTINCT batch_member_id) FROM step_executions WHERE phase_execution_id = $1"
    f" AND {UNHAPPY} AND status <> 'cancelled'"
)
LIMIT_CANCELS = (
    "UPDATE step_executions SET status = 'cancelled', cancel_cause = $2, error_message = $3, completed_at = $4,"
    " ready = FALSE WHERE phase_execution_id = $1 AND status = 'pending'"
)


def fail_members(turn: Turn, batch: Batch, failed: Sequence[Execution]) -> Script[None]:
    """These steps have failed for good. Their members go no further, unless an operator retries them."""
    ids = sorted({one.member_id for one in failed if one.member_id is not None})
    yield Run(batches.SET_MEMBER_FAILED, [(member_id, turn.now) for member_id in ids])
    where = "e.batch_member_id = ANY($1::bigint[]) AND e.status = 'pending'"
    later = turn.changes.hold((yield from executions.select("step_executions", where, ids)))
    reasons = {one.member_id: f"step {one.step_name} failed" for one in failed}
    for step in later:
        step.cancel(turn.now, BECAUSE_FAILED, reasons[step.member_id])
        turn.touch(batch.id).phases.add(step.phase_id or 0)
    for one in failed:
        turn.note("step-failed", batch, one.member_id, step=one.step_name, phase=one.list_name, status=one.status,
                  reason=one.error_message)  # fmt: skip
    yield from _begin_rollbacks(turn, batch, failed)


def _begin_rollbacks(turn: Turn, batch: Batch, failed: Sequence[Execution]) -> Script[None]:
    wanted = []
    for one in failed:
        runbook = yield from turn.runbook(batch, one.version)
        name = step_of(runbook, one).on_failure
        if name is not None:
            wanted.append((one, runbook, name))
    if not wanted:
        return
    current = yield from turn.runbook(batch)
    members = yield from batches.members_by_ids([one.member_id for one, _, _ in wanted if one.member_id is not None])
    data = yield from last_known(current, batch.version, [member.key for member in members.values()])
    for one, runbook, name in wanted:
        of = (one.member_id, one.phase_id, one.version, name)
        row = data.get(members[one.member_id].key) if one.member_id in members else None
        parent = (one.id, one.dispatch_count)
        yield from chains.begin(turn, batch, "rollback", parent, of, runbook.rollbacks[name], runbook, row)


def hold_where_exceeded(turn: Turn, batch: Batch, phase_ids: Sequence[int]) -> Script[None]:
    """A phase with more failures than `max_failures` sends nothing more, and the batch is held. After `write`."""
    for phase in (yield from batches.phases_by_ids(phase_ids)):
        runbook = yield from turn.runbook(batch, phase.version)
        limit = runbook.max_failures
        if limit is None:
            continue
        failed = (yield Fetch(FAILED_MEMBERS, [phase.id]))[0][0] - phase.failures_forgiven
        if limit.is_exceeded(failed, phase.member_count or 0):
            yield from _hold(turn, batch, phase, failed)


def _hold(turn: Turn, batch: Batch, phase: Phase, failed: int) -> Script[None]:
    reason = (
        f"{failed} of {phase.member_count or 0} members failed in phase {phase.name}: more than max_failures allows"
    )
    # Later phases are held, and one that has begun already is too: who was stopped here must not go on there.
    begun = [one.id for one in (yield from batches.phases_of(batch.id)) if one.status == DISPATCHED]
    stopped = [phase_id for phase_id in begun if phase_id >= phase.id]
    yield Run(LIMIT_CANCELS, [(phase_id, BECAUSE_LIMIT, reason, turn.now) for phase_id in stopped])
    turn.touch(batch.id).phases.update(stopped)
    if batch.held_at is None:
        yield Run(batches.HOLD_BATCH, [(batch.id, turn.now, reason)])
        batch.held_at, batch.hold_reason = turn.now, reason
        turn.note("batch-held", batch, reason=reason, phase=phase.name)

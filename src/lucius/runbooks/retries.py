"""The one way out of a failure: an operator's retry, of members, of a held batch, or of an init."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from lucius.domain.errors import CallerError
from lucius.runbooks.definition.variables import known_outputs
from lucius.runbooks.execution import Execution
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import (
    ACTIVE,
    BATCH_ENDED,
    BECAUSE_FAILED,
    BECAUSE_LIMIT,
    FAILED,
    INIT_DISPATCHED,
    SUCCEEDED,
)
from lucius.runbooks.tables import batches, executions, making
from lucius.runbooks.tables.batches import Batch
from lucius.runbooks.tables.data_tables import last_known
from lucius.runbooks.tables.definitions import step_of
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

_FAILED_MEMBERS = (
    "SELECT id, member_key FROM batch_members WHERE batch_id = $1 AND status = 'active' AND failed_at IS NOT NULL"
)
_ROLLING_BACK = f"SELECT batch_member_id FROM followup_executions WHERE batch_id = $1 AND kind = 'rollback' AND {OPEN}"
_CATCH_UP = "UPDATE step_executions SET catching_up = TRUE WHERE id = $1"
_UNSKIP = (
    "UPDATE phase_executions SET status = 'pending', completed_at = NULL, error_message = NULL"
    " WHERE batch_id = $1 AND status = 'skipped' AND runbook_version = $2 AND error_message LIKE 'init step %'"
)
_FORGIVE = (
    "UPDATE phase_executions SET failures_forgiven = (SELECT COUNT(DISTINCT s.batch_member_id) FROM step_executions s"
    " WHERE s.phase_execution_id = phase_executions.id AND s.status IN ('failed', 'poll_timeout', 'rolled_back'))"
    " WHERE batch_id = $1"
)
_HEALTHY = (
    "NOT EXISTS (SELECT 1 FROM batch_members m WHERE m.id = e.batch_member_id"
    " AND (m.status <> 'active' OR m.failed_at IS NOT NULL))"
)
_INIT_FAILED = (
    "SELECT id FROM init_executions WHERE batch_id = $1 AND runbook_version = $2 AND status <> 'succeeded'"
    " ORDER BY id LIMIT 1"
)
_STOPPED_BY = "SELECT kind FROM runbook_events WHERE batch_id = $1 AND kind = 'batch-cancelled' ORDER BY id LIMIT 1"


def retry(turn: Turn, batch: Batch, member_keys: Sequence[str] | None) -> Script[dict[str, Any]]:
    """Retry these members, or every failed one; with none named, a failed init as well."""
    if (yield Fetch(_STOPPED_BY, [batch.id])):
        raise CallerError.of("CONFLICT", f"batch {batch.id} was cancelled: make a new batch of its members")
    if member_keys is None and (yield from _retry_init(turn, batch)):
        return {"batch_id": batch.id, "status": batch.status, "members": 0, "init": True}
    failed = {row[1]: row[0] for row in (yield Fetch(_FAILED_MEMBERS, [batch.id]))}
    wanted = failed if member_keys is None else {key: failed[key] for key in member_keys if key in failed}
    unknown = [key for key in member_keys or () if key not in failed]
    if unknown or not wanted:
        what = f"no failed member {', '.join(unknown[:5])}" if unknown else "no failed member"
        raise CallerError.of("CONFLICT", f"batch {batch.id} has {what}: only who has failed can be retried")
    busy = {row[0] for row in (yield Fetch(_ROLLING_BACK, [batch.id]))} & set(wanted.values())
    if busy:
        raise CallerError.of("CONFLICT", f"{len(busy)} of these members are being rolled back: wait for that to end")
    yield from reopen_batch(turn, batch)
    # Its later steps may have been cancelled by `max_failures` before it failed itself.
    count = yield from revive(turn, batch, sorted(wanted.values()), frozenset({BECAUSE_FAILED, BECAUSE_LIMIT}))
    yield Run(batches.SET_MEMBER_FAILED, [(member_id, None) for member_id in wanted.values()])
    for key, member_id in wanted.items():
        turn.note("member-retried", batch, member_id, member=key)
    return {"batch_id": batch.id, "status": batch.status, "members": len(wanted), "steps": count, "init": False}


def _retry_init(turn: Turn, batch: Batch) -> Script[bool]:
    """Whether the batch's init had failed; then it goes on with the step that did."""
    where = "e.batch_id = $1 AND e.runbook_version = $2 ORDER BY e.step_index"
    chain = turn.changes.hold((yield from executions.select("init_executions", where, batch.id, batch.version)))
    if batch.status != FAILED or all(one.status == SUCCEEDED for one in chain):
        return False
    if any(row[0] is None for row in (yield Fetch(_ROLLING_BACK, [batch.id]))):
        raise CallerError.of("CONFLICT", f"the init of batch {batch.id} is being rolled back: wait for that to end")
    for one in chain:
        one.retry()
    yield Run(batches.SET_BATCH_STATUS, [(batch.id, FAILED, INIT_DISPATCHED, None, None)])
    batch.status = INIT_DISPATCHED
    yield Run(_UNSKIP, [(batch.id, batch.version)])
    turn.touch(batch.id).is_init = True
    turn.note("init-retried", batch)
    return True


def reopen_batch(turn: Turn, batch: Batch) -> Script[None]:
    if batch.status not in BATCH_ENDED:
        return
    if (yield Fetch(_INIT_FAILED, (batch.id, batch.version))):
        raise CallerError.of("CONFLICT", f"the init of batch {batch.id} failed: retry that first, with no member named")
    yield Run(batches.SET_BATCH_STATUS, [(batch.id, batch.status, ACTIVE, None, None)])
    batch.status, batch.completed_at = ACTIVE, None
    turn.note("batch-reopened", batch)


def forgive(batch: Batch) -> Script[None]:
    """Failures so far no longer count for `max_failures`."""
    yield Run(_FORGIVE, [(batch.id,)])


def _resolve_anew(turn: Turn, batch: Batch, revived: Sequence[Execution]) -> Script[None]:
    """With what is known of the members now: a wrong value that was put right is often why somebody retries."""
    members = yield from batches.members_by_ids(sorted({one.member_id for one in revived if one.member_id is not None}))
    current = yield from turn.runbook(batch)
    data = yield from last_known(current, batch.version, [member.key for member in members.values()])
    special = making.specials(batch)
    for one in revived:
        runbook = yield from turn.runbook(batch, one.version)
        outputs = known_outputs(runbook, "step", one.list_name, one.step_index)
        member = members[one.member_id or 0]
        made = making.resolved(step_of(runbook, one), data.get(member.key), special, outputs)
        one.function_name, one.params_json, one.late_json, one.fault = made


def revive(turn: Turn, batch: Batch, member_ids: Sequence[int] | None, causes: Set[str]) -> Script[int]:
    """Back to `pending`: what failed of these members, and what was cancelled for one of these causes. How many."""
    table = "step_executions"
    if member_ids is None:
        where = f"p.batch_id = $1 AND e.status = 'cancelled' AND {_HEALTHY}"
        found = yield from executions.select(table, where, batch.id)
    else:
        found = yield from executions.select(table, "e.batch_member_id = ANY($1::bigint[])", list(member_ids))
    revived: list[Execution] = []
    for one in turn.changes.hold(found):
        wanted = one.has_failed if one.status != "cancelled" else one.cancel_cause in causes
        if wanted and one.retry():
            revived.append(one)
    yield from _resolve_anew(turn, batch, revived)
    phases = sorted({one.phase_id for one in revived if one.phase_id is not None})
    yield from turn.changes.write()
    # Whoever comes from behind runs alone until it has come up to the barrier.
    yield Run(_CATCH_UP, [(one.id,) for one in revived])
    yield Run(batches.REOPEN_PHASE, [(phase_id,) for phase_id in phases])
    touched = turn.touch(batch.id)
    touched.phases.update(phases)
    touched.members.update(one.member_id for one in revived if one.member_id is not None)
    return len(revived)

"""What the verdict on a batch depends on: members that did not succeed, and init."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.ports.database import Fetch, Script
from lucius.runbooks.store.conditions import NOT_SUCCEEDED

_UNSUCCESSFUL = (
    " FROM phase_executions p JOIN step_executions s ON s.phase_execution_id = p.id"
    " JOIN batch_members m ON m.id = s.batch_member_id"
    f" WHERE p.batch_id = ANY($1::bigint[]) AND s.{NOT_SUCCEEDED} AND m.status = 'active'"
)
UNSUCCESSFUL_COUNTS = f"SELECT p.batch_id, COUNT(DISTINCT m.id){_UNSUCCESSFUL} GROUP BY p.batch_id"
UNSUCCESSFUL = f"SELECT DISTINCT m.id, m.member_key{_UNSUCCESSFUL} ORDER BY m.id LIMIT $2"
INIT_FAILED = (
    "SELECT DISTINCT b.id FROM batches b JOIN runbooks r ON r.id = b.runbook_id JOIN init_executions e"
    " ON e.batch_id = b.id AND e.runbook_version = r.version WHERE b.id = ANY($1::bigint[]) AND e.status <> 'succeeded'"
)
REFUSED = (
    "SELECT DISTINCT b.id FROM batches b JOIN runbooks r ON r.id = b.runbook_id JOIN phase_executions p"
    " ON p.batch_id = b.id AND p.runbook_version = r.version WHERE b.id = ANY($1::bigint[])"
    " AND p.skip_cause = 'refused'"
)


def unsuccessful_counts(batch_ids: Sequence[int]) -> Script[dict[int, int]]:
    """Active members with a step that failed or was cancelled, by batch."""
    return {row[0]: row[1] for row in (yield Fetch(UNSUCCESSFUL_COUNTS, [list(batch_ids)]))} if batch_ids else {}


def unsuccessful(batch_id: int, limit: int) -> Script[dict[int, str]]:
    """The first of them: id and key."""
    return {row[0]: row[1] for row in (yield Fetch(UNSUCCESSFUL, ([batch_id], limit)))}


def stopped_early(batch_ids: Sequence[int]) -> Script[set[int]]:
    """Those of these batches whose init has a step that did not succeed, or of which a phase was refused."""
    if not batch_ids:
        return set()
    found: set[int] = set()
    for statement in (INIT_FAILED, REFUSED):
        found.update(row[0] for row in (yield Fetch(statement, [list(batch_ids)])))
    return found

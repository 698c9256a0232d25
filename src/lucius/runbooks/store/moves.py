"""Members whose date moves in the source after steps of them were sent: held until somebody confirms or keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Member
from lucius.runbooks.store.conditions import IS_OPEN
from lucius.runbooks.store.members import MEMBER

BEGUN = (
    "SELECT DISTINCT batch_member_id FROM step_executions WHERE batch_member_id = ANY($1::bigint[])"
    " AND dispatch_count > 0"
)
HELD = f"{MEMBER} WHERE batch_id = $1 AND move_held_at IS NOT NULL AND status = 'active' ORDER BY id LIMIT $2"
HELD_COUNTS = (
    "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) AND move_held_at IS NOT NULL"
    " AND status = 'active' GROUP BY batch_id"
)
KEPT = (
    "SELECT m.member_key, m.move_to FROM batches b JOIN batch_members m ON m.batch_id = b.id WHERE b.runbook_name = $1"
    " AND b.origin = 'source' AND b.completed_at IS NOT NULL AND m.status = 'active' AND m.move_to = ANY($2::bigint[])"
    " AND m.move_held_at IS NULL"
)
_HOLD = "UPDATE batch_members SET move_to = $2, move_held_at = $3 WHERE id = $1 AND status = 'active'"
_KEEP = "UPDATE batch_members SET move_held_at = NULL WHERE id = $1"
_FORGET = "UPDATE batch_members SET move_to = NULL, move_held_at = NULL WHERE id = $1"
SET_ASIDE = (
    "UPDATE step_executions SET catching_up = TRUE, ready = CASE WHEN status = 'pending' THEN FALSE ELSE ready END"
    f" WHERE batch_member_id = $1 AND {IS_OPEN}"
)
_OPEN_PHASES = f"SELECT DISTINCT phase_execution_id FROM step_executions WHERE batch_member_id = $1 AND {IS_OPEN}"


def begun(member_ids: Sequence[int]) -> Script[set[int]]:
    """Those of these members of whom a step was sent."""
    return {row[0] for row in (yield Fetch(BEGUN, [list(member_ids)]))}


def held(batch_id: int, limit: int) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(HELD, (batch_id, limit)))]


def held_counts(batch_ids: Sequence[int]) -> Script[dict[int, int]]:
    return {row[0]: row[1] for row in (yield Fetch(HELD_COUNTS, [list(batch_ids)]))}


def kept(runbook_name: str, starts: Sequence[Instant]) -> Script[set[tuple[str, Instant]]]:
    """Key and date of members of ended batches that an operator kept there although the source named this date."""
    return {(row[0], row[1]) for row in (yield Fetch(KEPT, (runbook_name, list(starts))))}


def hold(member_id: int, to: Instant, now: Instant) -> Script[set[int]]:
    """Hold a member: it starts no step, and no barrier waits for it. Returns the phases in which it has open steps."""
    yield Run(_HOLD, [(member_id, to, now)])
    yield Run(SET_ASIDE, [(member_id,)])
    return {row[0] for row in (yield Fetch(_OPEN_PHASES, [member_id]))}


def keep(member_ids: Iterable[int]) -> Script[None]:
    yield Run(_KEEP, [(member_id,) for member_id in member_ids])


def forget(member_ids: Iterable[int]) -> Script[None]:
    """The source no longer moves these members."""
    yield Run(_FORGET, [(member_id,) for member_id in member_ids])

"""Who holds up a phase: the members at its lowest open step, those first who have been at it for longest."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Script
from lucius.runbooks.store.conditions import IS_OPEN

LOWEST = (
    f"SELECT s.step_index FROM step_executions s WHERE s.phase_execution_id = $1 AND s.{IS_OPEN}"
    " AND s.catching_up = FALSE ORDER BY s.step_index LIMIT 1"
)
COUNT = (
    f"SELECT COUNT(*) FROM step_executions s WHERE s.phase_execution_id = $1 AND s.step_index = $2 AND s.{IS_OPEN}"
    " AND s.catching_up = FALSE"
)
LONGEST = (
    "SELECT m.id, m.member_key, s.status, s.dispatched_at FROM step_executions s"
    " JOIN batch_members m ON m.id = s.batch_member_id"
    f" WHERE s.phase_execution_id = $1 AND s.step_index = $2 AND s.{IS_OPEN} AND s.catching_up = FALSE"
    " ORDER BY CASE WHEN s.dispatched_at IS NULL THEN 1 ELSE 0 END, s.dispatched_at, s.id LIMIT $3"
)


class Behind(Struct, frozen=True):
    member_id: int
    key: str
    status: str
    since: Instant | None
    """When its step was sent; None if it was not."""


def behind(phase_id: int, limit: int) -> Script[tuple[int, int, list[Behind]] | None]:
    """The lowest open step of a phase, how many members are at it, and the first of them; None if nobody is."""
    lowest = yield Fetch(LOWEST, [phase_id])
    if not lowest:
        return None
    index: int = lowest[0][0]
    count: int = (yield Fetch(COUNT, (phase_id, index)))[0][0]
    return index, count, [Behind(*row) for row in (yield Fetch(LONGEST, (phase_id, index, limit)))]

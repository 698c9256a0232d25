"""What the runbooks' tables hold, counted for the metrics."""

from __future__ import annotations

from lucius.ports.database import Fetch, Script

OPEN_BATCHES = "SELECT runbook_name, COUNT(*) FROM batches WHERE completed_at IS NULL GROUP BY runbook_name"
IN_FLIGHT = (
    "SELECT b.runbook_name, COUNT(*) FROM step_executions s JOIN batches b ON b.id = s.batch_id"
    " WHERE s.in_flight = TRUE GROUP BY b.runbook_name"
)
OUTBOX = "SELECT COUNT(*), MIN(created_at) FROM runbook_outbox"


def read_counts() -> Script[tuple[dict[str, int], dict[str, int], int, int | None]]:
    """Open batches and steps in flight by runbook, and the outbox. Each is counted along an index of nothing else, or
    in a table that is empty but for moments."""
    batches = {row[0]: row[1] for row in (yield Fetch(OPEN_BATCHES))}
    in_flight = {row[0]: row[1] for row in (yield Fetch(IN_FLIGHT))}
    backlog, oldest = (yield Fetch(OUTBOX))[0]
    return batches, in_flight, backlog, oldest

"""What the runbooks' tables hold, counted for the metrics."""

from __future__ import annotations

from lucius.ports.database import Fetch, Script

OPEN_BATCHES = "SELECT COUNT(*) FROM batches WHERE completed_at IS NULL"
IN_FLIGHT = "SELECT COUNT(*) FROM step_executions WHERE in_flight = TRUE"
OUTBOX = "SELECT COUNT(*), MIN(created_at) FROM runbook_outbox"


def read_counts() -> Script[tuple[int, int, int, int | None]]:
    """Each is counted along an index of nothing else, or in a table that is empty but for moments."""
    batches = (yield Fetch(OPEN_BATCHES))[0][0]
    in_flight = (yield Fetch(IN_FLIGHT))[0][0]
    backlog, oldest = (yield Fetch(OUTBOX))[0]
    return batches, in_flight, backlog, oldest

"""Steps whose poll interval has passed: one `poll-check` for each, once a poll."""

from __future__ import annotations

from lucius.domain.time import Instant
from lucius.runbooks import messages
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.tables import executions
from lucius.runbooks.tables.executions import ALL_TABLES
from lucius.sql.database import Fetch, Script

POLLS_MAX = 500
"""Polls asked for in one transaction."""

_DUE = {
    table: f"SELECT e.id, e.batch_id FROM {table} e WHERE e.status = 'polling' AND e.last_polled_at <= $1"
    " AND e.last_polled_at + e.poll_interval_sec * 1000 <= $1 AND e.in_flight = FALSE AND e.ready = FALSE"
    " AND e.retry_at IS NULL AND e.poll_asked <= e.poll_count ORDER BY e.last_polled_at LIMIT $2"
    for table in ALL_TABLES
}


def due_polls(now: Instant) -> Script[list[tuple[str, int, int]]]:
    """Table, execution and batch."""
    found = []
    for table in ALL_TABLES:
        for row in (yield Fetch(_DUE[table], (now, POLLS_MAX))):
            found.append((table, row[0], row[1]))
    return found


def ask(turn: Turn, due: list[tuple[str, int, int]]) -> Script[None]:
    """Ask for these polls, of batches that are locked."""
    for table in ALL_TABLES:
        ids = [number for name, number, _ in due if name == table]
        if not ids:
            continue
        for one in turn.changes.hold((yield from executions.select(table, "e.id = ANY($1::bigint[])", ids))):
            idle = one.status == "polling" and not one.in_flight and not one.ready and one.retry_at is None
            if idle and one.poll_asked <= one.poll_count:
                one.poll_asked = one.poll_count + 1
                batch = turn.batches[one.batch_id]
                turn.messages.append(
                    messages.poll_check(
                        batch.runbook_name, one.version, batch.id, one.kind, one.id, one.step_name, one.poll_asked,
                        one.dispatch_count,
                    )
                )  # fmt: skip

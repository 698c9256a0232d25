"""Queries used only by rehearsals: the next due times, and the outcome of each step."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Script
from lucius.runbooks.store.columns import columns_of
from lucius.runbooks.store.executions import ALL_TABLES


class StepRow(Struct, frozen=True):
    member_id: int
    index: int
    name: str
    status: str
    dispatched_at: Instant | None
    completed_at: Instant | None
    error: str | None
    cancel_cause: str | None


class SentStep(Struct, frozen=True):
    id: int
    step_name: str
    is_poll_step: bool
    poll_count: int


class Totals(Struct, frozen=True):
    retries: int
    polls: int
    rollback_jobs: int


_NAMED = {"index": "step_index", "name": "step_name", "error": "error_message"}
_OF_PHASE = (
    f"SELECT {columns_of(StepRow, {**_NAMED, 'member_id': 'batch_member_id'})} FROM step_executions"
    " WHERE phase_execution_id = $1 ORDER BY batch_member_id, step_index"
)
_OF_INIT = (
    f"SELECT {columns_of(StepRow, {**_NAMED, 'member_id': '0'})} FROM init_executions"
    " WHERE batch_id = $1 ORDER BY step_index"
)
_RETRIES = " + ".join(f"(SELECT COALESCE(SUM(retries_used), 0) FROM {table})" for table in ALL_TABLES)
_POLLS = " + ".join(f"(SELECT COALESCE(SUM(poll_count), 0) FROM {table})" for table in ALL_TABLES)
_TOTALS = (
    f"SELECT {_RETRIES}, {_POLLS},"
    " (SELECT COUNT(*) FROM followup_executions WHERE kind = 'rollback' AND dispatch_count > 0)"
)
_NEXT_WAKE = tuple(f"SELECT MIN(wake_at) FROM {table} WHERE wake_at IS NOT NULL" for table in ALL_TABLES)
_IDLE_POLL = (
    "status = 'polling' AND in_flight = FALSE AND ready = FALSE AND retry_at IS NULL AND poll_asked <= poll_count"
)
_NEXT_POLL = tuple(
    f"SELECT MIN(last_polled_at + poll_interval_sec * 1000) FROM {table} WHERE {_IDLE_POLL}" for table in ALL_TABLES
)
_POLLS_OF = {
    table: f"SELECT DISTINCT last_polled_at, poll_interval_sec FROM {table} WHERE id = ANY($1::bigint[])"
    " AND last_polled_at IS NOT NULL"
    for table in ALL_TABLES
}
_SENT = {table: f"SELECT {columns_of(SentStep, {})} FROM {table} WHERE id = ANY($1::bigint[])" for table in ALL_TABLES}


def steps_of_phase(phase_id: int) -> Script[list[StepRow]]:
    return [StepRow(*row) for row in (yield Fetch(_OF_PHASE, [phase_id]))]


def steps_of_init(batch_id: int) -> Script[list[StepRow]]:
    return [StepRow(*row) for row in (yield Fetch(_OF_INIT, [batch_id]))]


def totals() -> Script[Totals]:
    return Totals(*(yield Fetch(_TOTALS))[0])


def next_wakes() -> Script[list[Instant | None]]:
    """The first step to wake in each table."""
    return (yield from _firsts(_NEXT_WAKE))


def next_polls() -> Script[list[Instant | None]]:
    return (yield from _firsts(_NEXT_POLL))


def polls_of(table: str, ids: Sequence[int]) -> Script[list[tuple[Instant, int]]]:
    """When these steps were last polled, and the seconds between their polls."""
    return [(row[0], row[1]) for row in (yield Fetch(_POLLS_OF[table], [list(ids)]))]


def sent(table: str, ids: Sequence[int]) -> Script[list[SentStep]]:
    return [SentStep(*row) for row in (yield Fetch(_SENT[table], [list(ids)]))]


def _firsts(statements: Sequence[str]) -> Script[list[Instant | None]]:
    found = []
    for statement in statements:
        rows = yield Fetch(statement)
        found.append(rows[0][0])
    return found

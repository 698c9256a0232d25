"""Shared by the three execution tables, since one state machine drives them all: columns, reads, creation, waking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Row, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.states import Kind
from lucius.runbooks.store.columns import columns_of

STEPS, INITS, FOLLOWUPS = "step_executions", "init_executions", "followup_executions"
ALL_TABLES = (STEPS, INITS, FOLLOWUPS)
TABLES: dict[Kind, str] = {"step": STEPS, "init": INITS, "rollback": FOLLOWUPS, "removal": FOLLOWUPS}

_MEMBER, _PHASE = "e.batch_member_id", "e.phase_execution_id"
_OWN = {
    STEPS: {
        "kind": "'step'", "member_id": _MEMBER, "phase_id": _PHASE, "parent_id": "NULL", "round": "0",
        "version": "p.runbook_version", "list_name": "p.phase_name",
    },
    INITS: {
        "kind": "'init'", "member_id": "NULL", "phase_id": "NULL", "parent_id": "NULL", "round": "0",
        "version": "e.runbook_version", "list_name": "'init'",
    },
    FOLLOWUPS: {"member_id": _MEMBER, "phase_id": _PHASE, "version": "e.runbook_version"},
}  # fmt: skip
"""Fields of an execution that a table has under another name, or not at all."""
_FROM = {
    STEPS: "step_executions e JOIN phase_executions p ON p.id = e.phase_execution_id",
    INITS: "init_executions e",
    FOLLOWUPS: "followup_executions e",
}
SELECT = {table: f"SELECT {columns_of(Execution, _OWN[table], 'e')} FROM {_FROM[table]}" for table in ALL_TABLES}

CONSTANTS = {
    "poll_count": "0", "dispatch_count": "0", "retries_used": "0", "ready": "FALSE", "in_flight": "FALSE",
    "poll_asked": "0", "has_token": "FALSE",
}  # fmt: skip
"""Initial values of every execution."""

BY_IDS = {table: f"{SELECT[table]} WHERE e.id = ANY($1::bigint[])" for table in ALL_TABLES}
READY = {
    table: f"{SELECT[table]} WHERE e.batch_id = $1 AND e.ready = TRUE ORDER BY e.id LIMIT $2" for table in ALL_TABLES
}
_SENT_ANYWAY = {
    STEPS: "e.status = 'polling'", INITS: "e.status = 'polling'",
    FOLLOWUPS: "(e.kind = 'rollback' OR e.status = 'polling')",
}  # fmt: skip
"""As `start_rules.is_sent_anyway` says."""
SENDABLE = READY
SENDABLE_ANYWAY = {
    table: f"{SELECT[table]} WHERE e.batch_id = $1 AND e.ready = TRUE AND {_SENT_ANYWAY[table]} ORDER BY e.id LIMIT $2"
    for table in ALL_TABLES
}
"""What is sent although the batch waits for a window."""
SENDABLE_PAUSED = {
    table: f"{SELECT[table]} WHERE e.batch_id = $1 AND e.ready = TRUE AND e.status = 'polling' ORDER BY e.id LIMIT $2"
    for table in ALL_TABLES
}
"""What is sent although the batch is paused: what a worker has begun, and is polled until it ends."""
READY_WAITING = {
    table: f"SELECT e.id FROM {table} e WHERE e.batch_id = $1 AND e.ready = TRUE AND NOT {_SENT_ANYWAY[table]}"
    " ORDER BY e.id LIMIT 1"
    for table in ALL_TABLES
}
_MAY_START = "(b.wait_until IS NULL OR b.wait_until <= $1)"
READY_BATCHES = {
    table: "WITH RECURSIVE found (batch_id) AS ("
    f"SELECT (SELECT e.batch_id FROM {table} e WHERE e.ready = TRUE ORDER BY e.batch_id LIMIT 1)"
    f" UNION ALL SELECT (SELECT e.batch_id FROM {table} e WHERE e.ready = TRUE AND e.batch_id > found.batch_id"
    " ORDER BY e.batch_id LIMIT 1) FROM found WHERE found.batch_id IS NOT NULL)"
    f" SELECT b.id FROM found JOIN batches b ON b.id = found.batch_id WHERE ({_MAY_START} AND b.paused_at IS NULL)"
    f" OR EXISTS (SELECT 1 FROM {table} e WHERE e.batch_id = b.id AND e.ready = TRUE"
    f" AND ({_MAY_START} OR {_SENT_ANYWAY[table]}) AND (b.paused_at IS NULL OR e.status = 'polling'))"
    for table in ALL_TABLES
}
"""One step along the index for each batch, however many of its executions are ready."""
DUE = {table: f"SELECT id, batch_id FROM {table} WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2" for table in ALL_TABLES}
AHEAD = {
    table: f"SELECT id, batch_id, wake_at FROM {table} WHERE wake_at >= $1 AND (wake_at > $1 OR id > $2)"
    " AND (retry_at > $3 OR dispatched_at > $3 OR last_polled_at > $3) ORDER BY wake_at, id LIMIT $4"
    for table in ALL_TABLES
}
BATCH_OF = {table: f"SELECT id, batch_id FROM {table} WHERE id = ANY($1::bigint[])" for table in ALL_TABLES}
_POLL_DUE = (
    "status = 'polling' AND last_polled_at <= $1 AND last_polled_at + poll_interval_sec * 1000 <= $1"
    " AND in_flight = FALSE AND ready = FALSE AND retry_at IS NULL"
)
POLLS_DUE = {
    table: f"SELECT id, batch_id FROM {table} WHERE {_POLL_DUE} AND poll_asked <= poll_count"
    " ORDER BY last_polled_at LIMIT $2"
    for table in ALL_TABLES
}
POLLS_UNHANDLED = {
    table: f"SELECT batch_id, id, {kind}, poll_asked FROM {table} WHERE {_POLL_DUE} AND poll_asked > poll_count"
    " ORDER BY last_polled_at LIMIT $2"
    for table, kind in zip(ALL_TABLES, ("'step'", "'init'", "kind"), strict=True)
}


class Ahead(NamedTuple):
    """An execution that may wait for too long."""

    id: int
    batch_id: int
    wake_at: Instant


def read_all(sql: str, *args: Any) -> Script[list[Execution]]:
    """Executions by a statement that begins with one of `SELECT`."""
    return [Execution(*row) for row in (yield Fetch(sql, args))]


def by_ids(kind: Kind, ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from of_table(TABLES[kind], ids)) if ids else []


def of_table(table: str, ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from read_all(BY_IDS[table], list(ids)))


def by_names(names: Iterable[tuple[Kind, int]]) -> Script[dict[tuple[Kind, int], Execution]]:
    """By kind and id; missing ones are left out."""
    wanted: dict[Kind, set[int]] = {}
    for kind, execution_id in names:
        wanted.setdefault(kind, set()).add(execution_id)
    found: dict[tuple[Kind, int], Execution] = {}
    for kind, ids in wanted.items():
        found |= {(one.kind, one.id): one for one in (yield from by_ids(kind, sorted(ids)))}
    return found


def ready(table: str, batch_id: int, limit: int, sendable: Mapping[str, str] = SENDABLE) -> Script[list[Execution]]:
    """Executions to send; `sendable` is one of the statements above, and says which."""
    return (yield from read_all(sendable[table], batch_id, limit))


def has_waiting(batch_id: int) -> Script[bool]:
    """Whether the batch has ready executions that are not sent while it waits."""
    for statement in READY_WAITING.values():
        if (yield Fetch(statement, [batch_id])):
            return True
    return False


def ready_batches(now: Instant) -> Script[set[int]]:
    """Batches with ready executions that may be sent."""
    found: set[int] = set()
    for statement in READY_BATCHES.values():
        found.update(row[0] for row in (yield Fetch(statement, [now])))
    return found


def batches_of(wanted: Sequence[tuple[Kind, int]]) -> Script[set[int]]:
    """The batches of these executions."""
    ids: dict[str, list[int]] = {}
    for kind, execution_id in wanted:
        ids.setdefault(TABLES[kind], []).append(execution_id)
    found: set[int] = set()
    for table, numbers in ids.items():
        rows: Sequence[Row] = yield Fetch(BATCH_OF[table], [numbers])
        found.update(row[1] for row in rows)
    return found


# --- Time ------------------------------------------------------------------------------------------------------------


def due(now: Instant, limit: int) -> Script[list[tuple[str, int, int]]]:
    """Table, execution and batch of due executions, oldest first, up to a limit per table."""
    return (yield from _of_all(DUE, now, limit))


def polls_due(now: Instant, limit: int) -> Script[list[tuple[str, int, int]]]:
    """Table, execution and batch of steps whose poll interval has passed and whose poll has not been requested."""
    return (yield from _of_all(POLLS_DUE, now, limit))


def _of_all(statements: dict[str, str], now: Instant, limit: int) -> Script[list[tuple[str, int, int]]]:
    found = []
    for table, statement in statements.items():
        for row in (yield Fetch(statement, (now, limit))):
            found.append((table, row[0], row[1]))
    return found


def polls_unhandled(before: Instant, limit: int) -> Script[list[tuple[int, int, Kind, int]]]:
    """Batch, execution, kind and number of polls that were requested and never handled."""
    found = []
    for statement in POLLS_UNHANDLED.values():
        for row in (yield Fetch(statement, (before, limit))):
            found.append((row[0], row[1], row[2], row[3]))
    return found


def ahead(table: str, tolerated: Instant, last: Ahead | None, limit: int) -> Script[list[Ahead]]:
    """The next executions after `last` written by a clock that was ahead of `tolerated`."""
    wake_at, number = (tolerated, 0) if last is None else (last.wake_at, last.id)
    return [Ahead(*row) for row in (yield Fetch(AHEAD[table], (wake_at, number, tolerated, limit)))]

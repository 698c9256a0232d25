"""The three tables of executions, which one machine drives: read, written back, made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lucius.runbooks.execution import Execution, Kind
from lucius.runbooks.states import DISPATCHED, PENDING
from lucius.sql.database import Fetch, Row, Run, Script

TABLES: dict[Kind, str] = {
    "step": "step_executions",
    "init": "init_executions",
    "rollback": "followup_executions",
    "removal": "followup_executions",
}
ALL_TABLES = ("step_executions", "init_executions", "followup_executions")

_SHARED = (
    "step_name", "step_index", "worker_id", "function_name", "params_json", "status", "job_id", "result_json",
    "error_message", "dispatched_at", "completed_at", "is_poll_step", "poll_interval_sec", "poll_timeout_sec",
    "poll_started_at", "last_polled_at", "poll_count", "late_json", "fault", "cancel_cause", "dispatch_count",
    "retries_used", "ready", "in_flight", "retry_at", "timeout_at", "wake_at", "poll_asked",
)  # fmt: skip
_CHANGING = (
    "function_name", "params_json", "status", "job_id", "result_json", "error_message", "dispatched_at",
    "completed_at", "poll_started_at", "last_polled_at", "poll_count", "late_json", "fault", "cancel_cause",
    "dispatch_count",
    "retries_used", "ready", "in_flight", "retry_at", "timeout_at", "wake_at", "poll_asked",
)  # fmt: skip

_columns = ", ".join(f"e.{name}" for name in _SHARED)
SELECT = {
    "step_executions": (
        "SELECT 'step', e.id, e.batch_id, e.batch_member_id, e.phase_execution_id, NULL, 0, p.runbook_version,"
        f" p.phase_name, {_columns} FROM step_executions e JOIN phase_executions p ON p.id = e.phase_execution_id"
    ),
    "init_executions": (
        f"SELECT 'init', e.id, e.batch_id, NULL, NULL, NULL, 0, e.runbook_version, 'init', {_columns}"
        " FROM init_executions e"
    ),
    "followup_executions": (
        "SELECT e.kind, e.id, e.batch_id, e.batch_member_id, e.phase_execution_id, e.parent_id, e.round,"
        f" e.runbook_version, e.list_name, {_columns} FROM followup_executions e"
    ),
}
UPDATE = {
    table: f"UPDATE {table} SET {', '.join(f'{name} = ${place}' for place, name in enumerate(_CHANGING, 3))}"
    " WHERE id = $1 AND status = $2"
    for table in ALL_TABLES
}


PASS = {table: f"UPDATE {table} SET status = 'dispatched' WHERE id = $1 AND status = 'pending'" for table in ALL_TABLES}


def _insert(table: str, own: Sequence[str], unique: Sequence[str]) -> str:
    names = [*own, "batch_id", *_SHARED]
    values = ", ".join(f"${place}" for place in range(1, len(names) + 1))
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) ON CONFLICT ({', '.join(unique)}) DO NOTHING"


INSERT = {
    "step_executions": _insert(
        "step_executions",
        ("phase_execution_id", "batch_member_id", "catching_up"),
        ("phase_execution_id", "batch_member_id", "step_index"),
    ),
    "init_executions": _insert("init_executions", ("runbook_version",), ("batch_id", "runbook_version", "step_index")),
    "followup_executions": _insert(
        "followup_executions",
        ("kind", "parent_id", "round", "batch_member_id", "phase_execution_id", "runbook_version", "list_name"),
        ("kind", "parent_id", "round", "step_index"),
    ),
}


def read(row: Row) -> Execution:
    return Execution(*row)


def select(table: str, where: str, *args: Any) -> Script[list[Execution]]:
    """Executions of one table; `where` is one of ours, with `e` for the table."""
    rows = yield Fetch(f"{SELECT[table]} WHERE {where}", args)
    return [Execution(*row) for row in rows]


def by_ids(kind: Kind, ids: Sequence[int]) -> Script[list[Execution]]:
    if not ids:
        return []
    return (yield from select(TABLES[kind], "e.id = ANY($1::bigint[])", list(ids)))


class Changes:
    """Executions that a transaction works on: what each was when it was read, to write back those that have changed."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], tuple[str, Execution]] = {}
        self._passed: dict[str, list[tuple[int]]] = {}

    def hold(self, executions: Iterable[Execution]) -> list[Execution]:
        """Work on these. One that is held already is handed back as it is now, not as it was read."""
        held = []
        for execution in executions:
            key = (TABLES[execution.kind], execution.id)
            _, current = self._held.setdefault(key, (execution.status, execution))
            held.append(current)
        return held

    def pass_through(self, execution: Execution) -> None:
        """It goes from `pending` to `dispatched` and on within this transaction: both are written, one by one."""
        table = TABLES[execution.kind]
        status, held = self._held[table, execution.id]
        if status == PENDING:
            self._held[table, execution.id] = (DISPATCHED, held)
            self._passed.setdefault(table, []).append((execution.id,))

    def write(self) -> Script[None]:
        for table, ids in self._passed.items():
            yield Run(PASS[table], ids)
        self._passed.clear()
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for (table, _), (status, execution) in sorted(self._held.items(), key=lambda item: item[0]):
            values = (getattr(execution, name) for name in _CHANGING)
            rows.setdefault(table, []).append((execution.id, status, *values))
        self._held.clear()
        for table, changed in rows.items():
            yield Run(UPDATE[table], changed, at_once=True)

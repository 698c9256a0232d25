"""Tracks the executions of a transaction and writes back those that changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import compress
from operator import attrgetter, ne
from typing import Any, NamedTuple

from lucius.ports.database import Run, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.grid import shown
from lucius.runbooks.core.states import DISPATCHED, PENDING
from lucius.runbooks.store.batch_changes import ChangeLog
from lucius.runbooks.store.executions import ALL_TABLES, STEPS, TABLES
from lucius.runbooks.store.step_counts import CountChanges

CHANGING = (
    "function_name", "params_json", "status", "job_id", "result_json", "error_message", "dispatched_at",
    "completed_at", "is_poll_step", "poll_interval_sec", "poll_timeout_sec", "poll_started_at", "last_polled_at",
    "poll_count", "late_json", "fault", "cancel_cause", "dispatch_count", "retries_used", "ready", "in_flight",
    "retry_at", "timeout_at", "wake_at", "poll_asked", "has_token",
)  # fmt: skip
PASS = {table: f"UPDATE {table} SET status = 'dispatched' WHERE id = $1 AND status = 'pending'" for table in ALL_TABLES}

_state_of = attrgetter(*CHANGING)
_STATUS, _IN_FLIGHT, _RETRY_AT = (CHANGING.index(name) for name in ("status", "in_flight", "retry_at"))


@lru_cache(maxsize=256)
def update_of(table: str, differs: tuple[bool, ...]) -> str:
    """The statement for those columns of `CHANGING` that differ."""
    changed = ", ".join(f"{name} = ${place}" for place, name in enumerate(compress(CHANGING, differs), 3))
    return f"UPDATE {table} SET {changed} WHERE id = $1 AND status = $2"


UPDATE = {table: update_of(table, (True,) * len(CHANGING)) for table in ALL_TABLES}
"""Of every column. What is run names those that differ: no other is sent, and no index of others is written."""


class _Held(NamedTuple):
    status: str
    """The status in the table; the update is guarded by it."""
    state: tuple[Any, ...]
    """The execution as it was read."""
    execution: Execution


class Changes:
    """Executions are held before they are changed, so that `write` finds those that differ."""

    def __init__(self, log: ChangeLog, counts: CountChanges) -> None:
        """`log` is told of every step that looks different afterwards, `counts` of every one that is counted anew."""
        self._log = log
        self._counts = counts
        self._held: dict[tuple[str, int], _Held] = {}
        self._passed: dict[str, list[tuple[int]]] = {}

    def hold(self, executions: Iterable[Execution]) -> list[Execution]:
        """Work on these. An execution that is already held is returned in its current state, not as read."""
        held = []
        for execution in executions:
            key = (TABLES[execution.kind], execution.id)
            if key not in self._held:
                self._held[key] = _Held(execution.status, _state_of(execution), execution)
            held.append(self._held[key].execution)
        return held

    def pass_through(self, execution: Execution) -> None:
        """It goes from `pending` to `dispatched` and beyond within this transaction: both updates are written."""
        table = TABLES[execution.kind]
        held = self._held[table, execution.id]
        if held.status == PENDING:
            self._held[table, execution.id] = held._replace(status=DISPATCHED)
            self._passed.setdefault(table, []).append((execution.id,))

    def write(self) -> Script[None]:
        for table, ids in self._passed.items():
            yield Run(PASS[table], ids)
        self._passed.clear()
        rows: dict[tuple[str, tuple[bool, ...]], list[tuple[Any, ...]]] = {}
        for table, execution_id in sorted(self._held):
            held = self._held[table, execution_id]
            state = _state_of(held.execution)
            if state != held.state:
                differs = tuple(map(ne, held.state, state))
                changed = (execution_id, held.status, *compress(state, differs))
                rows.setdefault((table, differs), []).append(changed)
                if table == STEPS:
                    self._counts.moved(held.execution, held.state[_STATUS], bool(held.state[_IN_FLIGHT]))
                if table == STEPS and _cell(state) != _cell(held.state):
                    self._log.step(held.execution.batch_id, execution_id)
                else:
                    self._log.touch(held.execution.batch_id)
        self._held.clear()
        for (table, differs), many in rows.items():
            yield Run(update_of(table, differs), many, in_one_statement=True)


def _cell(state: tuple[Any, ...]) -> str:
    return shown(state[_STATUS], state[_RETRY_AT] is not None)

"""The table `init_executions`: the init steps of batches, version by version."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.making import NewExecution
from lucius.runbooks.store.columns import insert_of, values_of
from lucius.runbooks.store.conditions import IS_OPEN, UNDER_WAY
from lucius.runbooks.store.executions import CONSTANTS, INITS, SELECT, read_all


class NewInit(NewExecution, frozen=True, kw_only=True):
    runbook_version: int


_INSERT = (
    f"{insert_of(INITS, NewInit, constants=CONSTANTS)} ON CONFLICT (batch_id, runbook_version, step_index) DO NOTHING"
)
_OF_BATCH = f"{SELECT[INITS]} WHERE e.batch_id = $1 ORDER BY e.runbook_version, e.step_index"
_OF_VERSION = f"{SELECT[INITS]} WHERE e.batch_id = $1 AND e.runbook_version = $2 ORDER BY e.step_index"
_OPEN = f"{SELECT[INITS]} WHERE e.batch_id = $1 AND e.{IS_OPEN}"
_OPEN_OF_VERSION = f"{SELECT[INITS]} WHERE e.batch_id = $1 AND e.runbook_version = $2 AND e.{IS_OPEN}"
_RESULTS = f"{SELECT[INITS]} WHERE e.batch_id = $1 AND e.status = 'succeeded' ORDER BY e.runbook_version, e.step_index"
_FIRST_NOT_SUCCEEDED = (
    "SELECT id FROM init_executions WHERE batch_id = $1 AND runbook_version = $2 AND status <> 'succeeded'"
    " ORDER BY id LIMIT 1"
)
_UNDER_WAY = f"SELECT DISTINCT e.batch_id FROM init_executions e WHERE e.batch_id = ANY($1::bigint[]) AND {UNDER_WAY}"


def insert(steps: Sequence[NewInit]) -> Script[None]:
    yield Run(_INSERT, [values_of(step) for step in steps])


def of_batch(batch_id: int) -> Script[list[Execution]]:
    """In the order of versions and steps."""
    return (yield from read_all(_OF_BATCH, batch_id))


def of_version(batch_id: int, version: int) -> Script[list[Execution]]:
    return (yield from read_all(_OF_VERSION, batch_id, version))


def open_of_batch(batch_id: int) -> Script[list[Execution]]:
    return (yield from read_all(_OPEN, batch_id))


def open_of_version(batch_id: int, version: int) -> Script[list[Execution]]:
    return (yield from read_all(_OPEN_OF_VERSION, batch_id, version))


def results(batch_id: int) -> Script[list[Execution]]:
    return (yield from read_all(_RESULTS, batch_id))


def has_not_succeeded(batch_id: int, version: int) -> Script[bool]:
    """Whether a step of this version's init has not succeeded."""
    return bool((yield Fetch(_FIRST_NOT_SUCCEEDED, (batch_id, version))))


def under_way(batch_ids: Sequence[int]) -> Script[set[int]]:
    """Those of these batches with a running init step."""
    return {row[0] for row in (yield Fetch(_UNDER_WAY, [list(batch_ids)]))}

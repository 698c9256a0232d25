"""The table `followup_executions`: the steps of rollbacks and removals."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.making import NewExecution
from lucius.runbooks.core.states import Kind
from lucius.runbooks.store.columns import insert_of, values_of
from lucius.runbooks.store.conditions import IS_OPEN
from lucius.runbooks.store.executions import CONSTANTS, FOLLOWUPS, SELECT, read_all


class NewFollowup(NewExecution, frozen=True, kw_only=True):
    kind: Kind
    parent_id: int
    round: int
    member_id: int | None
    phase_id: int | None
    runbook_version: int
    list_name: str


_NAMED = {"member_id": "batch_member_id", "phase_id": "phase_execution_id"}
_NEW = insert_of(FOLLOWUPS, NewFollowup, _NAMED, CONSTANTS)
_INSERT = f"{_NEW} ON CONFLICT (kind, parent_id, round, step_index) DO NOTHING"
_OF_MEMBERS = f"{SELECT[FOLLOWUPS]} WHERE e.batch_member_id = ANY($1::bigint[]) ORDER BY e.id"
OPEN_OF_MEMBERS = f"{SELECT[FOLLOWUPS]} WHERE e.batch_member_id = ANY($1::bigint[]) AND e.{IS_OPEN} ORDER BY e.id"
OPEN_OF_INIT = f"{SELECT[FOLLOWUPS]} WHERE e.batch_id = $1 AND e.batch_member_id IS NULL AND e.{IS_OPEN} ORDER BY e.id"
CHAIN = f"{SELECT[FOLLOWUPS]} WHERE e.kind = $1 AND e.parent_id = $2 AND e.round = $3 ORDER BY e.step_index"
_REMOVAL = f"{SELECT[FOLLOWUPS]} WHERE e.kind = 'removal' AND e.parent_id = $1 ORDER BY e.id LIMIT 1"
_RESULTS = (
    f"{SELECT[FOLLOWUPS]} WHERE e.batch_member_id = ANY($1::bigint[]) AND e.status = 'succeeded'"
    " AND e.result_json IS NOT NULL ORDER BY e.id"
)
_INIT_RESULTS = (
    f"{SELECT[FOLLOWUPS]} WHERE e.batch_id = $1 AND e.batch_member_id IS NULL AND e.status = 'succeeded' ORDER BY e.id"
)
OPEN_ROLLBACK = (
    "SELECT 1 FROM followup_executions WHERE batch_id = $1 AND phase_execution_id = $2 AND kind = 'rollback'"
    f" AND {IS_OPEN} ORDER BY id LIMIT 1"
)
_ROLLING_BACK = (
    f"SELECT batch_member_id FROM followup_executions WHERE batch_id = $1 AND kind = 'rollback' AND {IS_OPEN}"
)
_COUNTS = (
    f"SELECT kind, in_flight, COUNT(*) FROM followup_executions WHERE batch_id = $1 AND {IS_OPEN}"
    " GROUP BY kind, in_flight ORDER BY kind"
)


def insert(steps: Sequence[NewFollowup]) -> Script[None]:
    yield Run(_INSERT, [values_of(step) for step in steps])


def of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from read_all(_OF_MEMBERS, list(member_ids)))


def open_of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from read_all(OPEN_OF_MEMBERS, list(member_ids)))


def open_of_init(batch_id: int) -> Script[list[Execution]]:
    """Open rollbacks of init steps."""
    return (yield from read_all(OPEN_OF_INIT, batch_id))


def chain_of(one: Execution) -> Script[list[Execution]]:
    """The whole rollback or removal that this step belongs to."""
    return (yield from read_all(CHAIN, one.kind, one.parent_id, one.round))


def has_removal(member_id: int) -> Script[bool]:
    return bool((yield from read_all(_REMOVAL, member_id)))


def results_of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from read_all(_RESULTS, list(member_ids)))


def results_of_init(batch_id: int) -> Script[list[Execution]]:
    return (yield from read_all(_INIT_RESULTS, batch_id))


def has_open_rollback(batch_id: int, phase_id: int) -> Script[bool]:
    return bool((yield Fetch(OPEN_ROLLBACK, (batch_id, phase_id))))


def rolling_back(batch_id: int) -> Script[set[int | None]]:
    """Members that are being rolled back; None stands for the batch's init."""
    return {row[0] for row in (yield Fetch(_ROLLING_BACK, [batch_id]))}


def open_counts(batch_id: int) -> Script[list[tuple[Kind, bool, int]]]:
    """Kind, whether a worker has them, and how many."""
    return [(row[0], bool(row[1]), row[2]) for row in (yield Fetch(_COUNTS, [batch_id]))]

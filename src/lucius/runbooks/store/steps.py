"""The table `step_executions`: the steps of members, phase by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.making import NewExecution
from lucius.runbooks.core.records import Head, PhaseProgress
from lucius.runbooks.store import step_counts
from lucius.runbooks.store.columns import columns_of, insert_of, values_of
from lucius.runbooks.store.conditions import IS_OPEN, NOT_SUCCEEDED
from lucius.runbooks.store.executions import CONSTANTS, SELECT, STEPS, read_all
from lucius.runbooks.store.step_counts import CountChanges


class NewStep(NewExecution, frozen=True, kw_only=True):
    phase_id: int
    member_id: int
    catching_up: bool


class StepEnding(Struct, frozen=True):
    """A step as shown in the export."""

    member_id: int
    phase_id: int
    step_index: int
    status: str
    error_message: str | None


class ToCancel(NamedTuple):
    """An open step that no worker has."""

    id: int
    phase_id: int
    step_index: int
    status: str


_NAMED = {"member_id": "batch_member_id", "phase_id": "phase_execution_id"}
_OWN = {"member_id": "s.batch_member_id", "phase_id": "s.phase_execution_id"}
INSERT = (
    f"{insert_of(STEPS, NewStep, _NAMED, CONSTANTS)}"
    " ON CONFLICT (phase_execution_id, batch_member_id, step_index) DO NOTHING"
)
_STEP = SELECT[STEPS]
_OF_MEMBERS = f"{_STEP} WHERE e.batch_member_id = ANY($1::bigint[])"
_OF_MEMBERS_IN_ORDER = f"{_OF_MEMBERS} ORDER BY e.batch_member_id, e.phase_execution_id, e.step_index"
PENDING_OF_MEMBERS = f"{_OF_MEMBERS} AND e.status = 'pending'"
RESULTS_OF_MEMBERS = (
    f"{_OF_MEMBERS} AND e.status = 'succeeded' AND e.result_json IS NOT NULL"
    " ORDER BY e.phase_execution_id, e.step_index"
)
_OPEN_OF_MEMBER = f"{_STEP} WHERE e.batch_member_id = $1 AND e.{IS_OPEN}"
_FIRST_OPEN = (
    f"{_STEP} WHERE e.phase_execution_id = $1 AND e.batch_member_id = $2 AND e.{IS_OPEN} ORDER BY e.id LIMIT 1"
)
_TO_CANCEL = "SELECT id, phase_execution_id, step_index, status FROM step_executions"
READY_TO_CANCEL = f"{_TO_CANCEL} WHERE batch_id = $1 AND ready = TRUE ORDER BY id LIMIT $2"
# The last steps first: what workers have, and so is not found, is among the first.
OPEN_TO_CANCEL = (
    f"{_TO_CANCEL} WHERE phase_execution_id = $1 AND {IS_OPEN} AND catching_up = FALSE AND in_flight = FALSE"
    " ORDER BY step_index DESC LIMIT $2"
)
CATCHING_UP_TO_CANCEL = (
    f"{_TO_CANCEL} WHERE phase_execution_id = $1 AND {IS_OPEN} AND catching_up = TRUE AND in_flight = FALSE"
    " ORDER BY phase_execution_id LIMIT $2"
)
CANCEL = (
    "UPDATE step_executions SET status = 'cancelled', cancel_cause = $2, error_message = $3, completed_at = $4,"
    " ready = FALSE, retry_at = NULL, wake_at = NULL WHERE id = $1 AND in_flight = FALSE"
)
CANCELLED_OF_BATCH = (
    f"{_STEP} WHERE p.batch_id = $1 AND e.status = 'cancelled' AND NOT EXISTS (SELECT 1 FROM batch_members m"
    " WHERE m.id = e.batch_member_id AND (m.status <> 'active' OR m.failed_at IS NOT NULL))"
)
_ENDINGS = (
    f"SELECT {columns_of(StepEnding, _OWN, 's')} FROM step_executions s WHERE s.batch_member_id = ANY($1::bigint[])"
    " ORDER BY s.batch_member_id, s.phase_execution_id, s.step_index"
)
HEADS = (
    f"SELECT {columns_of(Head, _OWN, 's')} FROM batch_members m JOIN step_executions s ON s.id = ("
    f"SELECT n.id FROM step_executions n WHERE n.batch_member_id = m.id AND n.{IS_OPEN}"
    " ORDER BY n.phase_execution_id, n.step_index LIMIT 1)"
    " WHERE m.id = ANY($1::bigint[]) AND m.move_held_at IS NULL"
)
PHASE_PROGRESS = (
    "SELECT p.id, (SELECT s.step_index FROM step_executions s WHERE s.phase_execution_id = p.id"
    f" AND s.{IS_OPEN} AND s.catching_up = FALSE ORDER BY s.step_index LIMIT 1),"
    " (SELECT s.step_index FROM step_executions s WHERE s.phase_execution_id = p.id"
    f" AND s.{IS_OPEN} AND s.catching_up = TRUE ORDER BY s.phase_execution_id LIMIT 1)"
    " FROM phase_executions p WHERE p.id = ANY($1::bigint[])"
)
READY_AT = (
    "UPDATE step_executions SET ready = TRUE WHERE phase_execution_id = $1 AND step_index = $2 AND status = 'pending'"
    f" AND {IS_OPEN} AND catching_up = FALSE AND ready = FALSE AND NOT EXISTS (SELECT 1 FROM step_executions e"
    " WHERE e.batch_member_id = step_executions.batch_member_id AND e.phase_execution_id < $1"
    f" AND e.{IS_OPEN})"
)
MAKE_READY = "UPDATE step_executions SET ready = TRUE WHERE id = $1 AND status = 'pending'"
CAUGHT_UP = (
    "UPDATE step_executions SET catching_up = FALSE"
    f" WHERE phase_execution_id = $1 AND batch_member_id = $2 AND {IS_OPEN}"
)
_CATCH_UP = "UPDATE step_executions SET catching_up = TRUE WHERE id = $1"
COUNTED_AGAINST = (
    "SELECT COUNT(*) FROM step_executions WHERE phase_execution_id = $1 AND"
    " status IN ('failed', 'poll_timeout', 'rolled_back', 'cancelled')"
    " AND (status <> 'cancelled' OR cancel_cause <> 'removed' AND batch_member_id NOT IN (SELECT m.id"
    " FROM batch_members m JOIN phase_executions p ON p.batch_id = m.batch_id"
    " WHERE p.id = $1 AND m.status = 'removed'))"
)
FAILED_MEMBERS = (
    "SELECT COUNT(DISTINCT batch_member_id) FROM step_executions WHERE phase_execution_id = $1"
    f" AND {NOT_SUCCEEDED} AND status <> 'cancelled'"
)
CANCEL_PENDING = (
    "UPDATE step_executions SET status = 'cancelled', cancel_cause = $2, error_message = $3, completed_at = $4,"
    " ready = FALSE WHERE phase_execution_id = $1 AND status = 'pending'"
)
PENDING_BY_PLACE = (
    "SELECT phase_execution_id, step_index, COUNT(*) FROM step_executions"
    f" WHERE phase_execution_id = ANY($1::bigint[]) AND status = 'pending' AND {IS_OPEN}"
    " GROUP BY phase_execution_id, step_index"
)
MADE = (
    "SELECT batch_member_id, step_index FROM step_executions WHERE phase_execution_id = $1"
    " AND batch_member_id = ANY($2::bigint[])"
)
SET_BATCH = (
    "UPDATE step_executions SET batch_id = $2 WHERE phase_execution_id = $1 AND batch_id = 0"
    " RETURNING step_index, step_name, status, in_flight"
)
_DROP_UNBEGUN = (
    "DELETE FROM step_executions WHERE phase_execution_id IN"
    " (SELECT p.id FROM phase_executions p WHERE p.batch_id = $1 AND p.status = 'skipped')"
)
BUSY_MEMBERS = (
    "SELECT DISTINCT batch_member_id FROM step_executions WHERE batch_member_id = ANY($1::bigint[])"
    " AND in_flight = TRUE"
)
_PHASES_OF_MEMBER = "SELECT DISTINCT phase_execution_id FROM step_executions WHERE batch_member_id = $1"
IN_FLIGHT = "SELECT COUNT(*) FROM step_executions WHERE batch_id = $1 AND in_flight = TRUE"
_OPEN_AT = (
    "SELECT COUNT(*) FROM step_executions WHERE phase_execution_id = $1 AND step_index = $2"
    f" AND {IS_OPEN} AND catching_up = FALSE"
)


def insert(steps: Sequence[NewStep], counts: CountChanges) -> Script[None]:
    """Steps of one phase, without those that it has: an interrupted making of them begins anew."""
    if not steps:
        return
    members = sorted({step.member_id for step in steps})
    made = {tuple(row) for row in (yield Fetch(MADE, [steps[0].phase_id, members]))}
    new = [step for step in steps if (step.member_id, step.step_index) not in made]
    for (index, name, status), count in Counter((one.step_index, one.step_name, one.status) for one in new).items():
        counts.made(steps[0].batch_id, (steps[0].phase_id, index, name), status, False, count)
    if new:
        yield Run(INSERT, [values_of(step) for step in new], in_one_statement=True)


# --- Executions ------------------------------------------------------------------------------------------------------


def of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    """In the order of members, phases and steps."""
    return (yield from read_all(_OF_MEMBERS_IN_ORDER, list(member_ids)))


def pending_of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    return (yield from read_all(PENDING_OF_MEMBERS, list(member_ids)))


def results_of_members(member_ids: Sequence[int]) -> Script[list[Execution]]:
    """Steps that succeeded with a result, in the order of phases and steps."""
    return (yield from read_all(RESULTS_OF_MEMBERS, list(member_ids)))


def open_of_member(member_id: int) -> Script[list[Execution]]:
    return (yield from read_all(_OPEN_OF_MEMBER, member_id))


def has_open(phase_id: int, member_id: int) -> Script[bool]:
    return bool((yield from read_all(_FIRST_OPEN, phase_id, member_id)))


def ready_to_cancel(batch_id: int, limit: int) -> Script[list[ToCancel]]:
    return [ToCancel(*row) for row in (yield Fetch(READY_TO_CANCEL, (batch_id, limit)))]


def open_to_cancel(phase_id: int, limit: int) -> Script[list[ToCancel]]:
    found = [ToCancel(*row) for row in (yield Fetch(OPEN_TO_CANCEL, (phase_id, limit)))]
    if len(found) < limit:
        found += [ToCancel(*row) for row in (yield Fetch(CATCHING_UP_TO_CANCEL, (phase_id, limit - len(found))))]
    return found


def cancel(ids: Sequence[int], cause: str, reason: str, now: Instant) -> Script[None]:
    """Steps that no worker has."""
    if ids:
        yield Run(CANCEL, [(step_id, cause, reason, now) for step_id in sorted(ids)], in_one_statement=True)


def cancelled_of_batch(batch_id: int) -> Script[list[Execution]]:
    """Cancelled steps of active members that have not failed."""
    return (yield from read_all(CANCELLED_OF_BATCH, batch_id))


def endings(member_ids: Sequence[int]) -> Script[list[StepEnding]]:
    return [StepEnding(*row) for row in (yield Fetch(_ENDINGS, [list(member_ids)]))]


# --- Progress of members and phases ----------------------------------------------------------------------------------


def heads(member_ids: Iterable[int]) -> Script[list[Head]]:
    """The first step of each of these members that has not ended, without those that are held."""
    ids = sorted(member_ids)
    return [Head(*row) for row in (yield Fetch(HEADS, [ids]))] if ids else []


def phase_progress(phase_ids: Sequence[int]) -> Script[list[PhaseProgress]]:
    return [PhaseProgress(*row) for row in (yield Fetch(PHASE_PROGRESS, [list(phase_ids)]))]


def make_ready_at(phase_id: int, index: int) -> Script[None]:
    """The step of every member at the barrier, unless a step of an earlier phase is still open."""
    yield Run(READY_AT, [(phase_id, index)])


def make_ready(ids: Sequence[int]) -> Script[None]:
    yield Run(MAKE_READY, [(step_id,) for step_id in ids], in_one_statement=True)


def set_caught_up(arrived: Sequence[tuple[int, int]]) -> Script[None]:
    """Phase and member."""
    yield Run(CAUGHT_UP, arrived)


def set_catching_up(ids: Sequence[int]) -> Script[None]:
    yield Run(_CATCH_UP, [(step_id,) for step_id in ids])


def count_against(phase_id: int) -> Script[int]:
    """Steps that did not succeed, without those of removed members."""
    return (yield from _count(COUNTED_AGAINST, phase_id))


def count_failed_members(phase_id: int) -> Script[int]:
    return (yield from _count(FAILED_MEMBERS, phase_id))


def count_in_flight(batch_id: int) -> Script[int]:
    return (yield from _count(IN_FLIGHT, batch_id))


def count_open_at(phase_id: int, index: int) -> Script[int]:
    """Members that have not ended this step, without those catching up."""
    return (yield from _count(_OPEN_AT, phase_id, index))


def busy_members(member_ids: Sequence[int]) -> Script[set[int]]:
    """Those of these members with a step in flight."""
    return {row[0] for row in (yield Fetch(BUSY_MEMBERS, [list(member_ids)]))}


def phases_of_member(member_id: int) -> Script[set[int]]:
    """Phases in which the member has steps."""
    return {row[0] for row in (yield Fetch(_PHASES_OF_MEMBER, [member_id]))}


def cancel_pending(
    batch_id: int, phase_ids: Sequence[int], cause: str, reason: str, now: Instant, counts: CountChanges
) -> Script[None]:
    for phase_id, index, count in (yield Fetch(PENDING_BY_PLACE, [list(phase_ids)])):
        counts.changed(batch_id, phase_id, index, "pending", "cancelled", count)
    yield Run(CANCEL_PENDING, [(phase_id, cause, reason, now) for phase_id in phase_ids])


def set_batch(phase_id: int, batch_id: int, counts: CountChanges) -> Script[None]:
    """Write the batch of steps, by which they are sent, where another scheduler left it out."""
    # Counted as they are written: the other scheduler may still be making some.
    adopted = Counter(tuple(row) for row in (yield Fetch(SET_BATCH, [phase_id, batch_id])))
    for (index, name, status, in_flight), count in adopted.items():
        counts.made(batch_id, (phase_id, index, name), status, bool(in_flight), count)


def drop_unbegun(batch_id: int) -> Script[None]:
    """Steps of phases that never began because their creator died; they would be in the way."""
    yield Run(_DROP_UNBEGUN, [(batch_id,)])
    yield from step_counts.drop_skipped(batch_id)


def _count(sql: str, *args: int) -> Script[int]:
    count: int = (yield Fetch(sql, args))[0][0]
    return count

"""What came in, applied to executions: results, poll checks, and moments that have passed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lucius.runbooks.execution import KINDS, Execution, Kind
from lucius.runbooks.messages import WorkerResult, job_ref
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import BATCH_ENDED, BECAUSE_STOPPED
from lucius.runbooks.tables import executions
from lucius.runbooks.tables.executions import ALL_TABLES, TABLES
from lucius.sql.database import Fetch, Row, Script

SWEEP_MAX = 500

_DUE = {
    table: f"SELECT id, batch_id FROM {table} WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2" for table in ALL_TABLES
}
_BATCH_OF = {table: f"SELECT id, batch_id FROM {table} WHERE id = ANY($1::bigint[])" for table in ALL_TABLES}


class Outcome(StrEnum):
    APPLIED = "APPLIED"
    DUPLICATE = "DUPLICATE"
    """This job's result was taken before."""
    STALE = "STALE"
    """The step has been sent again since, or has ended otherwise."""
    UNKNOWN = "UNKNOWN"
    """No step ever had this job."""


def parse_job_id(job_id: str) -> tuple[Kind, int] | None:
    """`step-1042-a3` names the third job of step execution 1042."""
    kind, _, rest = job_id.partition("-")
    number, _, attempt = rest.partition("-a")
    digits = number + attempt
    if kind not in KINDS or not number or not attempt or not (digits.isascii() and digits.isdigit()):
        return None
    if len(number) > 18:
        return None
    return kind, int(number)


def batches_of(wanted: Sequence[tuple[Kind, int]]) -> Script[set[int]]:
    """The batches that these executions belong to."""
    ids: dict[str, list[int]] = {}
    for kind, execution_id in wanted:
        ids.setdefault(TABLES[kind], []).append(execution_id)
    found: set[int] = set()
    for table, numbers in ids.items():
        rows: Sequence[Row] = yield Fetch(_BATCH_OF[table], [numbers])
        found.update(row[1] for row in rows)
    return found


def workers_of(job_ids: Sequence[str]) -> Script[dict[str, str]]:
    named = {job_id: name for job_id in job_ids if (name := parse_job_id(job_id)) is not None}
    workers: dict[tuple[str, int], str] = {}
    for kind in KINDS:
        ids = sorted({number for found, number in named.values() if found == kind})
        workers |= {(one.kind, one.id): one.worker_id for one in (yield from executions.by_ids(kind, ids))}
    return {job_id: workers[name] for job_id, name in named.items() if name in workers}


def take_results(turn: Turn, results: Sequence[WorkerResult]) -> Script[list[Outcome]]:
    """Apply results, in order, to batches that are locked. Every one that names a job of ours settles its message."""
    named = [parse_job_id(result.jobId) for result in results]
    held: dict[tuple[str, int], Execution] = {}
    for kind in KINDS:
        ids = sorted({one[1] for one in named if one is not None and one[0] == kind})
        for execution in turn.changes.hold((yield from executions.by_ids(kind, ids))):
            held[execution.kind, execution.id] = execution
    outcomes = []
    for result, name in zip(results, named, strict=True):
        found = held.get(name) if name is not None else None
        if found is None:
            outcomes.append(Outcome.UNKNOWN)
            continue
        turn.settled.append(job_ref(found.worker_id, result.jobId))
        outcomes.append((yield from _take_result(turn, found, result)))
    return outcomes


def _take_result(turn: Turn, execution: Execution, result: WorkerResult) -> Script[Outcome]:
    if execution.job_id != result.jobId:
        return Outcome.STALE
    # Its time was over and it waits to be tried again; that it was done after all spares the second try.
    is_late_success = result.is_success and execution.is_open and execution.retry_at is not None
    if not execution.in_flight and not is_late_success:
        return Outcome.DUPLICATE
    touch(turn, execution)
    if not execution.is_open:
        execution.in_flight, execution.timeout_at, execution.wake_at = False, None, None
        return Outcome.STALE
    if result.is_success:
        execution.take_success(turn.now, result.result)
    else:
        step = yield from turn.step(execution)
        execution.take_failure(turn.now, step, result.error.message, result.error.isThrottled)
    _stop(turn, execution)
    note_ending(turn, execution)
    return Outcome.APPLIED


def take_poll_check(turn: Turn, kind: Kind, execution_id: int, poll_count: int) -> Script[None]:
    for execution in turn.changes.hold((yield from executions.by_ids(kind, [execution_id]))):
        was_out = execution.in_flight
        if execution.poll(turn.now, poll_count):
            touch(turn, execution)
            _withdraw(turn, execution, was_out)
            note_ending(turn, execution)


def due(turn_now: int) -> Script[list[tuple[str, int, int]]]:
    """Table, execution and batch of what must happen now, oldest first; no more than a sweep takes."""
    found = []
    for table in ALL_TABLES:
        for row in (yield Fetch(_DUE[table], (turn_now, SWEEP_MAX))):
            found.append((table, row[0], row[1]))
    return found


def take_time(turn: Turn, due_ids: Sequence[tuple[str, int]]) -> Script[None]:
    """Moments have passed for these executions, of batches that are locked."""
    for table in ALL_TABLES:
        ids = sorted({number for name, number in due_ids if name == table})
        if not ids:
            continue
        found = yield from executions.select(table, "e.id = ANY($1::bigint[])", ids)
        for execution in turn.changes.hold(found):
            step = yield from turn.step(execution)
            was_out = execution.in_flight
            if execution.wake(turn.now, step):
                touch(turn, execution)
                _withdraw(turn, execution, was_out)
                _stop(turn, execution)
                note_ending(turn, execution)


def _stop(turn: Turn, execution: Execution) -> None:
    """In a batch that was cancelled, what workers had may finish, but is not sent again."""
    batch = turn.batches[execution.batch_id]
    waits = execution.is_open and not execution.in_flight and execution.kind in ("step", "init")
    if batch.status in BATCH_ENDED and waits:
        execution.cancel(turn.now, BECAUSE_STOPPED, batch.error_message or "the batch has ended")


def _withdraw(turn: Turn, execution: Execution, was_out: bool) -> None:
    """A job that nobody waits for any more need not be done, if it still waits for a worker."""
    if was_out and not execution.in_flight and execution.job_id is not None:
        turn.settled.append(job_ref(execution.worker_id, execution.job_id))


def touch(turn: Turn, execution: Execution) -> None:
    touched = turn.touch(execution.batch_id)
    if execution.member_id is not None:
        touched.members.add(execution.member_id)
    if execution.phase_id is not None:
        touched.phases.add(execution.phase_id)
    if execution.member_id is None:
        touched.is_init = True


def note_ending(turn: Turn, execution: Execution) -> None:
    if not execution.is_open:
        turn.ended.append(execution)
        turn.count(execution.status)

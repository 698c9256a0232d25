"""Applies incoming facts to executions: results, poll checks, and due times."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.database import Script
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.core.messages import Event, WorkerResult, job_ref, parse_job_id
from lucius.runbooks.core.states import BATCH_ENDED, BECAUSE_STOPPED
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import executions
from lucius.runbooks.store.executions import ALL_TABLES, Ahead

SWEEP_MAX = 500


class Outcome(StrEnum):
    APPLIED = "APPLIED"
    DUPLICATE = "DUPLICATE"
    """This job's result was applied before."""
    STALE = "STALE"
    """The step has been sent again since, or has already ended."""
    UNKNOWN = "UNKNOWN"
    """No step has this job."""
    FORGED = "FORGED"
    """The token is missing or belongs to another job."""


def executions_of(job_ids: Sequence[str]) -> Script[dict[str, Execution]]:
    """The execution of each of these jobs; jobs that match no step are left out."""
    named = {job_id: name for job_id in job_ids if (name := parse_job_id(job_id)) is not None}
    found = yield from executions.by_names(named.values())
    return {job_id: found[name] for job_id, name in named.items() if name in found}


def holds_job(tokens: JobTokens, execution: Execution, job_id: str, token: str | None) -> bool:
    """Whether this token, or its absence, authorizes a result for the job."""
    if token is None:
        return not execution.has_token
    return tokens.verifies(token, job_id, execution.worker_id, execution.batch_id)


def take_results(turn: Turn, results: Sequence[WorkerResult], needs_token: bool) -> Script[list[Outcome]]:
    """Apply results, in order, to locked batches. Every result of a known job settles its message, unless its token is
    wrong or, with `needs_token`, missing."""
    named = [parse_job_id(result.jobId) for result in results]
    read = yield from executions.by_names(name for name in named if name is not None)
    held = {(one.kind, one.id): one for one in turn.changes.hold(read.values())}
    outcomes = []
    for result, name in zip(results, named, strict=True):
        found = held.get(name) if name is not None else None
        if found is None:
            outcomes.append(Outcome.UNKNOWN)
            continue
        if (needs_token or result.token is not None) and not holds_job(turn.tokens, found, result.jobId, result.token):
            outcomes.append(Outcome.FORGED)
            continue
        turn.settled.append(job_ref(found.worker_id, result.jobId))
        outcomes.append((yield from _take_result(turn, found, result)))
    return outcomes


def _take_result(turn: Turn, execution: Execution, result: WorkerResult) -> Script[Outcome]:
    if execution.job_id != result.jobId:
        return Outcome.STALE
    # It timed out and waits for a retry; a late success makes the retry unnecessary.
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


def take_poll_check(turn: Turn, event: Event) -> Script[None]:
    for execution in turn.changes.hold((yield from _polled(event))):
        poll_count = event.poll_count
        was_out = execution.in_flight
        if execution.poll(turn.now, poll_count):
            touch(turn, execution)
            _withdraw(turn, execution, was_out)
            note_ending(turn, execution)


def _polled(event: Event) -> Script[list[Execution]]:
    """The step that a `poll-check` is about: steps and init have ids of their own, so that one without `kind` is told
    by its batch and by the step's name."""
    if event.kind is not None:
        return (yield from executions.by_ids(event.kind, [event.subject_id]))
    found = yield from executions.by_names([("step", event.subject_id), ("init", event.subject_id)])
    return [one for one in found.values() if is_about(event, one)]


def is_about(event: Event, one: Execution) -> bool:
    return one.batch_id == event.batch_id and event.step_name in ("", one.step_name)


def ahead(table: str, now: Instant, last: Ahead | None) -> Script[list[Ahead]]:
    """The next executions after `last` that a fast clock may have written, up to the limit of a sweep."""
    return (yield from executions.ahead(table, after(now, CLOCK_TOLERANCE_SECONDS), last, SWEEP_MAX))


def shorten_waits(table: str, found: Sequence[Ahead], turn: Turn) -> Script[None]:
    """Shorten the waits of these executions to the limits of their steps."""
    yield from turn.lock(sorted({one.batch_id for one in found}))
    for execution in turn.changes.hold((yield from executions.of_table(table, [one.id for one in found]))):
        execution.shorten_waits(turn.now, (yield from turn.step(execution)))


def wake_due(turn: Turn, due_ids: Sequence[tuple[str, int]]) -> Script[None]:
    """Apply due times to these executions; their batches are locked."""
    for table in ALL_TABLES:
        ids = sorted({number for name, number in due_ids if name == table})
        if not ids:
            continue
        found = yield from executions.of_table(table, ids)
        for execution in turn.changes.hold(found):
            step = yield from turn.step(execution)
            was_out = execution.in_flight
            if execution.wake(turn.now, step):
                touch(turn, execution)
                _withdraw(turn, execution, was_out)
                _stop(turn, execution)
                note_ending(turn, execution)


def _stop(turn: Turn, execution: Execution) -> None:
    """In a cancelled batch, running jobs may finish, but nothing is sent again."""
    batch = turn.batches[execution.batch_id]
    waits = execution.is_open and not execution.in_flight and execution.kind in ("step", "init")
    if batch.status in BATCH_ENDED and waits:
        execution.cancel(turn.now, BECAUSE_STOPPED, batch.error_message or "the batch has ended")


def _withdraw(turn: Turn, execution: Execution, was_out: bool) -> None:
    """Withdraw a job whose result is no longer needed, if no worker has it yet."""
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
        turn.count(execution)

"""Sends ready steps: a job for each, up to the number of free slots."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from lucius.ports.bus import Message
from lucius.ports.database import Script
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.definition.templates import UnknownVariable, finish, outputs_of
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.messages import JOBS_TOPIC, utc
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.start_rules import sending_wait
from lucius.runbooks.core.states import BATCH_ENDED
from lucius.runbooks.core.steps import step_of
from lucius.runbooks.engine.facts import note_ending, touch
from lucius.runbooks.engine.progress import SEND_MAX
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, executions, followups, inits, steps
from lucius.runbooks.store.executions import ALL_TABLES, FOLLOWUPS, SENDABLE, SENDABLE_ANYWAY, SENDABLE_PAUSED, STEPS

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


class _Correlation(msgspec.Struct):
    """What a worker sends back unchanged."""

    kind: str
    stepExecutionId: int
    isInitStep: bool
    runbookName: str
    runbookVersion: int
    token: str


class _Job(msgspec.Struct):
    jobId: str
    batchId: int
    workerId: str
    functionName: str
    parameters: msgspec.Raw
    """JSON already, inserted unchanged."""
    correlationData: _Correlation


def dispatch(turn: Turn, batch: Batch) -> Script[None]:
    """Send ready steps: of a paused batch, only polls of what workers have begun; while it waits for a window, those
    that are sent anyway; of a cancelled one, only rollbacks and removals. Call after `progress`, when every change is
    written."""
    wait = sending_wait((yield from turn.runbook(batch)), turn.now)
    yield from _note_wait(turn, batch, wait)
    sendable = SENDABLE_PAUSED if batch.is_paused else SENDABLE if wait is None else SENDABLE_ANYWAY
    for table in ALL_TABLES if batch.cancelled_at is None else (FOLLOWUPS,):
        free = SEND_MAX
        if table == STEPS:
            free = min(free, (yield from _free_slots(turn, batch)))
        if free <= 0:
            continue
        ready = (yield from _next_steps(turn, batch)) if table == STEPS else []
        known = {one.id for one in ready}
        found = yield from executions.ready(table, batch.id, free, sendable)
        ready += [one for one in turn.changes.hold(found) if one.id not in known][: free - len(ready)]
        ready.sort(key=attrgetter("id"))
        if len(ready) == SEND_MAX:
            turn.unfinished.add(batch.id)
        values = yield from _output_values(turn, batch, [one for one in ready if one.late_json is not None])
        for one in ready:
            runbook = yield from turn.runbook(batch, one.version)
            _send(turn, batch, one, step_of(runbook, one), values)


def _next_steps(turn: Turn, batch: Batch) -> Script[list[Execution]]:
    """The steps that `progress` found to be next, as if they had been read as ready."""
    ids = turn.next_steps.pop(batch.id, [])
    ready = turn.changes.hold((yield from executions.of_table(STEPS, ids))) if ids else []
    return [one for one in ready if one.ready or one.make_ready()]


def _note_wait(turn: Turn, batch: Batch, wait: Wait | None) -> Script[None]:
    """Record since when and until when the batch has steps that must wait."""
    if wait is not None and not (yield from executions.has_waiting(batch.id)):
        wait = None
    until_at = None if wait is None else wait.until_at
    if until_at == batch.wait_until:
        return
    yield from batches.set_wait(batch, until_at)
    if wait is not None:
        turn.note("steps-wait", batch, until=utc(wait.until_at), reason=wait.because)
    elif batch.status not in BATCH_ENDED:
        turn.note("steps-continue", batch)


def _free_slots(turn: Turn, batch: Batch) -> Script[int]:
    runbook = yield from turn.runbook(batch)
    if runbook.max_parallel is None:
        return SEND_MAX
    return runbook.max_parallel - (yield from steps.count_in_flight(batch.id))


def _send(turn: Turn, batch: Batch, one: Execution, step: Step, values: dict[int | None, dict[str, Any]]) -> None:
    # A grant may have been withdrawn since the runbook was published.
    ungranted = turn.grants.worker_refusal(batch.runbook_name, one.worker_id)
    if ungranted is not None:
        _refuse(turn, one, f"the job cannot be sent: {ungranted}")
        return
    try:
        if one.fault is not None:
            raise UnknownVariable((), one.fault)
        if one.late_json is not None:
            late, params = _decode(one.late_json), _decode(one.params_json)
            function, filled = finish(one.function_name, params, late, values.get(one.member_id, {}))
            if "\0" in function:
                raise UnknownVariable((), "the function name contains a NUL character from an output variable")
            one.function_name, one.params_json, one.late_json = function, _encode(filled).decode(), None
    except UnknownVariable as error:
        _refuse(turn, one, str(error))
        return
    one.send(turn.now, step)
    message = job_message(turn, batch, one)
    refusal = turn.outbox.refusal(message)
    if refusal is not None:
        _refuse(turn, one, f"the job cannot be sent: {refusal}")
        return
    turn.messages.append(message)
    turn.count(one)


def _refuse(turn: Turn, one: Execution, reason: str) -> None:
    turn.changes.pass_through(one)
    one.refuse(turn.now, reason)
    touch(turn, one)
    note_ending(turn, one)


def job_message(turn: Turn, batch: Batch, one: Execution) -> Message:
    """The job message of a step that has been sent."""
    assert one.job_id is not None
    correlation = _Correlation(
        one.kind, one.id, one.kind == "init", batch.runbook_name, one.version,
        turn.tokens.mint(one.job_id, one.worker_id, batch.id),
    )  # fmt: skip
    parameters = msgspec.Raw(one.params_json.encode())
    body = _encode(_Job(one.job_id, batch.id, one.worker_id, one.function_name, parameters, correlation))
    return Message(id=one.job_id, topic=JOBS_TOPIC, body=body, properties={"WorkerId": one.worker_id})


# --- Output variables ------------------------------------------------------------------------------------------------


def _output_values(turn: Turn, batch: Batch, waiting: Sequence[Execution]) -> Script[dict[int | None, dict[str, Any]]]:
    """Outputs of earlier steps by member; under None, those of init."""
    values: dict[int | None, dict[str, Any]] = {}
    members = sorted({one.member_id for one in waiting if one.member_id is not None})
    found: list[Execution] = []
    if members:
        found += yield from steps.results_of_members(members)
        found += yield from followups.results_of_members(members)
    if any(one.member_id is None for one in waiting):
        found += yield from inits.results(batch.id)
        found += yield from followups.results_of_init(batch.id)
    runbooks: dict[int, Runbook] = {}
    for one in found:
        if one.version not in runbooks:
            runbooks[one.version] = yield from turn.runbook(batch, one.version)
        step = step_of(runbooks[one.version], one)
        if step.output_params and one.result_json is not None:
            values.setdefault(one.member_id, {}).update(outputs_of(step, _decode(one.result_json)))
    return values

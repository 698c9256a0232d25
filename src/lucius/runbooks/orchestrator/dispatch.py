"""Sending what is ready: a job for each, as many as there are free slots for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lucius.ports.bus import Message
from lucius.runbooks.definition.model import Runbook, Step
from lucius.runbooks.definition.templates import UnknownVariable, finish, outputs_of
from lucius.runbooks.execution import Execution
from lucius.runbooks.messages import JOBS_TOPIC
from lucius.runbooks.orchestrator.facts import note_ending, touch
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.tables import executions
from lucius.runbooks.tables.batches import Batch
from lucius.runbooks.tables.definitions import step_of
from lucius.runbooks.tables.executions import ALL_TABLES
from lucius.sql.database import Fetch, Script

SEND_MAX = 500
"""Jobs that one turn sends of a batch; the rest are for the next."""

_IN_FLIGHT = "SELECT COUNT(*) FROM step_executions WHERE batch_id = $1 AND in_flight = TRUE"
_READY = "e.batch_id = $1 AND e.ready = TRUE ORDER BY e.id LIMIT $2"
_RESULTS = (
    "e.batch_member_id = ANY($1::bigint[]) AND e.status = 'succeeded' AND e.result_json IS NOT NULL"
    " ORDER BY e.phase_execution_id, e.step_index"
)
_INIT_RESULTS = "e.batch_id = $1 AND e.status = 'succeeded' ORDER BY e.runbook_version, e.step_index"
_CHAIN_RESULTS = (
    "e.batch_member_id = ANY($1::bigint[]) AND e.status = 'succeeded' AND e.result_json IS NOT NULL ORDER BY e.id"
)
_INIT_CHAIN_RESULTS = "e.batch_id = $1 AND e.batch_member_id IS NULL AND e.status = 'succeeded' ORDER BY e.id"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


def dispatch(turn: Turn, batch: Batch) -> Script[None]:
    """Send what is ready. After `progress`, when every change is written."""
    for table in ALL_TABLES:
        room = SEND_MAX
        if table == "step_executions":
            room = min(room, (yield from _free_slots(turn, batch)))
        if room <= 0:
            continue
        ready = turn.changes.hold((yield from executions.select(table, _READY, batch.id, room)))
        if len(ready) == SEND_MAX:
            turn.unfinished.add(batch.id)
        values = yield from _output_values(turn, batch, [one for one in ready if one.late_json is not None])
        for one in ready:
            runbook = yield from turn.runbook(batch, one.version)
            _send(turn, batch, one, step_of(runbook, one), values)


def _free_slots(turn: Turn, batch: Batch) -> Script[int]:
    runbook = yield from turn.runbook(batch)
    if runbook.max_parallel is None:
        return SEND_MAX
    used: int = (yield Fetch(_IN_FLIGHT, [batch.id]))[0][0]
    return runbook.max_parallel - used


def _send(turn: Turn, batch: Batch, one: Execution, step: Step, values: dict[int | None, dict[str, Any]]) -> None:
    try:
        if one.fault is not None:
            raise UnknownVariable((), one.fault)
        if one.late_json is not None:
            late, params = _decode(one.late_json), _decode(one.params_json)
            function, filled = finish(one.function_name, params, late, values.get(one.member_id, {}))
            if "\0" in function:
                raise UnknownVariable((), "the function's name holds a NUL character, from an output variable")
            one.function_name, one.params_json, one.late_json = function, _encode(filled).decode(), None
    except UnknownVariable as error:
        _refuse(turn, one, str(error))
        return
    one.send(turn.now, step)
    message = _job(batch, one)
    refusal = turn.outbox.refusal(message)
    if refusal is not None:
        _refuse(turn, one, f"the job cannot be sent: {refusal}")
        return
    turn.messages.append(message)
    turn.count(one.status)


def _refuse(turn: Turn, one: Execution, reason: str) -> None:
    turn.changes.pass_through(one)
    one.refuse(turn.now, reason)
    touch(turn, one)
    note_ending(turn, one)


def _job(batch: Batch, one: Execution) -> Message:
    assert one.job_id is not None
    head = _encode({
        "jobId": one.job_id, "batchId": batch.id, "workerId": one.worker_id, "functionName": one.function_name,
    })  # fmt: skip
    correlation = _encode({
        "kind": one.kind, "stepExecutionId": one.id, "isInitStep": one.kind == "init",
        "runbookName": batch.runbook_name, "runbookVersion": one.version,
    })  # fmt: skip
    # The parameters are JSON already: they are laid in as they are.
    body = head[:-1] + b',"parameters":' + one.params_json.encode() + b',"correlationData":' + correlation + b"}"
    return Message(id=one.job_id, topic=JOBS_TOPIC, body=body, properties={"WorkerId": one.worker_id})


# --- Output variables ------------------------------------------------------------------------------------------------


def _output_values(turn: Turn, batch: Batch, wanting: Sequence[Execution]) -> Script[dict[int | None, dict[str, Any]]]:
    """What earlier steps have given, by member; under None, what init's have."""
    values: dict[int | None, dict[str, Any]] = {}
    members = sorted({one.member_id for one in wanting if one.member_id is not None})
    found: list[Execution] = []
    if members:
        found += yield from executions.select("step_executions", _RESULTS, members)
        found += yield from executions.select("followup_executions", _CHAIN_RESULTS, members)
    if any(one.member_id is None for one in wanting):
        found += yield from executions.select("init_executions", _INIT_RESULTS, batch.id)
        found += yield from executions.select("followup_executions", _INIT_CHAIN_RESULTS, batch.id)
    runbooks: dict[int, Runbook] = {}
    for one in found:
        if one.version not in runbooks:
            runbooks[one.version] = yield from turn.runbook(batch, one.version)
        step = step_of(runbooks[one.version], one)
        if step.output_params and one.result_json is not None:
            values.setdefault(one.member_id, {}).update(outputs_of(step, _decode(one.result_json)))
    return values

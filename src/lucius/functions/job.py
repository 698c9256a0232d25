"""A job as received, and its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lucius.functions.errors import ResultInvalid, message_of, type_of

RESULT_BYTES_MAX = 262_144
FIELDS = ("jobId", "functionName", "parameters", "batchId", "workerId", "correlationData")
FIELDS_FOLDED = {name.lower(): name for name in FIELDS}

Result = dict[str, Any]


class JobInvalid(Exception):
    """A message that is not a job. `job_id` is set if it could be read."""

    def __init__(self, message: str, job_id: str | None = None, correlation_data: Any = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.correlation_data = correlation_data


class StillRunning(dict[str, Any]):
    """Returned by a function whose work continues elsewhere: the step is polled, and the function called again."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__({**(fields or {}), "complete": False})


@dataclass(frozen=True, slots=True)
class Job:
    job_id: str
    function_name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    batch_id: Any = None
    worker_id: Any = None
    correlation_data: Any = field(default=None, repr=False)
    """`kind`, `stepExecutionId`, `isInitStep`, `runbookName`, `runbookVersion` and `token`; returned unchanged."""

    @property
    def step_key(self) -> str:
        """The same for every dispatch of a step (including retries and polls); `job_id` differs by dispatch."""
        step, _, dispatch = self.job_id.rpartition("-a")
        return step if step and dispatch.isdigit() else self.job_id

    @classmethod
    def read(cls, message: Any) -> Job:
        """Field names in any letter case. Raises `JobInvalid`."""
        if not isinstance(message, dict):
            raise JobInvalid(f"a job must be a JSON object, not {json_type(message)}")
        if "jobId" not in message or "functionName" not in message or "parameters" not in message:
            message = {FIELDS_FOLDED.get(str(name).lower(), name): value for name, value in message.items()}
        job_id, correlation = message.get("jobId"), message.get("correlationData")
        if not isinstance(job_id, str) or not job_id:
            raise JobInvalid("a job has no jobId, so it cannot be answered")
        function_name, parameters = message.get("functionName"), message.get("parameters")
        if not isinstance(function_name, str) or not function_name:
            raise JobInvalid("the job has no functionName", job_id, correlation)
        if parameters is None:
            parameters = {}
        if not isinstance(parameters, dict):
            raise JobInvalid(f"parameters must be an object, not {json_type(parameters)}", job_id, correlation)
        return cls(job_id, function_name, parameters, message.get("batchId"), message.get("workerId"), correlation)


def success(job_id: str, correlation_data: Any, value: Any, duration_ms: int) -> Result:
    """Raises `ResultInvalid` if the value cannot be sent."""
    try:
        size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultInvalid(f"the function's return value is not JSON: {type(error).__name__}") from error
    if size > RESULT_BYTES_MAX:
        what_to_do = "store it elsewhere and return its location"
        raise ResultInvalid(f"the function's return value has {size} bytes, more than {RESULT_BYTES_MAX}: {what_to_do}")
    return _result(job_id, correlation_data, "Success", value, None, duration_ms)


def failure(
    job_id: str, correlation_data: Any, error: BaseException, duration_ms: int, tries: int, throttled: bool = False
) -> Result:
    error_fields = {"message": message_of(error), "type": type_of(error), "isThrottled": throttled, "attempts": tries}
    return _result(job_id, correlation_data, "Failure", None, error_fields, duration_ms)


def outcome_of(result: Result) -> str:
    """One word for the log."""
    if result["status"] == "Failure":
        return "Throttled" if result["error"]["isThrottled"] else "Failure"
    value = result["result"]
    return "StillRunning" if isinstance(value, dict) and value.get("complete") is False else "Success"


def json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "Null" if value is None else "Boolean"
    for kind, name in ((dict, "Object"), (str, "String"), ((int, float), "Number"), ((list, tuple), "Array")):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def _result(job_id: str, correlation_data: Any, status: str, value: Any, error: Any, duration_ms: int) -> Result:
    return {
        "jobId": job_id,
        "status": status,
        "resultType": None if error else json_type(value),
        "result": value,
        "error": error,
        "durationMs": duration_ms,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "correlationData": correlation_data,
    }

"""What becomes of a call: parameters, results, failures, throttling. No server: `worker.call` gives the result."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lucius.functions import Fail, FunctionWorker, Job, StillRunning, Throttled, WorkerSettings
from lucius.functions.job import JobInvalid

SOON = WorkerSettings(throttle_base_seconds=0.01)
worker = FunctionWorker("exchange")


@worker.function("Plain")
def plain(UserPrincipalName: str, SizeMB: int = 5) -> dict[str, Any]:
    return {"upn": UserPrincipalName, "size": SizeMB}


@worker.function("Awaited")
async def awaited(UserPrincipalName: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"upn": UserPrincipalName}


@worker.function("Quick", quick=True)
def quick(UserPrincipalName: str) -> dict[str, Any]:
    return {"upn": UserPrincipalName}


@worker.function("Two-Cases")
def two_cases(name: str, Name: str = "-") -> list[str]:
    return [name, Name]


@worker.function("Any")
def anything(known: int, **rest: Any) -> dict[str, Any]:
    return {"known": known, "rest": rest}


@worker.function("By-Name")
def by_name(job: Any) -> dict[str, Any]:
    return {"step": job.step_key, "batch": job.batch_id}


@worker.function("By-Annotation", quick=True)
def by_annotation(Job: str, asked: Job | None = None) -> dict[str, Any]:
    assert asked is not None
    return {"Job": Job, "kind": asked.correlation_data["kind"]}


@worker.function("Echo", quick=True)
def echo(value: Any = None) -> Any:
    return value


@pytest.mark.parametrize("function", ["Plain", "Awaited", "Quick"])
async def test_a_call_gives_the_result_message_of_the_contract(function: str) -> None:
    correlation = {"kind": "step", "stepExecutionId": 1}
    result = await worker.call(function, {"UserPrincipalName": "a@b"}, job_id="step-1-a2", correlation_data=correlation)
    assert list(result) == [
        "jobId", "status", "resultType", "result", "error", "durationMs", "timestamp", "correlationData",
    ]  # fmt: skip
    assert (result["jobId"], result["status"], result["resultType"]) == ("step-1-a2", "Success", "Object")
    assert result["result"]["upn"] == "a@b"
    assert result["error"] is None
    assert result["correlationData"] == correlation
    assert isinstance(result["durationMs"], int)
    assert result["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("function", "parameters", "value"),
    [
        ("Plain", {"userprincipalname": "a", "SIZEMB": 1}, {"upn": "a", "size": 1}),
        ("Plain", {"UserPrincipalName": "a"}, {"upn": "a", "size": 5}),
        ("Two-Cases", {"name": "a", "Name": "b"}, ["a", "b"]),
        ("Two-Cases", {"Name": "b", "NAME": "a"}, ["a", "b"]),
        ("Any", {"KNOWN": 1, "Other": 2}, {"known": 1, "rest": {"Other": 2}}),
    ],
)
async def test_parameters_match_exactly_first_and_else_in_any_letter_case(
    function: str, parameters: dict[str, Any], value: Any
) -> None:
    result = await worker.call(function, parameters)
    assert result["result"] == value, result["error"]


@pytest.mark.parametrize(
    ("function", "parameters", "words"),
    [
        ("Plain", {}, ["Plain needs UserPrincipalName", "it has none"]),
        ("Plain", {"UserPrincipalName": "a", "Colour": "secret-value"}, ["no parameter Colour", "SizeMB"]),
        ("Plain", {"UserPrincipalName": "a", "userprincipalname": "secret-value"}, ["no parameter userprincipalname"]),
        ("Two-Cases", {"NAME": "secret-value"}, ["no parameter NAME"]),
        ("By-Name", {"job": "secret-value"}, ["no parameter job"]),
        ("Any", {"known": 1, "Known": 2}, ["no parameter Known"]),
    ],
)
async def test_parameters_that_do_not_fit_are_a_clear_failure(
    function: str, parameters: dict[str, Any], words: list[str]
) -> None:
    result = await worker.call(function, parameters)
    error = result["error"]
    assert (result["status"], error["type"], error["isThrottled"]) == ("Failure", "ParametersInvalid", False)
    assert (result["result"], result["resultType"]) == (None, None)
    assert all(word in error["message"] for word in words), error["message"]
    assert "secret-value" not in error["message"]


async def test_an_unknown_function_is_a_failure_that_names_those_there_are() -> None:
    result = await worker.call("Palin")
    assert result["error"]["type"] == "FunctionUnknown"
    assert "'Palin'" in result["error"]["message"]
    assert "Awaited, By-Annotation, By-Name" in result["error"]["message"]


async def test_the_job_goes_to_a_parameter_of_its_name_or_annotation() -> None:
    named = await worker.call("By-Name", job_id="rollback-12-a3", batch_id=9)
    assert named["result"] == {"step": "rollback-12", "batch": 9}
    annotated = await worker.call("By-Annotation", {"Job": "plumber"}, correlation_data={"kind": "init"})
    assert annotated["result"] == {"Job": "plumber", "kind": "init"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "Null"), (True, "Boolean"), (1.5, "Number"), ("a", "String"), ([1], "Array"), ({"a": 1}, "Object")],
)
async def test_any_json_may_be_returned(value: Any, kind: str) -> None:
    result = await worker.call("Echo", {"value": value})
    assert (result["status"], result["result"], result["resultType"]) == ("Success", value, kind)


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1, 2}}, "\ud800", "x" * 300_000])
async def test_what_cannot_travel_is_a_failure(value: Any) -> None:
    result = await worker.call("Echo", {"value": value})
    assert (result["status"], result["error"]["type"]) == ("Failure", "ResultInvalid")
    assert result["error"]["message"].startswith("the function's return value")


async def test_still_running_says_that_it_is_not_complete() -> None:
    result = await worker.call("Echo", {"value": StillRunning({"percentComplete": 40, "complete": True})})
    assert (result["status"], result["result"]) == ("Success", {"percentComplete": 40, "complete": False})


def failing(error: BaseException, *, kind: str) -> tuple[FunctionWorker, list[float]]:
    """A worker whose function `Fails` raises the error each time; when it was called."""
    failed, calls = FunctionWorker("failing"), []

    def fails() -> None:
        calls.append(time.monotonic())
        raise error

    async def fails_awaited() -> None:
        fails()

    failed.function("Fails", quick=kind == "quick")(fails_awaited if kind == "async" else fails)
    return failed, calls


KINDS = pytest.mark.parametrize("kind", ["thread", "async", "quick"])


@KINDS
@pytest.mark.parametrize(
    ("error", "message", "type_name"),
    [
        (ValueError("first\nsecond"), "first", "ValueError"),
        (Fail("no such mailbox", type="MailboxNotFound"), "no such mailbox", "MailboxNotFound"),
        (KeyError(), "KeyError", "KeyError"),
        (RuntimeError("x" * 5_000), "x" * 2_000, "RuntimeError"),
        (RuntimeError("half \ud800 pair"), "half ? pair", "RuntimeError"),
        (asyncio.CancelledError("by itself"), "by itself", "CancelledError"),
    ],
)
async def test_an_exception_is_a_failure_after_one_try(
    kind: str, error: BaseException, message: str, type_name: str
) -> None:
    failed, calls = failing(error, kind=kind)
    result = await failed.call("Fails")
    assert result["error"] == {"message": message, "type": type_name, "isThrottled": False, "attempts": 1}
    assert len(calls) == 1


@KINDS
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_a_function_cannot_end_the_worker(kind: str, error: BaseException) -> None:
    failed, _ = failing(error, kind=kind)
    result = await failed.call("Fails")
    assert result["status"] == "Failure"
    assert (type(error).__name__ in result["error"]["message"]) or result["error"]["type"] == type(error).__name__


@KINDS
async def test_a_throttled_function_is_tried_again_and_then_reported(kind: str) -> None:
    failed, calls = failing(Throttled("slow down"), kind=kind)
    result = await failed.call("Fails", settings=WorkerSettings(throttle_base_seconds=0.1))
    assert result["error"] == {"message": "slow down", "type": "Throttled", "isThrottled": True, "attempts": 3}
    first, second, third = calls
    assert second - first >= 0.05
    assert third - second >= 0.1


@KINDS
async def test_a_throttled_function_that_recovers_succeeds(kind: str) -> None:
    recovers, calls = FunctionWorker("recovers"), []

    def function() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise Throttled(retry_after_seconds=0.01)
        return len(calls)

    async def function_awaited() -> int:
        return function()

    recovers.function("Work", quick=kind == "quick")(function_awaited if kind == "async" else function)
    result = await recovers.call("Work", settings=SOON)
    assert (result["status"], result["result"]) == ("Success", 3)


async def test_a_wait_beyond_the_cap_is_left_to_the_orchestrator_at_once() -> None:
    failed, calls = failing(Throttled("much later", retry_after_seconds=21), kind="async")
    result = await failed.call("Fails", settings=SOON)
    assert (result["error"]["isThrottled"], result["error"]["attempts"], len(calls)) == (True, 1, 1)


async def test_the_cap_holds_over_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.functions.run.THROTTLED_SECONDS_MAX", 0.5)
    failed, calls = failing(Throttled(retry_after_seconds=0.2), kind="async")
    result = await failed.call("Fails", settings=WorkerSettings(throttle_tries=20))
    assert result["error"]["isThrottled"]
    assert 1 <= len(calls) <= 3
    assert calls[-1] - calls[0] <= 0.5 + 0.3


def test_a_function_that_cannot_be_called_by_name_is_refused() -> None:
    refusing = FunctionWorker("refusing")
    with pytest.raises(ValueError, match="first cannot be passed by name"):
        refusing.function("A")(lambda first, /: None)
    with pytest.raises(ValueError, match="rest cannot be passed by name"):
        refusing.function("A")(lambda *rest: None)

    async def awaited_function() -> None: ...

    def greedy(one: Job, other: Job) -> None: ...

    with pytest.raises(ValueError, match="quick functions must be sync"):
        refusing.function("A", quick=True)(awaited_function)
    with pytest.raises(ValueError, match="takes the job more than once"):
        refusing.function("A")(greedy)
    refusing.function("A")(lambda: None)
    with pytest.raises(ValueError, match="already has a function A"):
        refusing.function("A")(lambda: None)
    with pytest.raises(ValueError, match="not a worker id"):
        FunctionWorker("two words")


def test_a_job_is_read_in_any_letter_case() -> None:
    read = Job.read({"JobID": "step-1-a1", "FUNCTIONNAME": "F", "Parameters": {"A": 1}, "correlationdata": {"kind": 1}})
    assert (read.job_id, read.function_name, read.parameters) == ("step-1-a1", "F", {"A": 1})
    assert read.correlation_data == {"kind": 1}
    assert "'A'" not in repr(read)
    assert Job.read({"jobId": "j", "functionName": "F"}).parameters == {}


@pytest.mark.parametrize(
    ("message", "job_id"),
    [
        ([], None),
        ({"functionName": "F"}, None),
        ({"jobId": 5, "functionName": "F"}, None),
        ({"jobId": "j", "parameters": {}}, "j"),
        ({"jobId": "j", "functionName": "F", "parameters": [1]}, "j"),
    ],
)
def test_a_message_that_is_no_job_says_so(message: Any, job_id: str | None) -> None:
    with pytest.raises(JobInvalid) as caught:
        Job.read(message)
    assert caught.value.job_id == job_id

"""What becomes of a directive: the ACK decides whether it is worked on, the function what the RESULT says."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import pytest
from tests.platform.played import (
    AWAY,
    CANCEL,
    DUPLICATE,
    HANG_UP,
    STALE,
    TERMINAL,
    Answer,
    PlayedOrchestrator,
    serve_until,
    service_of,
    settings_for,
)

from lucius.platform import Attempt, Directive, NonRetryable, RateLimited, Result, Retryable, Workspace
from lucius.platform import worker as worker_module
from lucius.platform.errors import WorkStopped


class Worked:
    """A step function that remembers what it was called for."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def __call__(self, directive: Directive, workspace: Workspace) -> dict[str, Any]:
        self.jobs.append(directive.job_id)
        return {"job": directive.job_id}


async def test_the_ack_comes_before_the_work_and_the_result_after_it(played: PlayedOrchestrator) -> None:
    seen: list[list[str]] = []

    def work(directive: Directive, workspace: Workspace) -> Result:
        seen.append(played.kinds("job-1"))
        return Result({"pages": 2}, output=workspace.write("text/output.txt", "whole"))

    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert seen == [["ACK"]]
    assert played.kinds("job-1") == ["ACK", "RESULT"]
    (result,) = played.results()
    assert result.pop("completed_at")
    assert result == {
        **{"jobId": "job-1", "stepId": "work", "tenant_id": "acme", "attempt_no": 1, "lease_id": "lease-1"},
        **{"status": "SUCCEEDED", "artifacts": {"pages": 2}, "output_ref": (played.files / "output-1.txt").as_uri()},
    }
    assert (played.files / "output-1.txt").read_text() == "whole"
    assert all(pull["authorization"] == "Bearer a-key-that-nobody-may-find" for pull in played.pulls)


async def test_only_the_last_step_writes_the_output(played: PlayedOrchestrator) -> None:
    def work(directive: Directive, workspace: Workspace) -> Result:
        return Result(output=workspace.write("output.txt", "whole"))

    played.send(played.directive(1, last_step=False))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert "output_ref" not in played.results()[0]
    assert not (played.files / "output-1.txt").exists()


@pytest.mark.parametrize("answer", [STALE, TERMINAL, (401, {"code": "UNAUTHENTICATED"}), DUPLICATE], ids=str)
async def test_work_is_not_begun_where_the_ack_says_it_is_not_ours(played: PlayedOrchestrator, answer: Answer) -> None:
    worked = Worked()
    played.faults["ACK"] = [answer]
    played.send(played.directive(1))
    await serve_until(service_of(worked), settings_for(played), lambda: played.of_kind("ACK"))
    played.send(played.directive(2))
    await serve_until(service_of(worked), settings_for(played), lambda: played.results("job-2"))
    assert worked.jobs == ["job-2"]
    assert played.kinds("job-1") == ["ACK"]


@pytest.mark.parametrize("fault", [HANG_UP, AWAY, (502, b"<html>"), (200, b"<html>")], ids=str)
async def test_work_is_begun_where_the_answer_to_our_own_ack_was_lost(
    played: PlayedOrchestrator, fault: Answer
) -> None:
    """A repeated ACK that is a duplicate is most likely a duplicate of ours."""
    worked = Worked()
    played.faults["ACK"] = [fault, DUPLICATE]
    played.send(played.directive(1))
    await serve_until(service_of(worked), settings_for(played), played.results)
    assert worked.jobs == ["job-1"]
    assert played.kinds("job-1") == ["ACK", "ACK", "RESULT"]


async def test_an_ack_that_is_never_answered_leaves_the_directive_to_come_again(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "ACK_SECONDS_MAX", 0.6)
    worked = Worked()
    played.always["ACK"] = AWAY

    def mended() -> list[dict[str, Any]]:
        acks = played.of_kind("ACK")
        if played.always and acks and time.monotonic() - acks[0].at > 1.5:
            played.always.clear()
            played.send(played.directive(1))
        return played.results()

    played.send(played.directive(1))
    await serve_until(service_of(worked), settings_for(played), mended)
    assert worked.jobs == ["job-1"]


async def test_a_cancelled_job_is_not_even_begun(played: PlayedOrchestrator) -> None:
    worked = Worked()
    played.faults["ACK"] = [CANCEL]
    played.send(played.directive(1))
    await serve_until(service_of(worked), settings_for(played), played.results)
    assert worked.jobs == []
    assert (played.results()[0]["failure_class"], played.results()[0]["error"]["code"]) == (
        "NON_RETRYABLE",
        "CANCELLED",
    )


async def test_a_directive_delivered_again_is_worked_on_once(played: PlayedOrchestrator) -> None:
    worked: list[str] = []
    let_go = threading.Event()

    def work(directive: Directive, workspace: Workspace) -> None:
        worked.append(directive.job_id)
        assert let_go.wait(30)

    def delivered_again() -> bool:
        """While it is in work, and once more when all is said."""
        if worked and len(played.pulls) > 3 and not played.directives and not let_go.is_set():
            played.directives = [played.directive(1)] * 2
            let_go.set()
        return let_go.is_set() and len(played.of_kind("ACK")) >= 2

    played.send(*[played.directive(1)] * 3)
    await serve_until(service_of(work), settings_for(played), delivered_again)
    assert worked == ["job-1"]
    # An ACK takes it off the bus, and nothing else happens.
    assert len(played.results()) == 1


async def test_a_message_that_is_no_directive_harms_nobody(played: PlayedOrchestrator) -> None:
    worked = Worked()
    played.send({"service": "played", "jobId": "job-0"}, None, [], "text", 7)
    played.send(played.directive(2, attempt_no=2**80), played.directive(3, lease_seconds=float("inf")))
    played.send(played.directive(4, lease_id="\ud800"), played.directive(1))
    await serve_until(service_of(worked), settings_for(played, concurrency=20), played.results)
    assert worked.jobs == ["job-1"]
    assert {one.job for one in played.calls} == {"job-1"}


async def test_a_step_type_that_is_not_ours_fails_for_good(played: PlayedOrchestrator) -> None:
    played.send(played.directive(1, step_type="TELEPATHY"))
    await serve_until(service_of(Worked()), settings_for(played), played.results)
    error = played.results()[0]["error"]
    assert error["code"] == "STEP_TYPE_UNKNOWN"
    assert "TELEPATHY" in error["message"]
    assert "WORK" in error["message"]


FAILURES: list[tuple[BaseException, str, str, str]] = [
    (NonRetryable("BAD_INPUT", "no text in it"), "NON_RETRYABLE", "BAD_INPUT", "no text in it"),
    (Retryable("BUSY", "not now"), "RETRYABLE", "BUSY", "not now"),
    (RateLimited("QUOTA", "used up", 7), "RATE_LIMITED", "QUOTA", "used up"),
    (FileNotFoundError(2, "No such file or directory"), "RETRYABLE", "IO_ERROR", "No such file or directory"),
    (TimeoutError(), "RETRYABLE", "IO_ERROR", "TimeoutError"),
    (ZeroDivisionError("by zero"), "RETRYABLE", "SERVICE_DEFECT", "ZeroDivisionError: by zero"),
    (ValueError("a name \udc80 of no encoding"), "RETRYABLE", "SERVICE_DEFECT", "a name ? of no encoding"),
    (SystemExit(3), "RETRYABLE", "SERVICE_DEFECT", "SystemExit: 3"),
    (KeyboardInterrupt(), "RETRYABLE", "SERVICE_DEFECT", "KeyboardInterrupt"),
    (WorkStopped("by its own hand"), "RETRYABLE", "SERVICE_DEFECT", "WorkStopped"),
    (NonRetryable("C" * 500, "m" * 5_000), "NON_RETRYABLE", "C" * 128, "m" * 1_000),
    (NonRetryable("", ""), "NON_RETRYABLE", "FAILED", ""),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_whatever_the_function_raises_is_told_as_a_failure(
    played: PlayedOrchestrator, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(directive: Directive, workspace: Workspace) -> None:
        raise FAILURES[int(directive.job_id.removeprefix("job-"))][0]

    async def raising_async(directive: Directive, workspace: Workspace) -> None:
        raising(directive, workspace)

    # The tests' own processes cannot tell each other of a log that holds half a surrogate pair.
    caplog.set_level(logging.CRITICAL, "lucius.platform")
    played.send(*(played.directive(number) for number in range(len(FAILURES))))
    service = service_of(raising_async if is_async else raising)
    await serve_until(service, settings_for(played), lambda: len(played.results()) == len(FAILURES))
    for number, (_, failure_class, code, message) in enumerate(FAILURES):
        (result,) = played.results(f"job-{number}")
        assert (result["status"], result["failure_class"]) == ("FAILED", failure_class)
        assert result["error"]["code"] == code
        assert message in result["error"]["message"]
        assert result.get("retry_after") == (7.0 if code == "QUOTA" else None)


async def test_a_task_that_wants_to_end_the_process_ends_nobodys_work(played: PlayedOrchestrator) -> None:
    """It is not even the step function itself that raises: the loop of all async steps must go on."""

    async def leave() -> None:
        sys.exit(1)

    async def work(directive: Directive, workspace: Workspace) -> dict[str, Any]:
        if directive.job_id == "job-1":
            task = asyncio.create_task(leave())
            await asyncio.wait({task})
            assert isinstance(task.exception(), SystemExit)
        return {"done": True}

    played.send(played.directive(1), played.directive(2))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == 2)
    assert {result["status"] for result in played.results()} == {"SUCCEEDED"}


RETURNED: list[tuple[Any, str]] = [
    (object(), "ARTIFACTS_INVALID"),
    ("a text", "ARTIFACTS_INVALID"),
    (["a", "list"], "ARTIFACTS_INVALID"),
    ({"when": object()}, "ARTIFACTS_INVALID"),
    ({"nan": float("nan")}, "ARTIFACTS_INVALID"),
    ({"surrogate": "\ud800"}, "ARTIFACTS_INVALID"),
    (Result({"bytes": b"x"}), "ARTIFACTS_INVALID"),
    ({"text": "x" * 70_000}, "ARTIFACTS_TOO_LARGE"),
    ({"text": "ü" * 40_000}, "ARTIFACTS_TOO_LARGE"),
]


async def test_what_cannot_be_artifacts_fails_for_good(played: PlayedOrchestrator) -> None:
    def work(directive: Directive, workspace: Workspace) -> Any:
        return RETURNED[int(directive.job_id.removeprefix("job-"))][0]

    played.send(*(played.directive(number) for number in range(len(RETURNED))))
    await serve_until(service_of(work), settings_for(played), lambda: len(played.results()) == len(RETURNED))
    for number, (_, code) in enumerate(RETURNED):
        (result,) = played.results(f"job-{number}")
        assert (result["failure_class"], result["error"]["code"]) == ("NON_RETRYABLE", code)


async def test_artifacts_are_measured_as_they_travel(played: PlayedOrchestrator) -> None:
    artifacts = {"text": "文" * 21_000}  # 63 kB in UTF-8, twice that with every character escaped.
    played.send(played.directive(1))
    await serve_until(service_of(lambda directive, workspace: artifacts), settings_for(played), played.results)
    assert played.results()[0]["artifacts"] == artifacts


async def test_a_function_may_return_nothing(played: PlayedOrchestrator) -> None:
    played.send(played.directive(1))
    await serve_until(service_of(lambda directive, workspace: None), settings_for(played), played.results)
    assert (played.results()[0]["status"], played.results()[0]["artifacts"]) == ("SUCCEEDED", {})


async def test_work_that_takes_too_long_is_reported_as_failed(played: PlayedOrchestrator) -> None:
    ended = threading.Event()

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        deadline = time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                attempt.check()
                time.sleep(0.02)
        finally:
            ended.set()

    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played, work_seconds_max=1.0), played.results)
    assert ended.wait(10)
    (result,) = played.results()
    assert (result["failure_class"], result["error"]["code"]) == ("RETRYABLE", "WORK_TIMEOUT")


@pytest.mark.parametrize("store", ["memory", "sqlite", "workspace"])
async def test_a_workspace_ref_that_cannot_be_used_fails_for_good(played: PlayedOrchestrator, store: str) -> None:
    worked = Worked()
    played.send(played.directive(1, workspace_ref="https://example.com/workspace/"))
    await serve_until(service_of(worked), settings_for(played, store=store), played.results)
    assert played.results()[0]["error"]["code"] == "REF_SCHEME_UNSUPPORTED"
    assert worked.jobs == []


async def test_no_token_and_no_key_is_ever_logged(played: PlayedOrchestrator, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong, and whatever the level of the log."""
    caplog.set_level(logging.DEBUG)

    def work(directive: Directive, workspace: Workspace) -> None:
        raise ValueError(f"{directive!r} {workspace!r}")

    played.faults = {
        "PULL": [AWAY],
        "ACK": [AWAY, HANG_UP],
        "RESULT": [HANG_UP, (413, {"code": "BODY_TOO_LARGE"})],
    }
    played.send(played.directive(1), {**played.directive(2), "lease_seconds": 0}, played.directive(3))
    await serve_until(
        service_of(work),
        settings_for(played, store="sqlite"),
        lambda: played.results("job-3") and played.results("job-1"),
    )
    assert "a bug in the service" in caplog.text
    assert "lease_seconds" in caplog.text
    assert "secret-token" not in caplog.text
    assert "a-key-that" not in caplog.text

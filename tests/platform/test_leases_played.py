"""While work goes on: heartbeats keep its lease, and their answers stop it."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.platform.played import (
    AWAY,
    CANCEL,
    STALE,
    TERMINAL,
    Answer,
    PlayedOrchestrator,
    serve_until,
    service_of,
    settings_for,
)

from lucius.platform import Attempt, Directive, Result, Workspace
from lucius.platform import worker as worker_module

LEASE_SECONDS = 0.9
WORK_SECONDS_MAX = 40.0


def until_stopped(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
    """Reports until it is told to stop."""
    deadline = time.monotonic() + WORK_SECONDS_MAX
    for tenth in range(10_000):
        attempt.report(min(0.9, tenth / 20), "still at it")
        assert time.monotonic() < deadline, "nobody stopped the work"
        time.sleep(0.02)


async def test_heartbeats_carry_progress_and_notes(played: PlayedOrchestrator) -> None:
    let_go = threading.Event()

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        attempt.report(0.25, "page 1 of 4")
        assert let_go.wait(WORK_SECONDS_MAX)

    def heard() -> bool:
        if len(played.of_kind("HEARTBEAT")) >= 3:
            let_go.set()
        return bool(played.results())

    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), heard)
    last = played.of_kind("HEARTBEAT")[-1]
    assert (last.body["progress"], last.body["note"]) == (0.25, "page 1 of 4")
    assert last.body["lease_id"] == "lease-1"


async def test_progress_is_shown_long_before_a_lease_needs_it(played: PlayedOrchestrator) -> None:
    let_go = threading.Event()

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        attempt.report(0.5)
        assert let_go.wait(WORK_SECONDS_MAX)

    def shown() -> bool:
        if played.of_kind("HEARTBEAT"):
            let_go.set()
        return bool(played.results())

    played.send(played.directive(1, lease_seconds=3_600))
    await serve_until(service_of(work), settings_for(played), shown)
    assert [one.body["progress"] for one in played.of_kind("HEARTBEAT")] == [0.5]


async def test_what_is_reported_is_brought_into_shape(played: PlayedOrchestrator) -> None:
    """A heartbeat that is refused for its form would cost the lease."""
    shapes: list[tuple[Any, Any]] = [(7, "x" * 5_000), (-1, "half a pair \ud800"), (float("nan"), ""), (True, "flag")]
    told: list[tuple[float, str]] = []

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        for progress, note in shapes:
            attempt.report(progress, note)
            told.append((attempt.progress, attempt.note))
        until_stopped_or = time.monotonic() + 1.0
        while time.monotonic() < until_stopped_or:
            time.sleep(0.05)

    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert told == [(1.0, "x" * 1_024), (0.0, "half a pair ?"), (0.0, ""), (1.0, "flag")]
    assert played.of_kind("HEARTBEAT")


async def test_heartbeats_go_out_while_an_async_function_computes(played: PlayedOrchestrator) -> None:
    """It never looks up; its lease of one second must not run out in two."""

    async def work(directive: Directive, workspace: Workspace) -> dict[str, Any]:
        time.sleep(2.0)
        return {"computed": True}

    played.send(played.directive(1, lease_seconds=1))
    await serve_until(service_of(work), settings_for(played), played.results)
    beats = [one.at for one in played.of_kind("HEARTBEAT")]
    assert len(beats) >= 3
    moments = [played.of_kind("ACK")[0].at, *beats, played.of_kind("RESULT")[0].at]
    # A third of a second apart, and on a busy machine later, but never only when the computing is over.
    assert max(later - sooner for sooner, later in pairwise(moments)) < 2.0
    assert played.results()[0]["artifacts"] == {"computed": True}


@pytest.mark.parametrize("answer", [STALE, TERMINAL], ids=["stale", "terminal"])
async def test_a_stale_attempt_stops_at_its_next_report_and_says_nothing(
    played: PlayedOrchestrator, answer: Answer
) -> None:
    ended = threading.Event()

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
        try:
            until_stopped(directive, workspace, attempt)
        finally:
            ended.set()
        raise AssertionError("the report must raise")

    played.always["HEARTBEAT"] = answer
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), ended.is_set)
    assert not played.results()
    assert len(played.of_kind("HEARTBEAT")) == 1


async def test_a_stale_attempt_writes_nothing_any_more(played: PlayedOrchestrator) -> None:
    """Not into its workspace, not to the output, and not even if the function looks at nothing."""
    ended = threading.Event()
    refused: list[str] = []

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
        early = workspace.write("early.txt", "written while it was current")
        deadline = time.monotonic() + WORK_SECONDS_MAX
        while attempt.stopped is None and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            workspace.write("late.txt", "too late")
        except Exception as error:
            refused.append(type(error).__name__)
        ended.set()
        return Result(output=early)

    played.always["HEARTBEAT"] = STALE
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), ended.is_set)
    assert refused == ["WorkStopped"]
    assert not list(played.folder.rglob("late.txt"))
    assert not (played.files / "output-1.txt").exists()
    assert not played.results()


async def test_a_stale_async_function_is_cancelled_where_it_waits(played: PlayedOrchestrator) -> None:
    ended: list[str] = []

    async def work(directive: Directive, workspace: Workspace) -> None:
        try:
            await asyncio.sleep(WORK_SECONDS_MAX)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    played.always["HEARTBEAT"] = STALE
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), lambda: ended)
    assert not played.results()


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_cancelled_job_ends_by_a_result(played: PlayedOrchestrator, is_async: bool) -> None:
    async def waiting(directive: Directive, workspace: Workspace) -> None:
        await asyncio.sleep(WORK_SECONDS_MAX)

    played.always["HEARTBEAT"] = CANCEL
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(waiting if is_async else until_stopped), settings_for(played), played.results)
    (result,) = played.results()
    assert (result["failure_class"], result["error"]["code"]) == ("NON_RETRYABLE", "CANCELLED")


async def test_a_function_that_cancels_itself_has_failed(played: PlayedOrchestrator) -> None:
    async def work(directive: Directive, workspace: Workspace) -> None:
        raise asyncio.CancelledError

    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert played.results()[0]["error"]["code"] == "SERVICE_DEFECT"


async def test_a_heartbeat_without_an_answer_stops_nothing(played: PlayedOrchestrator) -> None:
    let_go = threading.Event()
    played.faults["HEARTBEAT"] = [AWAY, (500, b""), (422, {"code": "ENVELOPE_INVALID"})]

    def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        assert let_go.wait(WORK_SECONDS_MAX)
        attempt.check()

    def recovered() -> bool:
        if len(played.of_kind("HEARTBEAT")) >= 5:
            let_go.set()
        return bool(played.results())

    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))
    await serve_until(service_of(work), settings_for(played), recovered)
    assert played.results()[0]["status"] == "SUCCEEDED"


async def test_a_tiny_lease_does_not_flood_the_orchestrator(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "HEARTBEAT_SECONDS_MIN", 0.2)
    played.send(played.directive(1, lease_seconds=1e-9))
    await serve_until(service_of(lambda directive, workspace: time.sleep(1.0)), settings_for(played), played.results)
    assert 1 <= len(played.of_kind("HEARTBEAT")) <= 6


async def test_work_that_ends_well_although_its_job_is_cancelled_has_succeeded(
    played: PlayedOrchestrator, tmp_path: Path
) -> None:
    def work(directive: Directive, workspace: Workspace) -> Result:
        path = workspace.write("out.txt", "done")
        time.sleep(2 * LEASE_SECONDS)
        return Result({"n": 1}, output=path)

    output = tmp_path / "output"
    played.always["HEARTBEAT"] = CANCEL
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS, output_ref=output.as_uri()))
    await serve_until(service_of(work), settings_for(played), played.results)
    (result,) = played.results()
    assert (result["status"], result["artifacts"]) == ("SUCCEEDED", {"n": 1})
    assert not output.exists()

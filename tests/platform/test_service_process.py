"""A service as a process: SIGTERM drains it, `kill -9` loses nothing that it owes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.platform.played import AWAY, SECONDS_MAX, PlayedOrchestrator

SCRIPT = Path(__file__).parent / "scripted_service.py"


class ServiceProcess:
    def __init__(self, played: PlayedOrchestrator, settings: dict[str, str]) -> None:
        self.begun_file = played.folder / "begun"
        self.log_file = played.folder / "service.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
        environment |= {
            "LUCIUS_ORCHESTRATOR_URL": played.url,
            "LUCIUS_API_KEY": "key",
            "LUCIUS_PLATFORM_STATE": str(played.folder / "state"),
            "LUCIUS_PLATFORM_DRAIN_SECONDS": "0.5",
            **settings,
        }
        with self.log_file.open("ab") as log:
            command = [sys.executable, str(SCRIPT), str(self.begun_file)]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=played.folder)

    @property
    def begun(self) -> list[str]:
        return self.begun_file.read_text().split() if self.begun_file.exists() else []

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self, seconds_max: float = 20.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds_max)


Start = Callable[..., ServiceProcess]


@pytest.fixture
def start(played: PlayedOrchestrator) -> Iterator[Start]:
    started: list[ServiceProcess] = []

    def start(**settings: str) -> ServiceProcess:
        started.append(ServiceProcess(played, settings))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def test_sigterm_lets_work_finish(played: PlayedOrchestrator, start: Start) -> None:
    played.send(played.directive(1, step_type="SHORT"))
    service = start(LUCIUS_PLATFORM_DRAIN_SECONDS="30")
    service.until(lambda: service.begun)
    assert service.stop(40.0) == 0
    assert [one["status"] for one in played.results()] == ["SUCCEEDED"]


@pytest.mark.parametrize("step_type", ["STUCK", "STUCK_ASYNC"])
def test_sigterm_gives_back_what_does_not_end_and_exits_within_seconds(
    played: PlayedOrchestrator, start: Start, step_type: str
) -> None:
    played.send(played.directive(1, step_type=step_type))
    service = start()
    service.until(lambda: service.begun)
    assert service.stop() == 0, service.log
    (result,) = played.results()
    assert (result["failure_class"], result["error"]["code"]) == ("RATE_LIMITED", "SERVICE_STOPPING")
    assert 0 < result["retry_after"] <= 5
    assert "Traceback" not in service.log
    assert service.log.rstrip().endswith("INFO played: stopped")


def test_a_second_sigterm_ends_it_at_once(played: PlayedOrchestrator, start: Start) -> None:
    played.send(played.directive(1, step_type="STUCK"))
    service = start(LUCIUS_PLATFORM_DRAIN_SECONDS="600")
    service.until(lambda: service.begun)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert service.process.poll() is None, "it drains"
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(10) == 130


@pytest.mark.parametrize("store", ["sqlite", "workspace"])
def test_a_result_outlives_kill_nine_and_the_work_is_not_run_again(
    played: PlayedOrchestrator, start: Start, store: str
) -> None:
    played.always["RESULT"] = AWAY
    played.send(played.directive(1))
    service = start(LUCIUS_PLATFORM_STORE=store)
    service.until(played.results)
    service.kill()
    unanswered = played.results()[0]
    played.calls.clear()
    played.always.clear()
    again = start(LUCIUS_PLATFORM_STORE=store)
    again.until(played.results)
    assert played.results()[0] == unanswered
    assert unanswered["artifacts"] == {"job": "job-1", "text": "söme ☃ text"}
    played.send(played.directive(1), played.directive(2))
    again.until(lambda: played.results("job-2"))
    assert again.stop() == 0
    assert again.begun == ["job-1", "job-2"]
    # All was answered: a third life has nothing to send.
    third = start(LUCIUS_PLATFORM_STORE=store)
    count = len(played.results())
    played.send(played.directive(3))
    third.until(lambda: played.results("job-3"))
    assert len(played.results()) == count + 1


@pytest.mark.parametrize("store", ["sqlite", "workspace"])
def test_interrupted_work_is_reported_right_after_the_restart(
    played: PlayedOrchestrator, start: Start, store: str
) -> None:
    played.send(played.directive(1, step_type="STUCK"))
    service = start(LUCIUS_PLATFORM_STORE=store)
    service.until(lambda: service.begun)
    service.kill()
    assert not played.results()
    again = start(LUCIUS_PLATFORM_STORE=store)
    again.until(played.results)
    (result,) = played.results()
    assert (result["failure_class"], result["error"]["code"]) == ("RETRYABLE", "SERVICE_INTERRUPTED")
    assert result["lease_id"] == "lease-1"
    assert again.begun == ["job-1"]


def test_memory_forgets_with_its_process(played: PlayedOrchestrator, start: Start) -> None:
    played.always["RESULT"] = AWAY
    played.send(played.directive(1))
    service = start(LUCIUS_PLATFORM_STORE="memory")
    service.until(played.results)
    service.kill()
    played.calls.clear()
    played.always.clear()
    again = start(LUCIUS_PLATFORM_STORE="memory")
    played.send(played.directive(2))
    again.until(lambda: played.results("job-2"))
    assert not played.results("job-1")


def test_a_second_process_on_the_same_state_is_refused_by_name(played: PlayedOrchestrator, start: Start) -> None:
    first = start()
    first.until(lambda: played.pulls)
    second = start()
    assert second.process.wait(SECONDS_MAX) == 2
    assert "in use by another process" in second.log
    assert "LUCIUS_PLATFORM_STATE" in second.log
    assert "Traceback" not in second.log


def test_what_cannot_be_used_ends_the_process_with_one_line(played: PlayedOrchestrator, start: Start) -> None:
    service = start(LUCIUS_PLATFORM_CONCURRENCY="many")
    assert service.process.wait(SECONDS_MAX) == 2
    assert service.log.strip() == "played: LUCIUS_PLATFORM_CONCURRENCY='many' is not a whole number"

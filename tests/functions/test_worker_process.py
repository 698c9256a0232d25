"""A worker as a process: SIGTERM drains it, and nothing that hangs keeps it."""

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
from tests.functions.played_server import API_KEY, SECONDS_MAX, Fault, PlayedServer, job

SCRIPT = Path(__file__).parent / "scripted_functions.py"


class WorkerProcess:
    def __init__(self, played: PlayedServer, folder: Path, settings: dict[str, str]) -> None:
        self._begun, self._log = folder / "begun", folder / "worker.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
        environment |= {"LUCIUS_URL": played.url, "LUCIUS_API_KEY": API_KEY, **settings}
        with self._log.open("ab") as log:
            command = [sys.executable, str(SCRIPT), str(self._begun)]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    @property
    def begun(self) -> list[str]:
        return self._begun.read_text().split() if self._begun.exists() else []

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS_MAX)


Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(played: PlayedServer, tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def start(**settings: str) -> WorkerProcess:
        started.append(WorkerProcess(played, tmp_path, settings))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(10)


def test_sigterm_finishes_what_runs_and_takes_no_more(played: PlayedServer, start: Start) -> None:
    played.faults["RESULTS"] = [Fault(500), Fault(applied=True)]
    played.send(job(1, "Short", n=1), job(2, "Short", n=2))
    worker = start()
    worker.until(lambda: len(worker.begun) == 2)
    worker.process.send_signal(signal.SIGTERM)
    worker.until(lambda: "draining: 2 jobs" in worker.log)
    played.send(job(3, "Short", n=3))
    assert worker.process.wait(SECONDS_MAX) == 0, worker.log
    assert {one["result"]["n"] for one in played.applied.values()} == {1, 2}
    assert worker.begun == ["Short", "Short"]
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("function", ["Stuck", "Stuck-Awaited"])
def test_what_does_not_end_keeps_no_process(played: PlayedServer, start: Start, function: str) -> None:
    played.send(job(1, function, n=1), job(2, "Short", n=2))
    worker = start(LUCIUS_WORKER_DRAIN_SECONDS="3")
    worker.until(lambda: len(worker.begun) == 2)
    assert worker.stop() == 0, worker.log
    assert list(played.applied) == ["step-2-a1"]
    assert "step-1-a1: not done in 3 s; its lock will expire" in worker.log
    assert "Traceback" not in worker.log


def test_a_second_sigterm_ends_it_at_once(played: PlayedServer, start: Start) -> None:
    played.send(job(1, "Stuck", n=1))
    worker = start(LUCIUS_WORKER_DRAIN_SECONDS="600")
    worker.until(lambda: worker.begun)
    worker.process.send_signal(signal.SIGTERM)
    worker.until(lambda: "draining" in worker.log)
    assert worker.stop() == 130


def test_what_cannot_be_used_ends_the_process_with_one_line(start: Start) -> None:
    worker = start(LUCIUS_WORKER_CONCURRENCY="many")
    assert worker.process.wait(SECONDS_MAX) == 2
    assert worker.log.strip() == "scripted: LUCIUS_WORKER_CONCURRENCY='many' is not a whole number"

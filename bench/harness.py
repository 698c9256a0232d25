"""What is measured, set up: the server on a data folder, with the no-op services beside it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.figures import AloneResult, CpuPerJob, LoadResult
from bench.processes import (
    SERVER_SETTINGS,
    BenchError,
    Process,
    free_port,
    python_module,
    run_module,
)
from bench.services import Account

LUCIUS = Path(sys.executable).parent / "lucius"
SLACK_SECONDS = 180.0
NOW, BEFORE = "now", "before"


def programs_compared(before: Path | None) -> dict[str, Path]:
    """The programs that are compared."""
    return {NOW: LUCIUS} if before is None else {NOW: LUCIUS, BEFORE: before}


class HarnessOptions(NamedTuple):
    program: Path = LUCIUS
    pullers: int = 1
    connections: int = 64


class Harness:
    def __init__(self, server: Process, services: Sequence[Process], port: int, connections: int) -> None:
        self.server = server
        self.port = port
        self._services = services
        self._connections = connections

    def load(self, inflight: int, jobs: int, seconds: float, *more: object) -> LoadResult:
        cpu_before = self.server.cpu_seconds(), self._services_cpu_seconds()
        loop_before = self.server.main_thread_cpu_seconds()
        options = ["--inflight", inflight, "--jobs", jobs, "--seconds", seconds, "--connections", self._connections]
        answer = self._run("load", *options, *more, seconds_max=seconds + SLACK_SECONDS)
        result = msgspec.json.decode(answer, type=LoadResult)
        self._require_running()
        # The look-up after the clock has stopped is in the server's share: some pages for thousands of jobs.
        millis = 1000 / max(1, result.jobs)
        result.cpu_ms_per_job = CpuPerJob(
            server=round((self.server.cpu_seconds() - cpu_before[0]) * millis, 3),
            event_loop=round((self.server.main_thread_cpu_seconds() - loop_before) * millis, 3),
            services=round((self._services_cpu_seconds() - cpu_before[1]) * millis, 3),
            load=round(result.cpu_seconds * millis, 3),
        )
        return result

    def alone(self, jobs: int, warm_up: int) -> AloneResult:
        answer = self._run("alone", "--jobs", jobs, "--warm-up", warm_up, seconds_max=SLACK_SECONDS)
        self._require_running()
        return msgspec.json.decode(answer, type=AloneResult)

    def _services_cpu_seconds(self) -> float:
        return sum(service.cpu_seconds() for service in self._services)

    def _require_running(self) -> None:
        for service in self._services:
            service.require_running()

    def _run(self, mode: str, *options: object, seconds_max: float) -> bytes:
        return run_module("bench.load", mode, "--port", str(self.port), *map(str, options), seconds_max=seconds_max)


@contextmanager
def open_harness(folder: Path, wanted: HarnessOptions, under: Sequence[str] = ()) -> Iterator[Harness]:
    """On leaving, the services' account is checked: a callback that was not applied spoils the run."""
    if not wanted.program.exists():
        raise BenchError(f"there is no program {wanted.program.name} beside the interpreter: run `make setup`")
    port = free_port()
    command = [str(wanted.program), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    stop_signal = signal.SIGTERM
    if under:
        # SIGINT, so that the profiler around the program gets to write what it saw.
        command, stop_signal = [*under, *command], signal.SIGINT
    with Process("the server", command, folder / "server.log", SERVER_SETTINGS, stop_signal) as server:
        server.wait_ready(port, "/readyz")
        options = ("--port", str(port), "--pullers", str(wanted.pullers))
        with Process("the services", python_module("bench.services", *options), folder / "services.log") as services:
            yield Harness(server, [services], port, wanted.connections)
            services.stop()
            check_account(services)


def clean(run: LoadResult) -> LoadResult:
    """Whatever else happened, its figures are not to be trusted."""
    if not run.clean or run.cpu_ms_per_job is None:
        raise BenchError(f"ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run


def clean_alone(run: AloneResult) -> AloneResult:
    if run.not_succeeded:
        raise BenchError(f"{run.not_succeeded} jobs run alone did not succeed; the figures count for nothing")
    return run


def check_account(services: Process) -> None:
    try:
        account = msgspec.json.decode(services.tail().strip().rpartition("\n")[2], type=Account)
    except msgspec.DecodeError as error:
        raise BenchError(f"the services left no account:\n{services.tail()}") from error
    if account.faults or account.not_applied or account.applied != 2 * account.directives:
        raise BenchError(f"the services' callbacks were not all applied: {account}")

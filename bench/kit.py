"""The part `kit`: services on the platform kit, each in a process of its own, beside raw services.

Each round runs all ways on servers of their own, because the machine changes speed while they run. With `--before`,
another version's server and kit run in the same rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import LoadResult
from bench.harness import LUCIUS, Harness, HarnessOptions, clean, open_harness
from bench.part import (
    Measured,
    Options,
    Part,
    Row,
    alternating,
    at_least,
    at_most,
    detail,
    median_ratio,
    rounds_of,
    say,
)
from bench.processes import SERVER_SETTINGS, Process, free_port, scratch_folder
from bench.report import Rows
from bench.services import SERVICES

INFLIGHT = (100, 200)
WARM_UP_JOBS = 300
STEPS = len(SERVICES)
JOBS_MAX = 1_000_000
JOBS_PER_SECOND_GOAL = 1_000
STEP_MS_GOAL = 0.3
SERVER_MS_GOAL = 1.0


class Way(NamedTuple):
    name: str
    program: Path = LUCIUS
    on_kit: bool = True
    eager: bool = False


def ways(before: Path | None) -> list[Way]:
    made = [Way("raw services", on_kit=False), Way("on the kit"), Way("on the kit, eager", eager=True)]
    return made if before is None else [Way("on the kit, before", before), *made]


def measure_once(way: Way, folder: Path, seconds: float) -> dict[int, LoadResult]:
    """By the jobs in flight."""
    raw = HarnessOptions(way.program, connections=32)
    with kit_harness(way, folder) if way.on_kit else open_harness(folder, raw) as harness:
        harness.load(INFLIGHT[0], WARM_UP_JOBS, seconds)
        return {inflight: clean(harness.load(inflight, JOBS_MAX, seconds)) for inflight in INFLIGHT}


@contextmanager
def kit_harness(way: Way, folder: Path) -> Iterator[Harness]:
    """A server, and each service on the kit in a process of its own."""
    port, state = free_port(), str(folder / "state")
    command = [str(way.program), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    module = [str(way.program.parent / "python"), "-m", "bench.kit_services", "--port", str(port), "--state", state]
    module += ["--eager"] if way.eager else []
    with ExitStack() as stack:
        server = stack.enter_context(Process("the server", command, folder / "server.log", SERVER_SETTINGS))
        server.wait_ready(port, "/readyz")
        services = [Process(name, [*module, "--service", name], folder / f"{name}.log") for name in SERVICES]
        for service in services:
            stack.enter_context(service)
        yield Harness(server, services, port, connections=32)


Runs = dict[tuple[Way, int], list[LoadResult]]
"""By the way, and the jobs in flight."""


def measure(compared: list[Way], options: Options) -> Runs:
    runs: Runs = {(way, inflight): [] for inflight in INFLIGHT for way in compared}
    ways_by_name = {way.name: way for way in compared}
    for at, order in enumerate(alternating(options.rounds, list(ways_by_name))):
        for name in order:
            with scratch_folder("kit", options.disk) as folder:
                found = measure_once(ways_by_name[name], folder, options.seconds)
            for inflight, run in found.items():
                runs[ways_by_name[name], inflight].append(run)
                told = f"{run.jobs_per_second:,.0f} jobs/s, {run.cpu_ms_per_job}"
                say(f"round {at + 1}, {name}, {inflight} in flight: {told}")
    return runs


class Figures(NamedTuple):
    rate: float
    of_raw: float
    server_ms: float
    step_ms: float


def figures(runs: Runs) -> dict[tuple[Way, int], Figures]:
    raw = {inflight: rates(measured) for (way, inflight), measured in runs.items() if not way.on_kit}
    found = {}
    for (way, inflight), measured in runs.items():
        cpus = [run.cpu_ms_per_job for run in measured if run.cpu_ms_per_job]
        found[way, inflight] = Figures(
            statistics.median(rates(measured)),
            median_ratio(rates(measured), raw[inflight]),
            statistics.median(cpu.server for cpu in cpus),
            statistics.median(cpu.services for cpu in cpus) / STEPS,
        )
    return found


def rates(measured: list[LoadResult]) -> list[float]:
    return [run.jobs_per_second for run in measured]


def table(found: dict[tuple[Way, int], Figures]) -> Rows:
    made: Rows = [
        ("in flight", "services", "three-step jobs/s", "of raw", "server's processor a job", "kit's processor a step")
    ]
    for (way, inflight), (rate, of_raw, server, step) in found.items():
        made.append((str(inflight), way.name, f"{rate:,.0f}", f"{of_raw:.0%}", f"{server:.2f} ms", f"{step:.2f} ms"))
    return made


def rows_of(found: dict[tuple[Way, int], Figures]) -> list[Row]:
    raw = {inflight: one.rate for (way, inflight), one in found.items() if not way.on_kit}
    made = []
    for (way, inflight), (rate, of_raw, server, step) in found.items():
        if not way.on_kit or way.program != LUCIUS:
            continue
        where = f"{way.name}, {inflight} in flight"
        beside = f"raw services, {raw[inflight]:,.0f}"
        processor = f"{server:.2f} + {STEPS} × {step:.2f} ms"
        reached = at_least(rate, JOBS_PER_SECOND_GOAL)
        made += [
            Row(f"three-step jobs/s, services {where}", f"{rate:,.0f}", processor, beside, f"{of_raw:.0%}", *reached),
            Row(f"the kit's processor a step, {where}", f"{step:.2f} ms", "", "", "", *at_most(step, STEP_MS_GOAL)),
            Row(
                f"the server's processor a job, {where}",
                f"{server:.2f} ms",
                "",
                "",
                "",
                *at_most(server, SERVER_MS_GOAL),
            ),
        ]
    return made


def run(options: Options) -> Measured:
    runs = measure(ways(options.before), options)
    found = figures(runs)
    kept = {f"{way.name}, {inflight}": measured for (way, inflight), measured in runs.items()}
    return Measured(rows_of(found), detail(rounds_of(options, "jobs in flight as said"), table(found)), kept)


PART = Part(
    "kit",
    "services on the platform kit, each in its own process, beside raw services",
    run,
    lambda options: options.rounds * (4 if options.before else 3) * (6 + 3.2 * options.seconds),
)

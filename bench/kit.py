"""`python -m bench.kit`: services on the platform kit, with callbacks one by one against callbacks in batches.

The same server, the same load, the same kit; only `batch_max` and `eager` differ. Rounds alternate, because the machine
changes speed while they run, and each is compared with the one-by-one run beside it.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.figures import LoadResult
from bench.harness import LUCIUS, Harness
from bench.processes import ROOT, SERVER_SETTINGS, BenchError, Process, free_port, python_module, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- kit:begin -->", "<!-- kit:end -->")
INFLIGHT = 100
WARM_UP_JOBS = 300


class Way(NamedTuple):
    name: str
    batch_max: int
    eager: bool


WAYS = (
    Way("one callback a call", 1, False),
    Way("in batches", 50, False),
    Way("in batches, ACK and RESULT together (eager)", 50, True),
)


class Measured(msgspec.Struct):
    runs: dict[str, list[LoadResult]]

    def median(self, way: Way) -> float:
        return statistics.median(run.jobs_per_second for run in self.runs[way.name])

    def ratio(self, way: Way) -> float:
        """The median of what each round gives, so that a slow moment weighs on both sides of a ratio."""
        singles = self.runs[WAYS[0].name]
        pairs = zip(self.runs[way.name], singles, strict=True)
        return statistics.median(run.jobs_per_second / single.jobs_per_second for run, single in pairs)


def measure_once(way: Way, folder: Path, jobs: int, seconds: float) -> LoadResult:
    port = free_port()
    command = [str(LUCIUS), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    with Process("the server", command, folder / "server.log", SERVER_SETTINGS) as server:
        server.wait_ready(port, "/readyz")
        options = ["--port", str(port), "--state", str(folder / "state"), "--batch-max", str(way.batch_max)]
        options += ["--eager"] if way.eager else []
        with Process("the services", python_module("bench.kit_services", *options), folder / "kit.log") as services:
            harness = Harness(server, services, port, connections=32)
            harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
            run = harness.load(INFLIGHT, jobs, seconds)
    if not run.clean:
        raise BenchError(f"{way.name}: ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run


def measure(rounds: int, jobs: int, seconds: float) -> Measured:
    runs: dict[str, list[LoadResult]] = {way.name: [] for way in WAYS}
    for at in range(1, rounds + 1):
        for way in WAYS:
            with scratch_folder("kit", RESULTS) as folder:
                run = measure_once(way, folder, jobs, seconds)
            runs[way.name].append(run)
            print(f"  round {at}, {way.name}: {run.jobs_per_second:,.0f} jobs/s", file=sys.stderr, flush=True)
    return Measured(runs)


def rows(measured: Measured) -> Rows:
    made: Rows = [("callbacks", "three-step jobs/s, median", "of one by one", "CPU a job: server", "services")]
    for way in WAYS:
        cpus = [run.cpu_ms_per_job for run in measured.runs[way.name] if run.cpu_ms_per_job]
        server = statistics.median(cpu.server for cpu in cpus)
        services = statistics.median(cpu.services for cpu in cpus)
        ratio = f"{measured.ratio(way):.2f} ×"
        made.append((way.name, f"{measured.median(way):,.0f}", ratio, f"{server:.2f} ms", f"{services:.2f} ms"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes no page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds, jobs, seconds = (1, 600, 3.0) if options.quick else (3, 5_000, 8.0)
    try:
        measured = measure(rounds, jobs, seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(aligned(rows(measured)))
    if not options.quick:
        replace_between(PAGE, MARKS, markdown(rows(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

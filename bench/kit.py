"""`python -m bench.kit`: services on the platform kit, each in a process of its own, beside raw services.

Each round runs all ways on servers of their own, because the machine changes speed while they run. With `--before
PROGRAM`, another version's server and kit run in the same rounds.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import LoadResult
from bench.harness import LUCIUS, Harness, HarnessOptions, open_harness
from bench.processes import ROOT, SERVER_SETTINGS, BenchError, Process, free_port, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between
from bench.services import SERVICES

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- kit:begin -->", "<!-- kit:end -->")
INFLIGHT = 100
WARM_UP_JOBS = 300
STEPS = len(SERVICES)
JOBS_MAX = 1_000_000


class Way(NamedTuple):
    name: str
    program: Path = LUCIUS
    on_kit: bool = True
    eager: bool = False


def ways(before: Path | None) -> list[Way]:
    made = [Way("raw services", on_kit=False), Way("on the kit"), Way("on the kit, eager", eager=True)]
    return made if before is None else [Way("on the kit, before", before), *made]


def measure_once(way: Way, folder: Path, seconds: float) -> LoadResult:
    raw = HarnessOptions(way.program, connections=32)
    with kit_harness(way, folder) if way.on_kit else open_harness(folder, raw) as harness:
        harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
        run = harness.load(INFLIGHT, JOBS_MAX, seconds)
    if not run.clean or run.cpu_ms_per_job is None:
        raise BenchError(f"{way.name}: ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run


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


def measure(compared: list[Way], rounds: int, seconds: float) -> dict[Way, list[LoadResult]]:
    runs: dict[Way, list[LoadResult]] = {way: [] for way in compared}
    for at in range(rounds):
        for way in compared if at % 2 else reversed(compared):
            with scratch_folder("kit", RESULTS) as folder:
                run = measure_once(way, folder, seconds)
            runs[way].append(run)
            print(
                f"  round {at + 1}, {way.name}: {run.jobs_per_second:,.0f} jobs/s, {run.cpu_ms_per_job}",
                file=sys.stderr,
            )
    return runs


def rows(runs: dict[Way, list[LoadResult]]) -> Rows:
    made: Rows = [("services", "three-step jobs/s", "of raw", "server's processor a job", "kit's processor a step")]
    (raw,) = (measured for way, measured in runs.items() if not way.on_kit)
    for way, measured in runs.items():
        cpus = [run.cpu_ms_per_job for run in measured if run.cpu_ms_per_job]
        rate = statistics.median(run.jobs_per_second for run in measured)
        pairs = zip(measured, raw, strict=True)
        ratio = statistics.median(run.jobs_per_second / other.jobs_per_second for run, other in pairs)
        server = statistics.median(cpu.server for cpu in cpus)
        step = statistics.median(cpu.services for cpu in cpus) / STEPS
        made.append((way.name, f"{rate:,.0f}", f"{ratio:.0%}", f"{server:.2f} ms", f"{step:.2f} ms"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kit", description=__doc__)
    parser.add_argument("--before", type=Path, help="the program of another version, with its interpreter beside it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--quick", action="store_true", help="one short round; writes no page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds, seconds = (1, 2.0) if options.quick else (options.rounds, options.seconds)
    try:
        runs = measure(ways(options.before and options.before.absolute()), rounds, seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(aligned(rows(runs)))
    if not options.quick:
        told = f"Medians of {rounds} alternating rounds of {seconds:g} s, at most {INFLIGHT} jobs in flight."
        replace_between(PAGE, MARKS, f"{told}\n\n{markdown(rows(runs))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

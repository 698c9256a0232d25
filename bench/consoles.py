"""`python -m bench.consoles`: what open consoles cost a loaded server, in alternating rounds.

A round is one server on an empty ledger, loaded three times: without consoles, with streams as consoles open them, and
with consoles that also read what changed. The order changes from round to round; the ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.harness import Harness, HarnessOptions, open_harness
from bench.processes import ROOT, BenchError, Process, python_module, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- consoles:begin -->", "<!-- consoles:end -->")
WARM_UP_JOBS = 500
OPEN_SECONDS_MAX = 90.0
NONE, STREAMS, CONSOLES = "without consoles", "their streams alone", "consoles that read what changed"
KINDS = (NONE, STREAMS, CONSOLES)

Run = tuple[float, float]
"""The server's processor a job in milliseconds, and jobs a second."""


@contextmanager
def clients(kind: str, port: int, consoles: int, folder: Path) -> Iterator[None]:
    if kind == NONE:
        yield
        return
    more = ["--reads"] if kind == CONSOLES else []
    output = folder / "consoles.log"
    command = python_module("bench.console_clients", "--port", str(port), "--consoles", str(consoles), *more)
    with Process("the consoles", command, output) as process:
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        while not output.read_text().startswith("open"):
            process.require_running()
            if time.monotonic() > deadline:
                raise BenchError(f"the consoles did not open:\n{output.read_text()[-2_000:]}")
            time.sleep(0.05)
        yield
        process.require_running()
    if "events 0 " in output.read_text() or "events" not in output.read_text():
        raise BenchError(f"the consoles saw nothing:\n{output.read_text()[-2_000:]}")
    print(f"    {kind}: {output.read_text().splitlines()[-1]}", file=sys.stderr, flush=True)


def load(harness: Harness, kind: str, consoles: int, inflight: int, seconds: float, folder: Path) -> Run:
    with clients(kind, harness.port, consoles, folder):
        run = harness.load(inflight, 1_000_000, seconds)
    if not run.clean or run.cpu_ms_per_job is None:
        raise BenchError(f"{kind}: ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run.cpu_ms_per_job.server, run.jobs_per_second


def measure(consoles: int, inflight: int, rounds: int, seconds: float) -> list[dict[str, Run]]:
    found = []
    for at in range(rounds):
        with scratch_folder("consoles", RESULTS) as folder, open_harness(folder, HarnessOptions()) as harness:
            harness.load(inflight, WARM_UP_JOBS, 1.0)
            order = KINDS[at % len(KINDS) :] + KINDS[: at % len(KINDS)]
            found.append({kind: load(harness, kind, consoles, inflight, seconds, folder) for kind in order})
        told = ", ".join(f"{kind} {cpu:.3f} ms, {rate:,.0f} jobs/s" for kind, (cpu, rate) in found[-1].items())
        print(f"  round {at + 1}: {told}", file=sys.stderr, flush=True)
    return found


def ratio(found: list[dict[str, Run]], kind: str) -> float:
    return median(one[kind][0] / one[NONE][0] for one in found)


def rows(found: list[dict[str, Run]]) -> Rows:
    made: Rows = [("", "server's processor a job", "of that without consoles", "jobs/s")]
    for kind in KINDS:
        ratios = sorted(one[kind][0] / one[NONE][0] for one in found)
        told = "" if kind == NONE else f"{median(ratios):.0%} ({ratios[0]:.0%} to {ratios[-1]:.0%})"
        cpu, rate = (median(one[kind][at] for one in found) for at in range(2))
        made.append((kind, f"{cpu:.2f} ms", told, f"{rate:,.0f}"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.consoles", description=__doc__)
    parser.add_argument("--consoles", type=int, default=100)
    parser.add_argument("--inflight", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--keep", action="store_true", help="write the table into docs/benchmarks.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        found = measure(options.consoles, options.inflight, options.rounds, options.seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    told = (
        f"{options.consoles} consoles on the overview, {options.inflight} jobs in flight: medians of {options.rounds}"
        f" alternating rounds of {options.seconds:g} s; in brackets the lowest and highest ratio of a round."
    )
    print(f"{told}\n\n{aligned(rows(found))}")
    if options.keep:
        replace_between(PAGE, MARKS, f"{told}\n\n{markdown(rows(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

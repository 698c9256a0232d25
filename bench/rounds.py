"""`python -m bench.rounds --before PROGRAM`: this program against another version of it, in alternating rounds.

Each round is a server of its own on an empty ledger, the other version's and this one's, in turn first. The machine
changes speed while they run, so the ratio is taken within each round, and processor time decides.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from statistics import median

from bench.harness import LUCIUS, HarnessOptions, open_harness
from bench.processes import ROOT, BenchError, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- rounds:begin -->", "<!-- rounds:end -->")
WARM_UP_JOBS = 500
INFLIGHT = (1, 10, 100, 300)

Run = tuple[float, float, float]
"""The server's processor a job, of that the event loop's thread, and jobs a second."""


def measure_once(program: Path, inflight: int, seconds: float) -> Run:
    with scratch_folder("round", RESULTS) as folder, open_harness(folder, HarnessOptions(program)) as harness:
        harness.load(inflight, WARM_UP_JOBS, 1.0)
        run = harness.load(inflight, 1_000_000, seconds)
    if not run.clean or run.cpu_ms_per_job is None:
        raise BenchError(f"{program.name}: ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return run.cpu_ms_per_job.server, run.cpu_ms_per_job.event_loop, run.jobs_per_second


def measure(before: Path, inflights: list[int], rounds: int, seconds: float) -> dict[int, list[tuple[Run, Run]]]:
    """By jobs in flight, what each round gave: before, now."""
    found: dict[int, list[tuple[Run, Run]]] = {}
    for at in range(rounds):
        for inflight in inflights:
            if at % 2:
                now = measure_once(LUCIUS, inflight, seconds)
                was = measure_once(before, inflight, seconds)
            else:
                was = measure_once(before, inflight, seconds)
                now = measure_once(LUCIUS, inflight, seconds)
            found.setdefault(inflight, []).append((was, now))
            print(f"  round {at + 1}, {inflight} in flight: before {was}, now {now}", file=sys.stderr, flush=True)
    return found


def rows(found: dict[int, list[tuple[Run, Run]]]) -> Rows:
    made: Rows = [("in flight", "server's processor a job", "its event loop's thread", "jobs/s")]
    for inflight, pairs in found.items():
        cells = [str(inflight)]
        for at, digits in enumerate((2, 2, 0)):
            was, now = median(one[at] for one, _ in pairs), median(one[at] for _, one in pairs)
            ratio = median(now[at] / was[at] for was, now in pairs)
            unit = "" if at == len(pairs[0][0]) - 1 else " ms"
            cells.append(f"{was:,.{digits}f} → {now:,.{digits}f}{unit} ({ratio:.0%})")
        made.append(tuple(cells))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rounds", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the program of the other version")
    parser.add_argument("--name", default="the version before", help="what the other version is called on the page")
    parser.add_argument("--inflight", type=int, nargs="+", default=list(INFLIGHT))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        found = measure(options.before.resolve(), options.inflight, options.rounds, options.seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    told = (
        f"Against {options.name}: medians of {options.rounds} alternating rounds of {options.seconds:g} s; in brackets"
        " the median of the rounds' ratios."
    )
    print(f"{told}\n\n{aligned(rows(found))}")
    replace_between(PAGE, MARKS, f"{told}\n\n{markdown(rows(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

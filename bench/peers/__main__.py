"""`python -m bench.peers`: three-step work on other orchestrators and on LUCIUS, in alternating rounds.

Each runs three steps that do nothing, one after another, each recorded durably before the next begins. The peers are
installed from the package registries by name into a folder that is gone afterwards. Rounds alternate because the
machine changes speed while they run: quote ratios, and processor time a job before jobs a second.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import restate, temporal
from bench.harness import HarnessOptions, open_harness
from bench.peers.peer import PEERS, Figures, Peer, install, measure
from bench.processes import ROOT, BenchError, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- peers:begin -->", "<!-- peers:end -->")
OURS = "LUCIUS"
ALONE_JOBS = 100
WARM_UP_JOBS = 500

Side = Callable[[Path, int, float], Figures]


def lucius(folder: Path, inflight: int, seconds: float) -> Figures:
    with open_harness(folder, HarnessOptions()) as harness:
        harness.load(inflight, WARM_UP_JOBS, restate.WARM_UP_SECONDS)
        alone = harness.alone(ALONE_JOBS, warm_up=20)
        run = harness.load(inflight, 1_000_000, seconds)
    if not run.clean or run.cpu_ms_per_job is None or alone.not_succeeded:
        raise BenchError(f"ended {run.ended}, refused {run.refused}; the figures count for nothing")
    return Figures(run.jobs_per_second, run.cpu_ms_per_job.server + run.cpu_ms_per_job.services, alone.p50_ms)


def bare_temporal(folder: Path, inflight: int, seconds: float) -> Figures:
    pace = temporal.Pace(rounds=1, jobs=1_000_000, seconds=seconds, jobs_alone=20)
    with temporal.temporal_server(folder) as server:
        side = temporal.measure_bare(server, pace)
    return Figures(side.jobs_per_second, side.cpu_ms, side.p50_ms)


def restate_with(program: Path, modules: Path) -> Side:
    def side(folder: Path, inflight: int, seconds: float) -> Figures:
        with restate.open_restate(program, folder, modules) as server:
            alone, _ = restate.measure_restate(server, 1, 1.0)
            rate, cpu_ms = restate.measure_restate(server, inflight, seconds)
        return Figures(rate, cpu_ms, 1000 / alone)

    return side


def peer_with(peer: Peer, python: Path) -> Side:
    def side(folder: Path, inflight: int, seconds: float) -> Figures:
        return measure(peer, python, folder, inflight, seconds, ALONE_JOBS)

    return side


def settings() -> dict[str, str]:
    """What is said of each in the table."""
    described = {
        OURS: "embedded default: SQLite written through, each step sent to a service in another process over HTTP",
        "Restate": (
            f"{restate.SERVER_VERSION}, SDK for Node {restate.SDK_VERSION}, a handler of three local steps;"
            " alone is the mean"
        ),
        "Temporal": (
            f"a bare workflow of three activities on the development server with a file, {temporal.INFLIGHT} in flight"
        ),
    }
    return described | {peer.name: peer.settings for peer in PEERS}


def compare(rounds: int, inflight: int, seconds: float, only: list[str]) -> dict[str, list[Figures]]:
    with scratch_folder("peers", RESULTS) as folder:
        sides: dict[str, Side] = {OURS: lucius}
        if "Restate" in only:
            sides["Restate"] = restate_with(restate.install(folder), folder)
        if "Temporal" in only:
            sides["Temporal"] = bare_temporal
        wanted = [peer for peer in PEERS if peer.name in only]
        if wanted:
            python = install(folder)
            sides |= {peer.name: peer_with(peer, python) for peer in wanted}
        found: dict[str, list[Figures]] = {name: [] for name in sides}
        for at in range(rounds):
            order = list(sides) if at % 2 else list(reversed(sides))
            for name in order:
                with scratch_folder("run", RESULTS) as run:
                    figures = sides[name](run, inflight, seconds)
                found[name].append(figures)
                told = f"{figures.jobs_per_second:,.0f} jobs/s, {figures.cpu_ms:.2f} ms of processor a job"
                print(f"  round {at + 1}, {name}: {told}, alone {figures.p50_ms:.1f} ms", file=sys.stderr, flush=True)
    return found


def rows(found: dict[str, list[Figures]]) -> Rows:
    described = settings()
    made: Rows = [("", "three-step jobs/s", "LUCIUS is", "processor a job", "one alone, p50", "what ran")]
    for name, figures in found.items():
        rate, cpu, alone = (statistics.median(values) for values in zip(*figures, strict=True))
        ratio = statistics.median(
            ours.jobs_per_second / theirs.jobs_per_second for ours, theirs in zip(found[OURS], figures, strict=True)
        )
        made.append(
            (name, f"{rate:,.0f}", f"{ratio:.1f} ×", f"{cpu:.2f} ms", f"{alone:.1f} ms", described[name])
        )  # fmt: skip
    return made


def main() -> int:
    names = ["Restate", "Temporal", *(peer.name for peer in PEERS)]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes no page")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--inflight", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PEER", help=", ".join(names))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds, seconds = (1, 2.0) if options.quick else (options.rounds, options.seconds)
    try:
        found = compare(rounds, options.inflight, seconds, options.only)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    told = f"Medians of {rounds} alternating rounds of {seconds:g} s, at most {options.inflight} jobs in flight."
    print(f"{told}\n\n{aligned(rows(found))}")
    if not options.quick and options.only == names:
        (RESULTS / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
        replace_between(PAGE, MARKS, f"{told}\n\n{markdown(rows(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: how fast LUCIUS is on this machine, on its embedded default, with the load generator included."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec

from bench import big, report
from bench.bare import FRAMEWORKS, measure_sqlite
from bench.figures import BareResult, Machine, PostsResult, Report
from bench.harness import LUCIUS, HarnessOptions, open_harness
from bench.prefill import PrefillError
from bench.processes import (
    ROOT,
    BenchError,
    Process,
    free_port,
    python_module,
    run_module,
    scratch_folder,
)
from bench.profiling import profile

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
INFLIGHT = (100, 200, 300)
WARM_UP_JOBS = 1_000


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, a small filled ledger; writes no page")
    parser.add_argument("--no-big", action="store_true", help="leave out the comparison with a filled ledger")
    parser.add_argument("--profile", action="store_true", help="only profile the server; prints where the time goes")
    parser.add_argument("--jobs", type=int, help="jobs of a run at most (15,000)")
    parser.add_argument("--seconds", type=float, help="seconds of a run at most (10)")
    parser.add_argument("--big-jobs", type=int, help="finished jobs in the filled ledger (1,000,000)")
    parser.add_argument("--rounds", type=int, help="alternating runs on the empty and the filled ledger (3)")
    parser.add_argument("--connections", type=int, default=64, help="that the load generator submits over")
    parser.add_argument("--pullers", type=int, default=1, help="concurrent pulls of each service")
    parser.add_argument("--disk", type=Path, default=RESULTS, help="folder for the data; removed afterwards")
    parser.add_argument("--server", type=Path, default=LUCIUS, help="the lucius program to measure")
    options = parser.parse_args()
    options.jobs = options.jobs or (3_000 if options.quick else 15_000)
    options.seconds = options.seconds or (3.0 if options.quick else 10.0)
    options.big_jobs = options.big_jobs or (20_000 if options.quick else 1_000_000)
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.disk = options.disk.resolve()
    return options


def measure_bare(options: argparse.Namespace) -> BareResult:
    seconds = 2.0 if options.quick else 5.0
    posts: dict[str, PostsResult] = {}
    with scratch_folder("bare", options.disk) as folder:
        for framework in FRAMEWORKS:
            port = free_port()
            command = python_module("bench.bare", framework, "--port", str(port))
            with Process(f"the bare {framework}", command, folder / f"{framework}.log") as server:
                server.wait_ready(port, "/")
                for length in (1.0, seconds):
                    wanted = ("--port", str(port), "--seconds", str(length), "--connections", "32")
                    answer = run_module("bench.load", "posts", *wanted, seconds_max=length + 60)
                    posts[framework] = msgspec.json.decode(answer, type=PostsResult)
            say(f"  {framework} {posts[framework].requests_per_second:,.0f} requests/s")
        sqlite = measure_sqlite(folder, seconds)
    say(f"  SQLite {sqlite.commits_per_second:,.0f} commits/s, {sqlite.grouped_rows_per_second:,.0f} rows/s grouped")
    starlette = posts["starlette"]
    return BareResult(
        fastapi_posts_per_second=posts["fastapi"].requests_per_second,
        starlette_posts_per_second=starlette.requests_per_second,
        client_us_per_post=round(starlette.cpu_seconds / starlette.requests * 1e6, 1),
        sqlite_commits_per_second=sqlite.commits_per_second,
        sqlite_grouped_rows_per_second=sqlite.grouped_rows_per_second,
    )


def measure(options: argparse.Namespace) -> Report:
    wanted = HarnessOptions(options.server, options.pullers, options.connections)
    say("the limits: empty routes, SQLite alone")
    bare = measure_bare(options)
    load = []
    with scratch_folder("data", options.disk) as folder, open_harness(folder, wanted) as harness:
        say("one job at a time")
        alone = harness.alone(jobs=500 if options.quick else 2_000, warm_up=200)
        say(f"  p50 {alone.p50_ms:.2f} ms, p99 {alone.p99_ms:.2f} ms")
        say("many jobs in flight")
        harness.load(INFLIGHT[0], WARM_UP_JOBS, options.seconds)
        for inflight in INFLIGHT:
            load.append(harness.load(inflight, options.jobs, options.seconds))
            say(f"  at most {inflight}: {load[-1].jobs_per_second:,.0f} jobs/s")
        memory_peak_mb = harness.server.memory_peak_mb()
    filled = None
    if not options.no_big:
        filled = big.compare(
            wanted,
            options.disk,
            filled_jobs=options.big_jobs,
            rounds=options.rounds,
            jobs=options.jobs,
            seconds=options.seconds,
            say=say,
        )
        memory_peak_mb = max(memory_peak_mb, filled.memory_peak_mb)
    return Report(
        measured_at=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=describe_machine(),
        quick=options.quick,
        alone=alone,
        load=load,
        memory_peak_mb=memory_peak_mb,
        bare=bare,
        big=filled,
    )


def describe_machine() -> Machine:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 1e9),
        system=platform.system(),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
    )


def main() -> int:
    options = parse_options()
    # Whoever ends this process ends what it started: the exit goes through every `with`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.profile:
            wanted = HarnessOptions(options.server, options.pullers, options.connections)
            print(profile(wanted, options.disk, inflight=200, jobs=options.jobs, seconds=options.seconds))
            return 0
        measured = measure(options)
    except (BenchError, PrefillError) as error:
        say(f"bench: {error}")
        return 1
    print(report.as_text(measured))
    if measured.spoilt:
        return 1
    if not options.quick:
        report.write_json(measured, RESULTS / "latest.json")
        report.write_page(measured, PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

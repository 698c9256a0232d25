"""The part `embedded`: the embedded default with raw services, beside empty routes and SQLite alone."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

from bench.bare import FRAMEWORKS, measure_sqlite
from bench.figures import AloneResult, BareResult, LoadResult, PostsResult, server_cpu
from bench.harness import HarnessOptions, clean, clean_alone, open_harness
from bench.part import Measured, Options, Part, Row, at_least, at_most, detail, rounds_of, say
from bench.processes import Process, free_port, python_module, run_module, scratch_folder
from bench.report import Rows

INFLIGHT = (100, 200, 300)
WARM_UP_JOBS = 1_000
JOBS_MAX = 1_000_000
BARE_CONNECTIONS = 32
JOBS_PER_SECOND_GOAL = 1_600
CPU_MS_GOAL, EVENT_LOOP_MS_GOAL = 0.75, 0.45
P50_MS_GOAL, P99_MS_GOAL = 4.5, 10
MEMORY_MB_GOAL = 200


class Round(msgspec.Struct):
    bare: BareResult
    alone: AloneResult
    load: list[LoadResult]
    memory_peak_mb: float


def measure_bare(disk: Path, seconds: float) -> BareResult:
    posts: dict[str, PostsResult] = {}
    with scratch_folder("bare", disk) as folder:
        for framework in FRAMEWORKS:
            port = free_port()
            command = python_module("bench.bare", framework, "--port", str(port))
            with Process(f"the bare {framework}", command, folder / f"{framework}.log") as server:
                server.wait_ready(port, "/")
                for length in (0.5, seconds):
                    wanted = ("--port", str(port), "--seconds", str(length), "--connections", str(BARE_CONNECTIONS))
                    answer = run_module("bench.load", "posts", *wanted, seconds_max=length + 60)
                    posts[framework] = msgspec.json.decode(answer, type=PostsResult)
        sqlite = measure_sqlite(folder, seconds)
    starlette = posts["starlette"]
    return BareResult(
        fastapi_posts_per_second=posts["fastapi"].requests_per_second,
        starlette_posts_per_second=starlette.requests_per_second,
        client_us_per_post=round(starlette.cpu_seconds / starlette.requests * 1e6, 1),
        sqlite_commits_per_second=sqlite.commits_per_second,
        sqlite_grouped_rows_per_second=sqlite.grouped_rows_per_second,
    )


def measure_round(options: Options) -> Round:
    bare = measure_bare(options.disk, options.seconds / 2)
    with scratch_folder("data", options.disk) as folder, open_harness(folder, HarnessOptions()) as harness:
        alone = clean_alone(harness.alone(jobs=200 if options.quick else 1_000, warm_up=200))
        harness.load(INFLIGHT[0], WARM_UP_JOBS, options.seconds)
        load = [clean(harness.load(inflight, JOBS_MAX, options.seconds)) for inflight in INFLIGHT]
        return Round(bare, alone, load, harness.server.memory_peak_mb())


def run(options: Options) -> Measured:
    rounds = []
    for at in range(options.rounds):
        rounds.append(measure_round(options))
        rates = ", ".join(f"{one.jobs_per_second:,.0f}" for one in rounds[-1].load)
        say(f"round {at + 1}: {rates} jobs/s, alone {rounds[-1].alone.p50_ms:.2f} ms")
    told = rounds_of(options, f"{rounds[0].alone.jobs:,} jobs one at a time; a server of its own each round")
    return Measured(rows_of(rounds), detail(told, run_rows(rounds), bare_rows(rounds)), rounds)


def rows_of(rounds: list[Round]) -> list[Row]:
    starlette = median(one.bare.starlette_posts_per_second for one in rounds)
    commits = median(one.bare.sqlite_commits_per_second for one in rounds)
    rows = []
    for at, inflight in enumerate(INFLIGHT):
        rate, cpu = _rate(rounds, at), median(server_cpu([one.load[at] for one in rounds]))
        share = median(one.load[at].jobs_per_second / one.bare.starlette_posts_per_second for one in rounds)
        rows.append(
            Row(
                f"three-step jobs/s, at most {inflight} in flight",
                f"{rate:,.0f}",
                f"{cpu:.2f} ms",
                f"empty Starlette POST, {starlette:,.0f}/s",
                f"{share:.1%}",
                *at_least(rate, JOBS_PER_SECOND_GOAL),
            )
        )
    everything = [load for one in rounds for load in one.load]
    cpu = median(server_cpu(everything))
    loop = median(load.cpu_ms_per_job.event_loop for load in everything if load.cpu_ms_per_job)
    rows.append(Row("the server's processor a job", f"{cpu:.2f} ms", "", "", "", *at_most(cpu, CPU_MS_GOAL)))
    text = f"{loop:.2f} ms"
    rows.append(
        Row("of it, the event loop's thread", text, "", "", f"{loop / cpu:.0%}", *at_most(loop, EVENT_LOOP_MS_GOAL))
    )
    p50, p99 = median(one.alone.p50_ms for one in rounds), median(one.alone.p99_ms for one in rounds)
    beside = f"SQLite, a commit alone, {1000 / commits:.2f} ms"
    rows.append(
        Row(
            "one job alone, p50",
            f"{p50:.2f} ms",
            "",
            beside,
            f"{p50 * commits / 1000:.0f} ×",
            *at_most(p50, P50_MS_GOAL),
        )
    )
    rows.append(Row("one job alone, p99", f"{p99:.2f} ms", "", "", "", *at_most(p99, P99_MS_GOAL)))
    memory = max(one.memory_peak_mb for one in rounds)
    rows.append(
        Row("the server's memory, peak", f"{memory:.0f} MB", "", "", "", *at_most(memory, MEMORY_MB_GOAL, "MB"))
    )
    return rows


def bare_rows(rounds: list[Round]) -> Rows:
    best = max(_rate(rounds, at) for at in range(len(INFLIGHT)))
    rows: Rows = [("limit, same rounds, same client", "rate", f"{best:,.0f} jobs/s are")]
    for name, field, unit in (
        ("empty FastAPI POST, pydantic body", "fastapi_posts_per_second", "requests/s"),
        ("empty Starlette POST", "starlette_posts_per_second", "requests/s"),
        ("SQLite, one row a commit", "sqlite_commits_per_second", "commits/s"),
        ("SQLite, 100 rows a commit", "sqlite_grouped_rows_per_second", "rows/s"),
    ):
        rate: float = median(getattr(one.bare, field) for one in rounds)
        rows.append((name, f"{rate:,.0f} {unit}", f"{best / rate:.1%}"))
    client = median(one.bare.client_us_per_post for one in rounds)
    rows.append(("the client's processor for a request", f"{client:.0f} µs", ""))
    return rows


def run_rows(rounds: list[Round]) -> Rows:
    rows: Rows = [
        (
            "in flight",
            "jobs/s",
            "in flight, mean",
            "accepted in, p50 / p99",
            "CPU a job: server",
            "event loop",
            "services",
            "load",
        )
    ]
    for at, inflight in enumerate(INFLIGHT):
        runs = [one.load[at] for one in rounds]
        p50, p99 = median(run.accept_p50_ms for run in runs), median(run.accept_p99_ms for run in runs)
        cpus = [run.cpu_ms_per_job for run in runs if run.cpu_ms_per_job is not None]
        spent = [
            f"{median(getattr(cpu, field) for cpu in cpus):.2f} ms"
            for field in ("server", "event_loop", "services", "load")
        ]
        mean = f"{median(run.inflight_mean for run in runs):.0f}"
        rows.append((str(inflight), f"{_rate(rounds, at):,.0f}", mean, f"{p50:.1f} / {p99:.1f} ms", *spent))
    return rows


def _rate(rounds: list[Round], at: int) -> float:
    return median(one.load[at].jobs_per_second for one in rounds)


PART = Part(
    "embedded",
    "three-step jobs on the embedded default, beside empty routes and SQLite alone",
    run,
    lambda options: options.rounds * (22 + 5.5 * options.seconds),
)

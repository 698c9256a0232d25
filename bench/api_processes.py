"""The part `postgres`: PostgreSQL with one API process and with two, beside PostgreSQL alone.

Every process is apart: PostgreSQL (which waits for its disk), the API processes, the reconciler, the no-op services and
the load generator. With two API processes, commands are submitted to the first and waited for there, and the services
pull from the second and answer to it, so each job has to be noticed across processes twice. With `--before`, another
version runs in the same rounds. The machine changes speed while they run, so ratios are taken within each round.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg
import msgspec

from bench.figures import percentile
from bench.harness import BEFORE, NOW, Harness, check_account, clean, clean_alone, programs_compared
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
    share_at_least,
    share_at_most,
)
from bench.postgres import postgres_server
from bench.processes import (
    ROOT,
    SERVER_SETTINGS,
    Process,
    environment,
    free_port,
    python_module,
    scratch_folder,
    tree_cpu_seconds,
)
from bench.report import Rows

JOBS_PER_SECOND_GOAL = 1_000
P50_MS_GOALS = {1: 12.0, 2: 15.0}
TWO_OF_ONE_GOAL = 0.95
CPU_RATIO_GOAL = 1.15
INFLIGHT = 200
BARE_CONNECTIONS = 16
WARM_UP_JOBS = 300
UPGRADE_SECONDS_MAX = 120.0


class Run(NamedTuple):
    jobs_per_second: float
    api_cpu_ms: float
    """Processor of all API processes, a job."""
    all_cpu_ms: float
    """Of those, the reconciler and PostgreSQL."""
    p50_ms: float
    """One job alone, from its POST to its end."""
    transactions: float
    """Of the database, for one job alone."""


class Deployment:
    def __init__(
        self, apis: list[Process], others: list[Process], harness: Harness, url: str, postgres: Process
    ) -> None:
        self._apis = apis
        self._others = others
        self._harness = harness
        self._url = url
        self._postgres = postgres

    def measure(self, seconds: float, alone: int) -> Run:
        self._harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
        api_before, all_before = self._api_cpu(), self._all_cpu()
        load = clean(self._harness.load(INFLIGHT, 1_000_000, seconds))
        api, everything = self._api_cpu() - api_before, self._all_cpu() - all_before
        self._harness.alone(10, 0)
        counted = asyncio.run(_transactions(self._url))
        single = clean_alone(self._harness.alone(alone, 0))
        counted = asyncio.run(_transactions(self._url)) - counted
        per_job = 1000 / load.jobs
        return Run(load.jobs_per_second, api * per_job, everything * per_job, single.p50_ms, counted / alone)

    def _api_cpu(self) -> float:
        return sum(process.cpu_seconds() for process in self._apis)

    def _all_cpu(self) -> float:
        return (
            self._api_cpu()
            + sum(process.cpu_seconds() for process in self._others)
            + tree_cpu_seconds(self._postgres.pid)
        )


async def _transactions(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        await asyncio.sleep(1.2)  # The server counts with a delay of a second.
        return int(
            await connection.fetchval("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        )
    finally:
        await connection.close()


@contextmanager
def deployed(program: Path, apis: int, folder: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        postgres, url = stack.enter_context(postgres_server(folder))
        ports = [free_port() for _ in range(apis)]
        settings = SERVER_SETTINGS | {
            "LUCIUS_LEDGER": url,
            "LUCIUS_CALLBACK_KEYS": f"k1:{secrets.token_hex(32)}",
            "LUCIUS_DATA": str(folder / "data"),
            "LUCIUS_ORCHESTRATOR_URL": f"http://127.0.0.1:{ports[-1]}",
        }
        subprocess.run(
            [str(program), "db", "upgrade"],
            env=environment(settings),
            cwd=ROOT,
            check=True,
            capture_output=True,
            timeout=UPGRADE_SECONDS_MAX,
        )
        servers = []
        for at, port in enumerate(ports):
            command = [str(program), "api", "--port", str(port)]
            server = stack.enter_context(Process(f"API {at}", command, folder / f"api-{at}.log", settings))
            server.wait_ready(port, "/healthz")
            servers.append(server)
        reconciler = Process("the reconciler", [str(program), "reconciler"], folder / "reconciler.log", settings)
        stack.enter_context(reconciler)
        noop = python_module("bench.services", "--port", str(ports[-1]))
        services = stack.enter_context(Process("the services", noop, folder / "services.log"))
        harness = Harness(servers[0], [services], ports[0], connections=64)
        yield Deployment(servers, [reconciler], harness, url, postgres)
        services.stop()
        check_account(services)


def measure_once(program: Path, apis: int, options: Options) -> Run:
    with scratch_folder("postgres", options.disk) as folder, deployed(program, apis, folder) as deployment:
        return deployment.measure(options.seconds, 30 if options.quick else 100)


class Bare(msgspec.Struct):
    """PostgreSQL alone, with the driver alone: rows of about a job's size, one a commit."""

    commits_per_second: float
    p50_ms: float
    """Of a commit when nothing else runs."""


async def bare_commits(url: str, seconds: float) -> Bare:
    async with asyncpg.create_pool(url, min_size=BARE_CONNECTIONS, max_size=BARE_CONNECTIONS) as pool:
        await pool.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, value bytea)")
        took: list[float] = []
        value = secrets.token_bytes(400)

        async def insert(until: float) -> int:
            done = 0
            async with pool.acquire() as connection:
                while (began := time.perf_counter()) < until:
                    await connection.execute("INSERT INTO bare (value) VALUES ($1)", value)
                    took.append(time.perf_counter() - began)
                    done += 1
            return done

        await insert(time.perf_counter() + seconds / 4)
        p50_ms = percentile(sorted(took), 50) * 1000
        until = time.perf_counter() + seconds
        done = sum(await asyncio.gather(*(insert(until) for _ in range(BARE_CONNECTIONS))))
    return Bare(round(done / seconds, 1), round(p50_ms, 2))


def measure_bare(options: Options) -> Bare:
    with scratch_folder("postgres", options.disk) as folder, postgres_server(folder) as (_, url):
        return asyncio.run(bare_commits(url, options.seconds / 2))


Rounds = dict[tuple[str, int], list[Run]]
"""By `before` or `now`, and the number of API processes."""


def column(runs: list[Run], name: str) -> list[float]:
    return [getattr(run, name) for run in runs]


def table(found: Rounds) -> Rows:
    made: Rows = [
        ("API processes", "jobs/s", "API's processor a job", "all servers'", "one job alone, p50", "transactions")
    ]
    has_before = (BEFORE, 1) in found
    for apis in (1, 2):
        cells = [str(apis)]
        for name in Run._fields:
            digits, unit = (2, " ms") if name.endswith("cpu_ms") else (1, " ms") if name == "p50_ms" else (0, "")
            values = column(found[NOW, apis], name)
            text = f"{median(values):,.{digits}f}{unit}"
            if has_before:
                was = column(found[BEFORE, apis], name)
                text = f"{median(was):,.{digits}f} → {text} ({median_ratio(values, was):.0%})"
            cells.append(text)
        made.append(tuple(cells))
    for which in (BEFORE, NOW) if has_before else (NOW,):
        ratios = (median_ratio(column(found[which, 2], name), column(found[which, 1], name)) for name in Run._fields)
        made.append((f"two of one{', ' + which if has_before else ''}", *(f"{ratio:.0%}" for ratio in ratios)))
    return made


def rows_of(found: Rounds, bare: list[Bare]) -> list[Row]:
    commits, commit_ms = median(one.commits_per_second for one in bare), median(one.p50_ms for one in bare)
    one, two = found[NOW, 1], found[NOW, 2]
    rate = median(column(one, "jobs_per_second"))
    cpu = [median(column(runs, "all_cpu_ms")) for runs in (one, two)]
    made = [
        Row(
            "three-step jobs/s on PostgreSQL, one API process",
            f"{rate:,.0f}",
            f"{cpu[0]:.2f} ms",
            f"asyncpg, one row a commit, {commits:,.0f}/s",
            f"{rate / commits:.1%}",
            *at_least(rate, JOBS_PER_SECOND_GOAL),
        )
    ]
    share = median_ratio(column(two, "jobs_per_second"), column(one, "jobs_per_second"))
    both = median(column(two, "jobs_per_second"))
    made.append(
        Row(
            "the same with two",
            f"{both:,.0f}",
            f"{cpu[1]:.2f} ms",
            f"one, {rate:,.0f}",
            f"{share:.0%}",
            *share_at_least(share, TWO_OF_ONE_GOAL),
        )
    )
    for what, name in (("the API processes'", "api_cpu_ms"), ("all servers'", "all_cpu_ms")):
        ratio = median_ratio(column(two, name), column(one, name))
        with_one, with_two = median(column(one, name)), median(column(two, name))
        made.append(
            Row(
                f"{what} processor a job, with two",
                f"{with_two:.2f} ms",
                "",
                f"with one, {with_one:.2f} ms",
                f"{ratio:.0%}",
                *share_at_most(ratio, CPU_RATIO_GOAL),
            )
        )
    for apis, runs in ((1, one), (2, two)):
        p50 = median(column(runs, "p50_ms"))
        beside = f"asyncpg, a commit alone, {commit_ms:.2f} ms"
        what = f"one job alone on PostgreSQL, p50, {apis} API process{'es' if apis > 1 else ''}"
        made.append(
            Row(what, f"{p50:.1f} ms", "", beside, f"{p50 / commit_ms:.0f} ×", *at_most(p50, P50_MS_GOALS[apis]))
        )
    return made


def run(options: Options) -> Measured:
    programs = programs_compared(options.before)
    found: Rounds = {(which, apis): [] for which in programs for apis in (1, 2)}
    bare = []
    for at, order in enumerate(alternating(options.rounds, list(programs))):
        bare.append(measure_bare(options))
        for which in order:
            for apis in (1, 2):
                found[which, apis].append(measure_once(programs[which], apis, options))
                say(f"round {at + 1}, {which}, {apis}: {found[which, apis][-1]}")
    told = rounds_of(options, f"at most {INFLIGHT} in flight, and {30 if options.quick else 100} jobs one at a time")
    if options.before:
        told += f" Before is {options.before_name}; in brackets the median of the rounds' ratios."
    data = {"bare": bare, **{f"{which}, {apis}": runs for (which, apis), runs in found.items()}}
    return Measured(rows_of(found, bare), detail(told, table(found)), data)


PART = Part(
    "postgres",
    "PostgreSQL with one API process and with two, beside PostgreSQL alone",
    run,
    lambda options: options.rounds * (6 + (2 if options.before else 1) * 2 * (11 + 2.5 * options.seconds)),
)

"""`python -m bench.api_processes --before PROGRAM`: PostgreSQL with one API process and with two, in rounds.

Every process is apart: PostgreSQL (which waits for its disk), the API processes, the reconciler, the no-op services and
the load generator. With two API processes, commands are submitted to the first and waited for there, and the services
pull from the second and answer to it, so each job has to be noticed across processes twice. The machine changes speed
while they run, so ratios are taken within each round, and processor time decides.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg

from bench.harness import LUCIUS, Harness, check_account
from bench.postgres import postgres_server
from bench.processes import (
    ROOT,
    SERVER_SETTINGS,
    BenchError,
    Process,
    environment,
    free_port,
    python_module,
    scratch_folder,
)
from bench.report import Rows, aligned, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- postgres:begin -->", "<!-- postgres:end -->")
INFLIGHT = 200
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
        load = self._harness.load(INFLIGHT, 1_000_000, seconds)
        api, everything = self._api_cpu() - api_before, self._all_cpu() - all_before
        if not load.clean:
            raise BenchError(f"ended {load.ended}, refused {load.refused}; the figures count for nothing")
        self._harness.alone(10, 0)
        counted = asyncio.run(_transactions(self._url))
        single = self._harness.alone(alone, 0)
        counted = asyncio.run(_transactions(self._url)) - counted
        if single.not_succeeded:
            raise BenchError(f"{single.not_succeeded} jobs did not succeed; the figures count for nothing")
        per_job = 1000 / load.jobs
        return Run(load.jobs_per_second, api * per_job, everything * per_job, single.p50_ms, counted / alone)

    def _api_cpu(self) -> float:
        return sum(process.cpu_seconds() for process in self._apis)

    def _all_cpu(self) -> float:
        return self._api_cpu() + sum(process.cpu_seconds() for process in self._others) + _children_cpu(self._postgres)


def _children_cpu(server: Process) -> float:
    """PostgreSQL has a process for each connection; of those that have ended, the server itself keeps count."""
    total = 0.0
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / 100
    return total


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


def measure_once(program: Path, apis: int, seconds: float, alone: int) -> Run:
    with scratch_folder("postgres", RESULTS) as folder, deployed(program, apis, folder) as deployment:
        return deployment.measure(seconds, alone)


Round = dict[tuple[str, int], Run]
"""By `before` or `now`, and the number of API processes."""


def rows(rounds: list[Round]) -> Rows:
    made: Rows = [
        ("API processes", "jobs/s", "API's processor a job", "all servers'", "one job alone, p50", "transactions")
    ]
    for apis in (1, 2):
        cells = [str(apis)]
        for at, name in enumerate(Run._fields):
            was, now = (median(one[which, apis][at] for one in rounds) for which in ("before", "now"))
            ratio = median(one["now", apis][at] / one["before", apis][at] for one in rounds)
            digits, unit = (2, " ms") if name.endswith("cpu_ms") else (1, " ms") if name == "p50_ms" else (0, "")
            cells.append(f"{was:,.{digits}f} → {now:,.{digits}f}{unit} ({ratio:.0%})")
        made.append(tuple(cells))
    for which in ("before", "now"):
        cells = [f"two of one, {which}"]
        for at in range(len(Run._fields)):
            cells.append(f"{median(one[which, 2][at] / one[which, 1][at] for one in rounds):.0%}")
        made.append(tuple(cells))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.api_processes", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the program of the other version")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--alone", type=int, default=100, help="jobs one at a time")
    parser.add_argument("--write", action="store_true", help="replace the table of docs/benchmarks.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    programs = {"before": options.before.absolute(), "now": LUCIUS}
    rounds: list[Round] = []
    try:
        for at in range(options.rounds):
            found: Round = {}
            for which in ("before", "now") if at % 2 else ("now", "before"):
                for apis in (1, 2):
                    run = measure_once(programs[which], apis, options.seconds, options.alone)
                    found[which, apis] = run
                    print(f"  round {at + 1}, {which}, {apis}: {run}", file=sys.stderr, flush=True)
            rounds.append(found)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    told = (
        f"Medians of {options.rounds} alternating rounds of {options.seconds:g} s with at most {INFLIGHT} in flight,"
        f" and of {options.alone} jobs one at a time; in brackets the median of the rounds' ratios."
    )
    print(f"{told}\n\n{aligned(rows(rounds))}")
    if options.write:
        replace_between(PAGE, MARKS, f"{told}\n\n{markdown(rows(rounds))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

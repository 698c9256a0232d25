"""The part `runbooks`: step executions a second, and a scheduler's round over members that have not changed.

Three measures: a batch of 10,000 members × 5 steps through the embedded default with a worker process over HTTP; the
same on PostgreSQL with the bus in it, scheduler, orchestrator, API and worker in processes of their own; and one round
of the scheduler over a source of 50,000 members. SQLite alone is measured in the same run, as a limit to compare with.
With `--before`, another version runs in the same rounds: both are deployed beside each other, and take turns.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from bench.bare import measure_sqlite
from bench.harness import BEFORE, LUCIUS, NOW, programs_compared
from bench.part import Measured, Options, Part, Row, alternating, at_least, at_most, detail, median_ratio, say
from bench.postgres import postgres_server
from bench.processes import (
    API_KEY,
    SERVER_SETTINGS,
    BenchError,
    Process,
    free_port,
    scratch_folder,
    tree_cpu_seconds,
)
from bench.report import Rows
from bench.runbook_worker import STEPS, WORKER_ID

BATCH_SECONDS_MAX = 600.0
TICK_ROUNDS = 5
GOALS = {"embedded": 10_000, "postgres": 4_000}
TICK_SECONDS_GOAL = 2.0
MEMBERS, QUICK_MEMBERS = 10_000, 500
TICK_MEMBERS, QUICK_TICK_MEMBERS = 50_000, 5_000
PROGRESSIONS = ("barrier", "independent")

_PARAMS = '{{Upn: "{{{{Upn}}}}", Batch: "{{{{_batch_id}}}}"}}'
_STEP = f"      - {{{{name: s{{0}}, worker_id: {{1}}, function: Do-Nothing, params: {_PARAMS}}}}}"
RUNBOOK = "\n".join(
    [
        "name: bench",
        "data_source: {type: manual, primary_key: Upn}",
        "progression: PROGRESSION",
        "phases:",
        "  - name: work",
        "    offset: T-0",
        "    steps:",
        *(_STEP.format(number, WORKER_ID) for number in range(STEPS)),
    ]
)


class Run(msgspec.Struct):
    progression: str
    seconds: float
    """From the phase's dispatch to its end, by the server's own clock."""
    steps_per_second: float
    cpu_ms_per_step: dict[str, float]


class Place(msgspec.Struct):
    """What was measured of one version in one set-up."""

    runs: list[Run] = msgspec.field(default_factory=list)
    memory_mb: list[float] = msgspec.field(default_factory=list)
    """The server's peak after each batch: flat means that the later ones add nothing."""

    def rates(self, progression: str | None = None) -> list[float]:
        return [run.steps_per_second for run in self.runs if progression in (None, run.progression)]

    @property
    def steps_per_second(self) -> float:
        return statistics.median(self.rates())

    def cpu_ms(self, process: str) -> float:
        return statistics.median(run.cpu_ms_per_step[process] for run in self.runs)

    @property
    def cpu_ms_in_all(self) -> float:
        return statistics.median(sum(run.cpu_ms_per_step.values()) for run in self.runs)


class Found(msgspec.Struct):
    members: int
    places: dict[str, dict[str, Place]]
    """`embedded` and `postgres`; of each, the versions."""
    sqlite_rows_per_second: float
    tick_members: int
    tick_seconds: list[float]


# --- Batches ---------------------------------------------------------------------------------------------------------


class Deployed(NamedTuple):
    port: int
    processes: dict[str, Process]
    main: Process
    """The one whose memory is looked at."""

    def cpu_seconds(self) -> dict[str, float]:
        """Of PostgreSQL, with the processes of its connections."""
        return {
            name: tree_cpu_seconds(process.pid) if name == "postgres" else process.cpu_seconds()
            for name, process in self.processes.items()
        }


@contextmanager
def embedded(folder: Path, program: Path = LUCIUS, has_worker: bool = True) -> Iterator[Deployed]:
    port = free_port()
    command = [str(program), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    with ExitStack() as stack:
        server = stack.enter_context(Process("the server", command, folder / "server.log", SERVER_SETTINGS))
        server.wait_ready(port, "/readyz")
        processes = {"server": server}
        if has_worker:
            words = _worker(program, "--url", f"http://127.0.0.1:{port}")
            processes["worker"] = stack.enter_context(Process("worker", words, folder / "worker.log"))
        yield Deployed(port, processes, server)


@contextmanager
def on_postgres(folder: Path, program: Path = LUCIUS) -> Iterator[Deployed]:
    with ExitStack() as stack:
        postgres, url = stack.enter_context(postgres_server(folder))
        keys = {"LUCIUS_CALLBACK_KEYS": "k1:a-secret-of-the-benchmark-alone"}
        shared = {**SERVER_SETTINGS, **keys, "LUCIUS_LEDGER": url}
        upgrade = stack.enter_context(Process("db upgrade", [str(program), "db", "upgrade"], folder / "db.log", shared))
        upgrade.wait(60)
        port = free_port()
        processes = {"postgres": postgres}
        for name, words in {
            "api": ["api", "--port", str(port)],
            "orchestrator": ["runbooks"],
            "scheduler": ["scheduler"],
        }.items():
            processes[name] = stack.enter_context(Process(name, [str(program), *words], folder / f"{name}.log", shared))
        processes["api"].wait_ready(port, "/readyz")
        processes["worker"] = stack.enter_context(Process("worker", _worker(program), folder / "worker.log", shared))
        yield Deployed(port, processes, processes["orchestrator"])


def _worker(program: Path, *options: str) -> list[str]:
    """On the kit of the same version."""
    return [str(program.parent / "python"), "-m", "bench.runbook_worker", *options]


Deploy = Callable[[Path, Path], AbstractContextManager[Deployed]]
DEPLOYMENTS: dict[str, Deploy] = {"embedded": embedded, "postgres": on_postgres}


def measure_place(name: str, folder: Path, members: int, programs: Mapping[str, Path], rounds: int) -> dict[str, Place]:
    """By the version. They stay up until the last round, which shows whether their memory grows."""
    found = {version: Place() for version in programs}
    with ExitStack() as stack:
        deployed = {}
        for version, program in programs.items():
            inside = folder / f"{name}-{version}"
            inside.mkdir()
            deployed[version] = stack.enter_context(DEPLOYMENTS[name](inside, program))
            run_batch(deployed[version], "independent", min(500, members))  # Warm up.
        for at, order in enumerate(alternating(rounds, list(programs))):
            for progression in PROGRESSIONS:
                for version in order:
                    run = run_batch(deployed[version], progression, members)
                    found[version].runs.append(run)
                    found[version].memory_mb.append(deployed[version].main.memory_peak_mb())
                    told = f"{run.steps_per_second:,.0f}/s, {run.cpu_ms_per_step}"
                    say(f"round {at + 1}, {name}, {version}, {progression}: {told}")
    return found


def run_batch(deployed: Deployed, progression: str, members: int) -> Run:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{deployed.port}", headers=headers, timeout=60) as client:
        published = client.post("/v1/runbooks", json={"yaml": RUNBOOK.replace("PROGRESSION", progression)})
        if published.status_code >= 400:
            raise BenchError(published.text)
        csv = "Upn\n" + "".join(f"user{number}@example.test\n" for number in range(members))
        before = deployed.cpu_seconds()
        made = client.post("/v1/batches", json={"runbook": "bench", "csv": csv})
        if made.status_code >= 400:
            raise BenchError(made.text)
        batch = _ended(client, made.json()["batch_id"], deployed.processes)
    phase = batch["phase_list"][-1]
    if batch["status"] != "completed":
        raise BenchError(f"the batch is {batch['status']}: {batch['error']}; the figures count for nothing")
    began, ended = (datetime.fromisoformat(phase[name]) for name in ("dispatched_at", "completed_at"))
    seconds, steps = (ended - began).total_seconds(), members * STEPS
    after = deployed.cpu_seconds()
    cpu = {name: round((after[name] - before[name]) * 1000 / steps, 3) for name in after}
    return Run(progression, round(seconds, 2), round(steps / seconds, 1), cpu)


def _ended(client: httpx.Client, batch_id: int, processes: Mapping[str, Process]) -> dict[str, Any]:
    end = time.monotonic() + BATCH_SECONDS_MAX
    while time.monotonic() < end:
        batch: dict[str, Any] = client.get(f"/v1/batches/{batch_id}").json()
        if batch["status"] in ("completed", "failed"):
            return batch
        for process in processes.values():
            process.require_running()
        time.sleep(0.5)
    raise BenchError(f"the batch has not ended after {BATCH_SECONDS_MAX:.0f} s: {batch['waiting_for']}")


# --- The scheduler's round -------------------------------------------------------------------------------------------


async def measure_tick(folder: Path, members: int) -> list[float]:
    from lucius.buses.sql import JournaledBus
    from lucius.clocks import SystemClock
    from lucius.ports.observer import Observer
    from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
    from lucius.runbooks.opening import open_runbooks
    from lucius.sql.schema import upgrade
    from lucius.sql.sqlite import SqliteDatabase
    from lucius.testing.samples import JOB_TOKENS

    source = folder / "members.csv"
    rows = (f"user{n}@example.test,2099-01-{1 + n % 28:02d},Name {n},Team {n % 50},{n},Berlin" for n in range(members))
    source.write_text("Upn,MigrationDate,DisplayName,Team,Number,City\n" + "\n".join(rows) + "\n")
    yaml = RUNBOOK.replace("PROGRESSION", "barrier").replace(
        "data_source: {type: manual, primary_key: Upn}",
        "data_source: {type: csv, connection: LUCIUS_SOURCE_BENCH, primary_key: Upn, batch_time_column: MigrationDate}",
    )
    clock, observer = SystemClock(), Observer()
    seconds = []
    async with SqliteDatabase(folder / "tick.db") as database:
        await upgrade(database)
        async with JournaledBus(database, clock) as bus:
            settings = SchedulerSettings(source_interval=0.0)
            environ = {"LUCIUS_SOURCE_BENCH": str(source)}
            async with open_runbooks(
                database, bus, clock, observer, OrchestratorSettings(), settings, JOB_TOKENS, environ, schedules=False
            ) as runbooks:
                await runbooks.publishing.publish(yaml.encode(), "bench")
                await runbooks.scheduler.tick()  # Makes the batches.
                for _ in range(TICK_ROUNDS):
                    began = time.perf_counter()
                    if not await runbooks.scheduler.tick():
                        raise BenchError("the scheduler does not lead")
                    seconds.append(round(time.perf_counter() - began, 3))
    return seconds


# --- The report ------------------------------------------------------------------------------------------------------


def table(found: Found) -> Rows:
    rows: Rows = [("measure", "measured", "goal", "reached")]
    for name, versions in found.places.items():
        now, before = versions[NOW], versions.get(BEFORE)
        for progression in PROGRESSIONS:
            rates = now.rates(progression)
            text = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            if before:
                was = before.rates(progression)
                text = f"{statistics.median(was):,.0f} → {text}, {median_ratio(rates, was):.0%}"
            reached = statistics.median(rates) >= GOALS[name]
            what = f"step executions/s, {name}, {progression}"
            rows.append((what, text, f"{GOALS[name]:,}", "yes" if reached else "no"))
    worst = max(found.tick_seconds)
    tick = f"{min(found.tick_seconds):.2f} to {worst:.2f} s"
    reached = worst < TICK_SECONDS_GOAL
    what = f"a round over {found.tick_members:,} members, no change"
    rows.append((what, tick, f"< {TICK_SECONDS_GOAL:.0f} s", "yes" if reached else "no"))
    for name, versions in found.places.items():
        peaks = versions[NOW].memory_mb
        of = "server" if name == "embedded" else "orchestrator"
        looked = dict.fromkeys((0, len(peaks) // 2, len(peaks) - 1))
        text = ", ".join(f"{peaks[at]:.0f} MB after {at + 1}" for at in looked)
        rows.append((f"memory of the {of}, peak", f"{text} batches", "flat", ""))
    share = found.places["embedded"][NOW].steps_per_second / found.sqlite_rows_per_second
    rows.append(("embedded, of SQLite's rows/s (100 a commit) in the same run", f"{share:.1%}", "", ""))
    return rows


def cpu_rows(found: Found) -> Rows:
    rows: Rows = [("processor a step execution", "median of the runs")]
    for name, versions in found.places.items():
        now, before = versions[NOW], versions.get(BEFORE)
        for process in now.runs[0].cpu_ms_per_step:
            text = f"{now.cpu_ms(process) * 1000:.0f} µs"
            was = f"{before.cpu_ms(process) * 1000:.0f} → " if before else ""
            rows.append((f"{name}: {process}", was + text))
        was = f"{before.cpu_ms_in_all * 1000:.0f} → " if before else ""
        rows.append((f"{name}: in all", f"{was}{now.cpu_ms_in_all * 1000:.0f} µs"))
    return rows


def rows_of(found: Found) -> list[Row]:
    made = []
    for name, versions in found.places.items():
        now = versions[NOW]
        rate = now.steps_per_second
        limit = found.sqlite_rows_per_second
        beside = ("", "") if name == "postgres" else (f"SQLite, 100 rows a commit, {limit:,.0f}", f"{rate / limit:.1%}")
        goal = at_least(rate, GOALS[name])
        measure = f"runbook step executions/s, {name}"
        made.append(Row(measure, f"{rate:,.0f}", f"{now.cpu_ms_in_all:.2f} ms a step", *beside, *goal))
    worst = max(found.tick_seconds)
    what = f"the scheduler's round over {found.tick_members:,} members, slowest"
    made.append(Row(what, f"{worst:.2f} s", "", "", "", *at_most(worst, TICK_SECONDS_GOAL, "s")))
    return made


def run(options: Options) -> Measured:
    members = QUICK_MEMBERS if options.quick else MEMBERS
    tick_members = QUICK_TICK_MEMBERS if options.quick else TICK_MEMBERS
    programs = programs_compared(options.before)
    with scratch_folder("runbooks", options.disk) as folder:
        sqlite = measure_sqlite(folder, min(2.0, options.seconds))
        tick = asyncio.run(measure_tick(folder, tick_members))
        places = {name: measure_place(name, folder, members, programs, options.rounds) for name in DEPLOYMENTS}
    found = Found(members, places, sqlite.grouped_rows_per_second, tick_members, tick)
    count = "One round" if options.rounds == 1 else f"{options.rounds} alternating rounds"
    told = f"{count} of a batch of {members:,} members × {STEPS} steps of each progression; rates are medians."
    if options.before:
        told += f" Before is {options.before_name}; a percentage is the median of the rounds' ratios."
    return Measured(rows_of(found), detail(told, table(found), cpu_rows(found)), found)


PART = Part(
    "runbooks",
    "step executions of runbooks, embedded and on PostgreSQL, beside SQLite alone",
    run,
    lambda options: (
        (20 if options.quick else 30) + options.rounds * (2 if options.before else 1) * (10 if options.quick else 50)
    ),
)

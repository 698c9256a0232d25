"""The part `runbooks`: step executions a second, and a scheduler's round over members that have not changed.

Three measures: a batch of 10,000 members × 5 steps through the embedded default with a worker process over HTTP; the
same on PostgreSQL with the bus in it, scheduler, orchestrator, API and worker in processes of their own; and one round
of the scheduler over a source of 50,000 members. SQLite alone is measured in the same run, as a limit to compare with.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from bench.bare import measure_sqlite
from bench.harness import LUCIUS
from bench.part import Measured, Options, Part, Row, at_least, at_most, detail, say
from bench.postgres import postgres_server
from bench.processes import (
    API_KEY,
    SERVER_SETTINGS,
    BenchError,
    Process,
    free_port,
    python_module,
    scratch_folder,
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
    """What was measured of one set-up."""

    runs: list[Run]
    memory_mb: list[float]
    """The server's peak after each batch: flat means that the later ones add nothing."""

    @property
    def steps_per_second(self) -> float:
        return statistics.median(run.steps_per_second for run in self.runs)


class Found(msgspec.Struct):
    members: int
    embedded: Place
    postgres: Place
    sqlite_rows_per_second: float
    tick_members: int
    tick_seconds: list[float]


# --- Batches ---------------------------------------------------------------------------------------------------------


@contextmanager
def embedded(folder: Path, has_worker: bool = True) -> Iterator[tuple[int, dict[str, Process]]]:
    port = free_port()
    command = [str(LUCIUS), "up", "--port", str(port), "--data", str(folder / "data"), "--no-services"]
    with ExitStack() as stack:
        server = stack.enter_context(Process("the server", command, folder / "server.log", SERVER_SETTINGS))
        server.wait_ready(port, "/readyz")
        processes = {"server": server}
        if has_worker:
            words = python_module("bench.runbook_worker", "--url", f"http://127.0.0.1:{port}")
            processes["worker"] = stack.enter_context(Process("worker", words, folder / "worker.log"))
        yield port, processes


@contextmanager
def on_postgres(folder: Path) -> Iterator[tuple[int, dict[str, Process]]]:
    with ExitStack() as stack:
        postgres, url = stack.enter_context(postgres_server(folder))
        keys = {"LUCIUS_CALLBACK_KEYS": "k1:a-secret-of-the-benchmark-alone"}
        shared = {**SERVER_SETTINGS, **keys, "LUCIUS_LEDGER": url}
        upgrade = stack.enter_context(Process("db upgrade", [str(LUCIUS), "db", "upgrade"], folder / "db.log", shared))
        upgrade.wait(60)
        port = free_port()
        processes = {"postgres": postgres}
        for name, words in {
            "api": ["api", "--port", str(port)],
            "orchestrator": ["runbooks"],
            "scheduler": ["scheduler"],
        }.items():
            processes[name] = stack.enter_context(Process(name, [str(LUCIUS), *words], folder / f"{name}.log", shared))
        processes["api"].wait_ready(port, "/readyz")
        processes["worker"] = stack.enter_context(
            Process("worker", python_module("bench.runbook_worker"), folder / "worker.log", shared)
        )
        yield port, processes


def measure_place(place: Any, folder: Path, members: int, progressions: list[str]) -> Place:
    runs: list[Run] = []
    memory: list[float] = []
    with place(folder) as (port, processes):
        headers = {"Authorization": f"Bearer {API_KEY}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            run_batch(client, "independent", min(500, members), processes)  # Warm up.
            for progression in progressions:
                runs.append(run_batch(client, progression, members, processes))
                main = processes.get("server") or processes["orchestrator"]
                memory.append(main.memory_peak_mb())
                say(f"{place.__name__}, {progression}: {runs[-1].steps_per_second:,.0f}/s")
    return Place(runs, memory)


def run_batch(client: httpx.Client, progression: str, members: int, processes: Mapping[str, Process]) -> Run:
    published = client.post("/v1/runbooks", json={"yaml": RUNBOOK.replace("PROGRESSION", progression)})
    if published.status_code >= 400:
        raise BenchError(published.text)
    csv = "Upn\n" + "".join(f"user{number}@example.test\n" for number in range(members))
    cpu_before = {name: process.cpu_seconds() for name, process in processes.items()}
    made = client.post("/v1/batches", json={"runbook": "bench", "csv": csv})
    if made.status_code >= 400:
        raise BenchError(made.text)
    batch = _ended(client, made.json()["batch_id"], processes)
    phase = batch["phase_list"][-1]
    if batch["status"] != "completed":
        raise BenchError(f"the batch is {batch['status']}: {batch['error']}; the figures count for nothing")
    began, ended = (datetime.fromisoformat(phase[name]) for name in ("dispatched_at", "completed_at"))
    seconds, steps = (ended - began).total_seconds(), members * STEPS
    cpu = {
        name: round((process.cpu_seconds() - cpu_before[name]) * 1000 / steps, 3) for name, process in processes.items()
    }
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
    for name, place in (("embedded", found.embedded), ("postgres", found.postgres)):
        rates = ", ".join(f"{run.steps_per_second:,.0f} ({run.progression})" for run in place.runs)
        reached = place.steps_per_second >= GOALS[name]
        rows.append((f"step executions/s, {name}", rates, f"{GOALS[name]:,}", "yes" if reached else "no"))
    worst = max(found.tick_seconds)
    tick = f"{min(found.tick_seconds):.2f} to {worst:.2f} s"
    reached = worst < TICK_SECONDS_GOAL
    what = f"a round over {found.tick_members:,} members, no change"
    rows.append((what, tick, f"< {TICK_SECONDS_GOAL:.0f} s", "yes" if reached else "no"))
    for name, place in (("server", found.embedded), ("orchestrator", found.postgres)):
        peaks = ", ".join(f"{peak:.0f}" for peak in place.memory_mb)
        rows.append((f"memory of the {name}, peak after each batch", f"{peaks} MB", "flat", ""))
    share = found.embedded.steps_per_second / found.sqlite_rows_per_second
    rows.append(("embedded, of SQLite's rows/s (100 a commit) in the same run", f"{share:.1%}", "", ""))
    return rows


def cpu_rows(found: Found) -> Rows:
    rows: Rows = [("processor a step execution, ms", "mean of the runs")]
    for name, place in (("embedded", found.embedded), ("postgres", found.postgres)):
        for process in place.runs[0].cpu_ms_per_step:
            if process == "postgres":
                continue  # Its connections are processes of their own, which are not counted here.
            mean = statistics.mean(run.cpu_ms_per_step[process] for run in place.runs)
            rows.append((f"{name}: {process}", f"{mean:.2f}"))
    return rows


def rows_of(found: Found) -> list[Row]:
    made = []
    for name, place in (("embedded", found.embedded), ("postgres", found.postgres)):
        rate = place.steps_per_second
        cpu = sum(
            statistics.mean(run.cpu_ms_per_step[process] for run in place.runs)
            for process in place.runs[0].cpu_ms_per_step
            if process != "postgres"
        )
        limit = found.sqlite_rows_per_second
        beside = ("", "") if name == "postgres" else (f"SQLite, 100 rows a commit, {limit:,.0f}", f"{rate / limit:.1%}")
        goal = at_least(rate, GOALS[name])
        made.append(Row(f"runbook step executions/s, {name}", f"{rate:,.0f}", f"{cpu:.2f} ms a step", *beside, *goal))
    worst = max(found.tick_seconds)
    what = f"the scheduler's round over {found.tick_members:,} members, slowest"
    made.append(Row(what, f"{worst:.2f} s", "", "", "", *at_most(worst, TICK_SECONDS_GOAL, "s")))
    return made


def run(options: Options) -> Measured:
    members = QUICK_MEMBERS if options.quick else MEMBERS
    tick_members = QUICK_TICK_MEMBERS if options.quick else TICK_MEMBERS
    with scratch_folder("runbooks", options.disk) as folder:
        sqlite = measure_sqlite(folder, min(2.0, options.seconds))
        tick = asyncio.run(measure_tick(folder, tick_members))
        places = []
        for place in (embedded, on_postgres):
            inside = folder / place.__name__
            inside.mkdir()
            places.append(measure_place(place, inside, members, list(PROGRESSIONS) * options.rounds))
    found = Found(members, places[0], places[1], sqlite.grouped_rows_per_second, tick_members, tick)
    told = f"{options.rounds} batches of {members:,} members × {STEPS} steps of each progression; rates are medians."
    return Measured(rows_of(found), detail(told, table(found), cpu_rows(found)), found)


PART = Part(
    "runbooks",
    "step executions of runbooks, embedded and on PostgreSQL, beside SQLite alone",
    run,
    lambda options: (20 if options.quick else 60) + options.rounds * (10 if options.quick else 110),
)

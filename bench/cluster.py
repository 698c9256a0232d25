"""The part `cluster`: three-step jobs on the profile `cluster`, beside the embedded default in the same rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import AloneResult, LoadResult
from bench.harness import LUCIUS, Harness, HarnessOptions, check_account, clean, clean_alone, open_harness
from bench.part import Measured, Options, Part, Row, alternating, detail, median_ratio, rounds_of, say
from bench.processes import SERVER_SETTINGS, Process, free_port, python_module, scratch_folder
from bench.report import Rows

INFLIGHT = 200
WARM_UP_JOBS = 500
JOBS_MAX = 1_000_000
CLUSTER, EMBEDDED = "profile `cluster`", "embedded default"


class Run(msgspec.Struct):
    load: LoadResult
    alone: AloneResult


@contextmanager
def cluster_harness(folder: Path) -> Iterator[Harness]:
    port = free_port()
    command = [str(LUCIUS), "up", "--profile", "cluster", "--port", str(port), "--no-services"]
    command += ["--data", str(folder / "data")]
    with Process("the profile cluster", command, folder / "server.log", SERVER_SETTINGS) as server:
        server.wait_ready(port, "/readyz")
        noop = python_module("bench.services", "--port", str(port))
        with Process("the services", noop, folder / "services.log") as services:
            yield Harness(server, [services], port, connections=64)
            services.stop()
            check_account(services)


def measure_once(name: str, folder: Path, options: Options) -> Run:
    opened = cluster_harness(folder) if name == CLUSTER else open_harness(folder, HarnessOptions())
    with opened as harness:
        harness.load(INFLIGHT, WARM_UP_JOBS, options.seconds)
        load = clean(harness.load(INFLIGHT, JOBS_MAX, options.seconds))
        return Run(load, clean_alone(harness.alone(30 if options.quick else 100, warm_up=20)))


def run(options: Options) -> Measured:
    found: dict[str, list[Run]] = {EMBEDDED: [], CLUSTER: []}
    for at, order in enumerate(alternating(options.rounds, list(found))):
        for name in order:
            with scratch_folder("cluster", options.disk) as folder:
                found[name].append(measure_once(name, folder, options))
            one = found[name][-1]
            say(f"round {at + 1}, {name}: {one.load.jobs_per_second:,.0f} jobs/s, alone {one.alone.p50_ms:.1f} ms")
    told = rounds_of(options, f"at most {INFLIGHT} in flight")
    return Measured(rows_of(found), detail(told, table(found)), found)


def rows_of(found: dict[str, list[Run]]) -> list[Row]:
    rates, embedded = (_column(found[name], "rate") for name in (CLUSTER, EMBEDDED))
    alone, embedded_alone = (_column(found[name], "p50") for name in (CLUSTER, EMBEDDED))
    beside = f"embedded default, {median(embedded):,.0f}"
    ratio = f"{median_ratio(rates, embedded):.0%}"
    besides = f"embedded default, {median(embedded_alone):.1f} ms"
    return [
        Row(f"three-step jobs/s, {CLUSTER}, all of it on this machine", f"{median(rates):,.0f}", "", beside, ratio),
        Row(
            "one job alone, p50", f"{median(alone):.1f} ms", "", besides, f"{median_ratio(alone, embedded_alone):.1f} ×"
        ),
    ]


def table(found: dict[str, list[Run]]) -> Rows:
    made: Rows = [("", "three-step jobs/s", "one job alone, p50", "p99")]
    for name, runs in found.items():
        rate, p50, p99 = (median(_column(runs, field)) for field in ("rate", "p50", "p99"))
        made.append((name, f"{rate:,.0f}", f"{p50:.1f} ms", f"{p99:.1f} ms"))
    return made


def _column(runs: list[Run], field: str) -> list[float]:
    if field == "rate":
        return [one.load.jobs_per_second for one in runs]
    return [one.alone.p50_ms if field == "p50" else one.alone.p99_ms for one in runs]


PART = Part(
    "cluster",
    "the profile `cluster` with every part on this machine, beside the embedded default",
    run,
    lambda options: options.rounds * (45 + 4.5 * options.seconds),
)

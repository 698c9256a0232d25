"""`python -m bench.buses`: directives a second on each bus, and three-step jobs on the profile `cluster`.

A round publishes the same directives in batches of the dispatcher's size, first with the bare client and then over the
bus, or the other way round, and receives and settles those of the bus. The machine changes speed while it runs, so the
ratio is taken within each round.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from bench.bus_kinds import KINDS, SERVICES, Kind, Opened, Publish, lanes
from bench.figures import AloneResult, LoadResult
from bench.harness import LUCIUS, Harness, check_account
from bench.processes import ROOT, SERVER_SETTINGS, BenchError, Process, free_port, python_module, scratch_folder
from bench.report import Rows, aligned, markdown, replace_between, yes_or_no
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.dispatcher import BATCH_MAX
from lucius.ports.bus import Message

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
MARKS = ("<!-- buses:begin -->", "<!-- buses:end -->")
RATIO_GOAL = 0.70
BODY = b"x" * 1_100
"""About as long as the directive of the sample."""
RECEIVE_MAX = 250
LOCK_SECONDS = 60.0
INFLIGHT = 200
WARM_UP_JOBS = 500


class Round(NamedTuple):
    bare: float | None
    """Published a second by the bare client."""
    published: float
    settled: float
    """Received and settled a second."""


class Jobs(NamedTuple):
    load: LoadResult
    alone: AloneResult


def directives(prefix: str, count: int) -> list[Message]:
    made = []
    for number in range(count):
        topic, service = LANE_TOPICS[number % len(LANE_TOPICS)], SERVICES[number % len(SERVICES)]
        name = f"{prefix}-{number}"
        properties = {"mode": "NORMAL", "tenant_id": "acme", "jobId": name, "attempt_no": 1, "service": service}
        made.append(Message(id=name, topic=topic, body=BODY, properties=properties))
    return made


async def publish_rate(publish: Publish, messages: Sequence[Message]) -> float:
    began = time.perf_counter()
    for start in range(0, len(messages), BATCH_MAX):
        await publish(messages[start : start + BATCH_MAX])
    return len(messages) / (time.perf_counter() - began)


async def settle_rate(opened: Opened, count: int) -> float:
    """All services at once, as in one API process. Finding that nothing is left does not count."""
    ended = began = time.perf_counter()

    async def work(service: str) -> int:
        nonlocal ended
        done = 0
        while taken := await opened.bus.receive(LANE_TOPICS, service, RECEIVE_MAX, LOCK_SECONDS, 0.0):
            await opened.bus.settle([delivery.ref for delivery in taken])
            done += len(taken)
            ended = time.perf_counter()
        return done

    done = sum(await asyncio.gather(*(work(service) for service in SERVICES)))
    if done != count:
        raise BenchError(f"{count} directives were published, {done} received; the figures count for nothing")
    return count / (ended - began)


async def measure_bus(kind: Kind, settings: dict[str, str], count: int, rounds: int) -> list[Round]:
    found = []
    async with kind.open(settings) as opened:
        await opened.bus.declare(lanes())
        for at in range(rounds + 1):  # The first warms up.
            bare = None
            if opened.bare is not None and at % 2:
                bare = await publish_rate(opened.bare, directives(f"bare-{at}", count))
            published = await publish_rate(opened.bus.publish, directives(f"bus-{at}", count))
            settled = await settle_rate(opened, count)
            if opened.bare is not None and not at % 2:
                bare = await publish_rate(opened.bare, directives(f"bare-{at}", count))
            if at:
                found.append(Round(bare, published, settled))
                told = "" if bare is None else f", bare {bare:,.0f}/s, {published / bare:.0%}"
                say(f"  {kind.name}: published {published:,.0f}/s, settled {settled:,.0f}/s{told}")
    return found


def measure_buses(wanted: Sequence[str], count: int, rounds: int, disk: Path) -> dict[str, list[Round]]:
    found = {}
    for kind in KINDS:
        if kind.name in wanted:
            with (
                scratch_folder(kind.name, disk) as folder,
                kind.server(folder) as settings,
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                found[kind.name] = runner.run(measure_bus(kind, settings, count, rounds))
    return found


def measure_cluster(seconds: float, jobs_alone: int, disk: Path) -> Jobs:
    port = free_port()
    with scratch_folder("cluster", disk) as folder:
        command = [str(LUCIUS), "up", "--profile", "cluster", "--port", str(port), "--no-services"]
        command += ["--data", str(folder / "data")]
        with Process("the profile cluster", command, folder / "server.log", SERVER_SETTINGS) as server:
            server.wait_ready(port, "/readyz")
            noop = python_module("bench.services", "--port", str(port))
            with Process("the services", noop, folder / "services.log") as services:
                harness = Harness(server, [services], port, connections=64)
                harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
                load = harness.load(INFLIGHT, 1_000_000, seconds)
                alone = harness.alone(jobs_alone, warm_up=20)
                services.stop()
                check_account(services)
    if not load.clean or alone.not_succeeded:
        raise BenchError(f"ended {load.ended}, refused {load.refused}; the figures count for nothing")
    say(f"  profile cluster: {load.jobs_per_second:,.0f} jobs/s, one alone p50 {alone.p50_ms:.1f} ms")
    return Jobs(load, alone)


def rows(found: dict[str, list[Round]]) -> Rows:
    made: Rows = [("bus", "published/s", "bare client/s", "of it", "goal", "reached", "received and settled/s", "bare")]
    for kind in KINDS:
        if kind.name not in found:
            continue
        rounds = found[kind.name]
        published, settled = (median(getattr(one, name) for one in rounds) for name in ("published", "settled"))
        ratios = [one.published / one.bare for one in rounds if one.bare]
        beside = ("", "", "", "")
        if ratios:
            bare, ratio = median(one.bare for one in rounds if one.bare), median(ratios)
            beside = (f"{bare:,.0f}", f"{ratio:.0%}", f"{RATIO_GOAL:.0%}", yes_or_no(ratio >= RATIO_GOAL))
        made.append((f"`{kind.name}`", f"{published:,.0f}", *beside, f"{settled:,.0f}", kind.bare_is))
    return made


def job_rows(jobs: Jobs) -> Rows:
    load, alone = jobs
    return [
        ("profile `cluster`", "measured"),
        (f"three-step jobs/s, at most {load.inflight_max} in flight", f"{load.jobs_per_second:,.0f}"),
        ("one job alone, p50", f"{alone.p50_ms:.1f} ms"),
        ("one job alone, p99", f"{alone.p99_ms:.1f} ms"),
    ]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    names = [kind.name for kind in KINDS]
    parser = argparse.ArgumentParser(prog="python -m bench.buses", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short rounds; writes no page")
    parser.add_argument("--bus", nargs="+", choices=names, default=names, help="only these; writes no page")
    parser.add_argument("--no-jobs", action="store_true", help="leave out the profile cluster; writes no page")
    parser.add_argument("--disk", type=Path, default=RESULTS, help="folder for the data; removed afterwards")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    count, rounds, seconds, alone = (2_048, 2, 3.0, 50) if options.quick else (5_120, 5, 10.0, 200)
    try:
        found = measure_buses(options.bus, count, rounds, options.disk.resolve())
        jobs = None if options.no_jobs else measure_cluster(seconds, alone, options.disk.resolve())
    except BenchError as error:
        say(f"bench: {error}")
        return 1
    tables = [rows(found), *([] if jobs is None else [job_rows(jobs)])]
    told = f"Medians of {rounds} rounds of {count:,} directives in batches of {BATCH_MAX}."
    print("\n\n".join([told, *(aligned(table) for table in tables)]))
    if not options.quick and jobs is not None and options.bus == names:
        replace_between(PAGE, MARKS, "\n\n".join([told, *(markdown(table) for table in tables)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

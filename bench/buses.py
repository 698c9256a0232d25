"""The part `buses`: directives a second on each bus, beside the bare client of its library.

A round publishes the same directives in batches of the dispatcher's size, first with the bare client and then over the
bus, or the other way round, and receives and settles those of the bus. The machine changes speed while it runs, so the
ratio is taken within each round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from bench.bus_kinds import KINDS, SERVICES, Kind, Opened, Publish, lanes
from bench.part import Measured, Options, Part, Row, chosen, detail, say, share_at_least
from bench.processes import BenchError, scratch_folder
from bench.report import Rows, yes_or_no
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.dispatcher import BATCH_MAX
from lucius.ports.bus import Message

DIRECTIVES, QUICK_DIRECTIVES = 5_120, 2_048
RATIO_GOAL = 0.70
BODY = b"x" * 1_100
"""About as long as the directive of the sample."""
RECEIVE_MAX = 250
LOCK_SECONDS = 60.0


class Round(NamedTuple):
    bare: float | None
    """Published a second by the bare client."""
    published: float
    settled: float
    """Received and settled a second."""


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
                say(f"{kind.name}: published {published:,.0f}/s, settled {settled:,.0f}/s{told}")
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


def rows_of(found: dict[str, list[Round]]) -> list[Row]:
    made = []
    for kind in KINDS:
        rounds = found.get(kind.name, [])
        ratios = [one.published / one.bare for one in rounds if one.bare]
        if not ratios:
            continue
        published, bare = median(one.published for one in rounds), median(one.bare for one in rounds if one.bare)
        ratio = median(ratios)
        what = f"directives published/s, bus `{kind.name}`"
        beside = f"{kind.bare_is}, {bare:,.0f}/s"
        made.append(Row(what, f"{published:,.0f}", "", beside, f"{ratio:.0%}", *share_at_least(ratio, RATIO_GOAL)))
    return made


def run(options: Options) -> Measured:
    count = QUICK_DIRECTIVES if options.quick else DIRECTIVES
    found = measure_buses(chosen(options, [kind.name for kind in KINDS]), count, options.rounds, options.disk)
    told = f"Medians of {options.rounds} rounds of {count:,} directives in batches of {BATCH_MAX}."
    return Measured(rows_of(found), detail(told, rows(found)), found)


PART = Part(
    "buses",
    "directives on each bus, beside the bare client of its library",
    run,
    lambda options: 25 + (options.rounds + 1) * (8 if options.quick else 20),
    choices=tuple(kind.name for kind in KINDS),
)

"""What is on the lanes, for operators: the bus's counts, what is not there yet, and who asks for it.

Counting may cost as much as there is to count, so whoever asks at about the same time gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic

from msgspec import Struct

from lucius.domain.routing import LANE_TOPICS
from lucius.domain.time import Instant
from lucius.ports.bus import Bus, Depth
from lucius.ports.ledger import Ledger, OutboxRow
from lucius.ports.workers import WorkerKind
from lucius.usecases.sightings import Sightings

SAMPLE_SECONDS = 0.25
"""An answer is given again for this long."""
UNSENT_MAX = 5_000
"""Unsent attempts that are looked at, the oldest first: a longer backlog is shown as so many."""


class Unsent(Struct):
    """Attempts of one service on one lane that are not on the bus yet."""

    count: int = 0
    held: int = 0
    """How many of them wait for their tenant's cap."""
    oldest_at: Instant | None = None


class LaneLoad(Struct, frozen=True, kw_only=True):
    lane: int
    service: str
    depth: Depth
    unsent: Unsent
    consumers: int
    """Instances of the service that ask for work; each of them asks for all lanes."""
    last_asked_at: Instant | None


def count_unsent(rows: Iterable[object]) -> dict[tuple[int, str], Unsent]:
    """By lane and service."""
    found: dict[tuple[int, str], Unsent] = {}
    for row in rows:
        if isinstance(row, OutboxRow):
            one = found.setdefault((row.routing.lane, row.service), Unsent())
            one.count += 1
            one.held += row.attempt.is_held
            created_at = row.attempt.created_at
            one.oldest_at = created_at if one.oldest_at is None else min(one.oldest_at, created_at)
    return found


class Lanes:
    def __init__(self, bus: Bus, ledger: Ledger, sightings: Sightings) -> None:
        self._bus = bus
        self._ledger = ledger
        self._sightings = sightings
        self._counting = asyncio.Lock()
        self._loads: list[LaneLoad] = []
        self._counted_at = float("-inf")

    async def loads(self) -> list[LaneLoad]:
        """By lane and service. Raises `BusUnavailable`, `LedgerUnavailable`."""
        async with self._counting:
            if monotonic() - self._counted_at >= SAMPLE_SECONDS:
                self._loads = await self._count()
                self._counted_at = monotonic()
            return self._loads

    async def _count(self) -> list[LaneLoad]:
        depths, rows = await asyncio.gather(self._bus.depths(), self._ledger.outbox(UNSENT_MAX))
        unsent, lanes = count_unsent(rows), {topic: lane for lane, topic in enumerate(LANE_TOPICS)}
        there = self._sightings.services_there()
        found = []
        for depth in depths:
            lane, service = lanes.get(depth.topic), depth.subscription
            if lane is None:
                continue
            last = self._sightings.last_seen(WorkerKind.SERVICE, service)
            load = LaneLoad(
                lane=lane,
                service=service,
                depth=depth,
                unsent=unsent.get((lane, service), Unsent()),
                consumers=there.get(service, 0),
                last_asked_at=None if last is None else last.last_seen_at,
            )
            found.append(load)
        return sorted(found, key=lambda load: (load.lane, load.service))

"""How old the oldest waiting message of each lane was, minute by minute, for the last hour of this process."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.domain.time import Instant
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock

MINUTES = 60
SAMPLE_SECONDS = 60.0


class Sample(Struct, frozen=True):
    at: Instant
    oldest_seconds: tuple[float, ...]
    """By lane; 0 where nothing waits."""


class LaneHistory:
    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self.samples: deque[Sample] = deque(maxlen=MINUTES)

    async def take(self) -> None:
        now = self._clock.now()
        lanes = {lane_topic(lane): lane for lane in range(LANE_COUNT)}
        ages = [0.0] * LANE_COUNT
        for depth in await self._bus.depths():
            lane = lanes.get(depth.topic)
            if lane is not None and depth.oldest_at is not None and depth.ready:
                ages[lane] = max(ages[lane], (now - depth.oldest_at) / 1000)
        self.samples.append(Sample(now, tuple(ages)))

"""How old the oldest waiting message of each lane was, minute by minute, for the last hour.

Processes that reconcile take samples, once a minute; the first one of a minute is kept. So every API process shows the
same, also after it was restarted.
"""

from __future__ import annotations

from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.lane_samples import LaneSample, LaneSamples

MINUTES = 60
LOOK_SECONDS = 20.0
"""How often `take` is called: often enough for every minute to get a sample."""
MILLIS_OF_MINUTE = 60_000


class LaneHistory:
    def __init__(self, bus: Bus, store: LaneSamples, clock: Clock) -> None:
        self._bus = bus
        self._store = store
        self._clock = clock
        self._taken = 0

    @property
    def minute(self) -> int:
        """The current one, since 1970."""
        return self._clock.now() // MILLIS_OF_MINUTE

    async def samples(self) -> list[LaneSample]:
        """Of the last hour, in order; a minute in which nothing was sampled is missing."""
        return await self._store.since(self.minute - MINUTES + 1)

    async def take(self) -> None:
        """Take this minute's sample, unless this process already has."""
        minute, now = self.minute, self._clock.now()
        if minute == self._taken:
            return
        lanes = {lane_topic(lane): lane for lane in range(LANE_COUNT)}
        ages = [0.0] * LANE_COUNT
        for depth in await self._bus.depths():
            lane = lanes.get(depth.topic)
            if lane is not None and depth.oldest_at is not None and depth.ready:
                ages[lane] = max(ages[lane], round((now - depth.oldest_at) / 1000, 1))
        await self._store.add(LaneSample(minute, tuple(ages)), minute - MINUTES + 1)
        self._taken = minute

"""Conformance suite for stores of lanes over time. Provide a fixture `samples`, an open and empty store."""

from __future__ import annotations

from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.domain.time import after
from lucius.ports.bus import Depth
from lucius.ports.lane_samples import LaneSamples
from lucius.testing.samples import START, ManualClock
from lucius.usecases.lane_history import MINUTES, LaneHistory

MINUTE_SECONDS = 60.0


class Depths:
    """Of a bus, the depths alone."""

    def __init__(self) -> None:
        self.asked = 0
        self.waiting: list[Depth] = []

    async def depths(self) -> list[Depth]:
        self.asked += 1
        return self.waiting


class LaneSamplesSuite:
    async def test_every_process_shows_the_same_lanes_and_each_minute_is_measured_once(
        self, samples: LaneSamples
    ) -> None:
        clock, bus = ManualClock(), Depths()
        measuring, other = (LaneHistory(bus, samples, clock) for _ in range(2))  # type: ignore[arg-type]
        bus.waiting = [
            Depth(topic=lane_topic(3), subscription="ocr", ready=2, locked=0, dead=0, oldest_at=after(START, -90)),
            Depth(topic=lane_topic(3), subscription="sis", ready=1, locked=0, dead=0, oldest_at=after(START, -30)),
            Depth(topic=lane_topic(5), subscription="ocr", ready=0, locked=1, dead=0, oldest_at=after(START, -30)),
            Depth(topic="another", subscription="ocr", ready=1, locked=0, dead=0, oldest_at=after(START, -30)),
        ]
        for history in (measuring, measuring, other):
            await history.take()
        assert bus.asked == 2
        first = measuring.minute
        expected = tuple(90.0 if lane == 3 else 0.0 for lane in range(LANE_COUNT))
        for history in (measuring, other, LaneHistory(bus, samples, clock)):  # type: ignore[arg-type]
            assert [(sample.minute, sample.oldest_seconds) for sample in await history.samples()] == [(first, expected)]
        clock.advance(2 * MINUTE_SECONDS)
        bus.waiting = []
        await other.take()
        assert [sample.minute - first for sample in await measuring.samples()] == [0, 2], "a gap stays a gap"
        clock.advance((MINUTES - 1) * MINUTE_SECONDS)
        await measuring.take()
        assert [sample.minute - first for sample in await samples.since(0)] == [2, MINUTES + 1], "an hour is kept"

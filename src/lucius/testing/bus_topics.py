"""Bus suite, for a bus whose topics may be full, busy or missing one by one: each is on its own."""

from __future__ import annotations

import pytest

from lucius.ports.bus import Bus, BusUnavailable, Deferred, Subscription
from lucius.testing.bus_publishing import BusParts, ids, message


class BusTopicsApart(BusParts):
    async def close_topic(self, bus: Bus, topic: str) -> None:
        """Make this topic, which is empty, take no messages: full or missing, whatever can happen to it alone."""
        raise NotImplementedError

    async def open_topic(self, bus: Bus, topic: str) -> None:
        """It takes messages again."""
        raise NotImplementedError

    async def test_topic_that_takes_nothing_holds_up_no_other(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in ("lane", "other")])
        await self.close_topic(bus, "lane")
        first, second, third = await bus.publish([message("m1"), message("m2", "other"), message("m3")])
        assert isinstance(first, Deferred)
        assert "lane" in first.reason
        assert isinstance(third, Deferred)
        assert second is None
        [alone] = await bus.publish([message("m1")])
        assert isinstance(alone, Deferred), "the bus as a whole takes messages"
        assert ids(await self.take(bus, topics=["other"], wait=1.0)) == ["m2"]
        await self.open_topic(bus, "lane")
        await self.publish(bus, "m1", "m3")
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m3"]

    async def test_topic_that_takes_nothing_is_no_health_until_it_takes_a_message(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.close_topic(bus, "lane")
        assert isinstance((await bus.publish([message("m1")]))[0], Deferred)
        for _ in range(2):
            with pytest.raises(BusUnavailable, match="lane"):
                await bus.health()
        await self.open_topic(bus, "lane")
        await self.publish(bus, "m1")
        assert await bus.health()

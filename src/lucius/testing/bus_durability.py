"""Bus suite, for durable buses: what survives the process that published it.

The next process is a new client, opened after the previous one is abandoned, as after a crash.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from lucius.domain.time import after
from lucius.ports.bus import Bus, Subscription
from lucius.ports.clock import Clock
from lucius.testing.bus_publishing import BusParts, ids, message, ref


class BusDurability(BusParts):
    async def _published(self, bus: Bus, *names: str) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", delivery_max=3)])
        await self.publish(bus, *names)

    async def test_published_messages_outlive_their_process_in_order(self, bus: Bus) -> None:
        names = [f"m{place:02d}" for place in range(12)]
        await self._published(bus, *names)
        async with self.other_client(bus) as again:
            taken = await self.take(again, 20, wait=1.0)
            assert ids(taken) == names
            assert [each.body for each in taken] == [f"body of {name}".encode() for name in names]
            assert dict(taken[0].properties) == {"service": "ocr"}

    async def test_withdrawn_messages_do_not_come_back(self, bus: Bus) -> None:
        await self._published(bus, "withdrawn", "waiting")
        await bus.withdraw([ref("withdrawn")])
        async with self.other_client(bus) as again:
            left = ["waiting"] if self.can_withdraw else ["withdrawn", "waiting"]
            assert ids(await self.take(again, wait=1.0)) == left

    async def test_settled_messages_do_not_come_back(self, bus: Bus) -> None:
        await self._published(bus, "settled", "dead", "waiting")
        await self.take(bus, 2, wait=1.0)
        await bus.settle([ref("settled")])
        await bus.dead_letter([ref("dead")], "broken")
        async with self.other_client(bus) as again:
            assert ids(await self.take(again, wait=1.0)) == ["waiting"]
            assert [letter.ref for letter in await again.dead_letters(10)] == [ref("dead")]
            await self.publish(again, "settled", "dead", "waiting")
            assert await self.take(again) == []

    async def test_locked_messages_come_back_when_their_lock_has_run_out(self, bus: Bus) -> None:
        await self._published(bus, "m1")
        await self.take(bus, wait=1.0)
        await self.pass_time(self.lock_seconds)
        async with self.other_client(bus) as again:
            assert ids(await self.take(again, wait=1.0)) == ["m1"]

    async def test_delayed_messages_keep_their_time(self, bus: Bus, clock: Clock) -> None:
        await self._published(bus)
        moment = after(clock.now(), self.short_seconds)
        assert await bus.publish([message("later", deliver_at=moment)]) == [None]
        async with self.other_client(bus) as again:
            assert await self.take(again) == []
            await self.pass_time(self.short_seconds)
            assert ids(await self.take(again, wait=1.0)) == ["later"]

    async def test_subscriptions_outlive_their_process(self, bus: Bus) -> None:
        await self._published(bus)
        async with self.other_client(bus) as again:
            await self.publish(again, "m1")
            assert ids(await self.take(again, wait=1.0)) == ["m1"]


class BusDeliveryCounts(BusDurability):
    """For a durable bus whose delivery count survives the process from the first delivery on."""

    async def test_messages_that_kill_their_process_become_dead_letters(self, bus: Bus) -> None:
        """However often everything restarts: a message delivered too often becomes a dead letter."""
        await self._published(bus, "poison")
        deliveries = 0
        client = bus
        async with AsyncExitStack() as stack:
            for _ in range(8):
                await self.take(client, wait=0.1)
                await self.pass_time(self.lock_seconds)
                client = await stack.enter_async_context(self.other_client(bus))
                deliveries += 1
                if await client.dead_letters(1):
                    break
                await client.upkeep()
            assert [letter.ref for letter in await client.dead_letters(10)] == [ref("poison")]
        assert deliveries <= 5

"""Bus suite, part five: tenants of one topic. `BusTurns` is for the buses on which they take turns."""

from __future__ import annotations

from lucius.ports.bus import Bus, Delivery, Message, Subscription
from lucius.testing.bus_publishing import LONG_SECONDS, BusParts, ids, message, ref

FLOOD = 40


def of(tenant: str, count: int) -> list[Message]:
    properties = {"service": "ocr", "tenant_id": tenant}
    return [message(f"{tenant} {place:02d}", properties=properties) for place in range(count)]


def tenants(taken: list[Delivery]) -> str:
    return "".join(delivery.properties["tenant_id"][0] for delivery in taken)


class BusFairness(BusParts):
    async def queue(self, bus: Bus, *messages: list[Message]) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        for some in messages:
            assert await bus.publish(some) == [None] * len(some)

    async def take_each(self, bus: Bus, limits: list[int]) -> list[list[Delivery]]:
        return [await self.take(bus, limit, wait=1.0, lock=LONG_SECONDS) for limit in limits]

    async def test_bus_keeps_to_what_it_says_of_turns(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", FLOOD), of("small", 1))
        first = "".join(tenants(taken) for taken in await self.take_each(bus, [1, 1, 1]))
        assert ("s" in first) == bus.takes_turns, first


class BusTurns(BusFairness):
    async def test_one_tenants_flood_does_not_hold_up_another(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", FLOOD), of("small", 3))
        taken = "".join(tenants(taken) for taken in await self.take_each(bus, [1] * 8))
        assert taken in ("fsfsfsff", "sfsfsfff")

    async def test_one_take_has_equal_shares(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", FLOOD), of("small", 9), of("third", 9))
        [taken] = await self.take_each(bus, [9])
        assert sorted(tenants(taken)) == list("fffsssttt")

    async def test_what_one_leaves_of_its_share_is_for_the_others(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", FLOOD), of("small", 1), of("third", 5))
        [taken] = await self.take_each(bus, [20])
        assert sorted(tenants(taken)) == list("f" * 14 + "s" + "t" * 5)

    async def test_a_tenants_own_messages_stay_in_order(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", 12), of("small", 5))
        taken = [name for some in await self.take_each(bus, [3, 1, 4, 9]) for name in ids(some)]
        assert len(taken) == 17
        for tenant in ("flood", "small"):
            assert [name for name in taken if name.startswith(tenant)] == sorted(n for n in taken if tenant in n)

    async def test_every_tenant_of_many_has_its_turn(self, bus: Bus) -> None:
        names = [f"{letter} tenant" for letter in "abcdefghijkl"]
        await self.queue(bus, *(of(name, 4) for name in names))
        for _ in range(3):
            taken = await self.take_each(bus, [5, 5, 2])
            assert sorted("".join(tenants(some) for some in taken)) == list("abcdefghijkl")

    async def test_a_message_that_comes_back_has_its_tenants_turn(self, bus: Bus) -> None:
        await self.queue(bus, of("flood", FLOOD), of("small", 1))
        taken = [delivery for some in await self.take_each(bus, [1, 1]) for delivery in some]
        assert sorted(tenants(taken)) == ["f", "s"]
        await bus.abandon([ref("small 00")])
        assert "s" in "".join(tenants(some) for some in await self.take_each(bus, [1, 1]))

    async def test_messages_of_no_tenant_take_turns_as_one(self, bus: Bus) -> None:
        await self.queue(bus, [message(f"nobody {place}") for place in range(9)], of("small", 2))
        taken = [name for some in await self.take_each(bus, [1] * 4) for name in ids(some)]
        assert sorted(taken) == ["nobody 0", "nobody 1", "small 00", "small 01"]

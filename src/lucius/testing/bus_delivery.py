"""Bus suite, part two: order, locks, counts."""

from __future__ import annotations

import asyncio

from lucius.domain.time import after
from lucius.ports.bus import Bus, Subscription
from lucius.ports.clock import Clock
from lucius.testing.bus_publishing import LONG_SECONDS, BusParts, ids, message, ref


class BusDelivery(BusParts):
    # --- Order -------------------------------------------------------------------------------------------------------

    async def test_oldest_comes_first_within_a_topic(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        names = [f"m{place:02d}" for place in range(20)]
        for start in range(0, 20, 5):
            await self.publish(bus, *names[start : start + 5])
        taken: list[str] = []
        while len(taken) < 20:
            batch = ids(await self.take(bus, 6, wait=1.0, lock=LONG_SECONDS))
            assert 0 < len(batch) <= 6
            taken += batch
        assert taken == names

    async def test_no_topic_starves_another(self, bus: Bus) -> None:
        topics = ["full", "quiet", "still"]
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in topics])
        await self.publish(bus, *(f"full {place}" for place in range(40)), topic="full")
        await self.publish(bus, "quiet 1", topic="quiet")
        await self.publish(bus, "still 1", topic="still")
        taken: list[str] = []
        for _ in range(6):
            taken += ids(await self.take(bus, 2, topics=topics, wait=1.0, lock=LONG_SECONDS))
        assert {"quiet 1", "still 1"} <= set(taken)

    async def test_topics_take_turns_one_message_at_a_time(self, bus: Bus) -> None:
        topics = ["full", "quiet"]
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in topics])
        await self.publish(bus, *(f"full {place}" for place in range(10)), topic="full")
        await self.publish(bus, "quiet 1", "quiet 2", topic="quiet")
        taken = [name for _ in range(6) for name in ids(await self.take(bus, 1, topics=topics, wait=1.0))]
        assert "quiet 1" in taken
        assert len(taken) == 6

    async def test_receive_takes_only_from_the_topics_asked_for(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in ("lane", "other")])
        await self.publish(bus, "m1", topic="other")
        assert await self.take(bus) == []
        assert ids(await self.take(bus, topics=["lane", "other"], wait=1.0)) == ["m1"]

    async def test_receive_from_nothing_answers_nothing(self, bus: Bus) -> None:
        assert await self.take(bus, topics=[]) == []
        assert await self.take(bus, topics=["undeclared"], name="nobody") == []

    # --- Waiting -----------------------------------------------------------------------------------------------------

    async def test_receive_waits_and_then_answers_with_none(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        began = asyncio.get_running_loop().time()
        assert await self.take(bus, wait=0.3) == []
        assert asyncio.get_running_loop().time() - began >= 0.25

    async def test_receive_wakes_for_a_message_that_arrives(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in ("lane", "other")])
        waiting = asyncio.create_task(self.take(bus, topics=["lane", "other"], wait=30.0))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await self.publish(bus, "m1", topic="other")
        assert ids(await asyncio.wait_for(waiting, 10)) == ["m1"]

    async def test_receive_wakes_for_a_message_that_is_abandoned(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]
        waiting = asyncio.create_task(self.take(bus, wait=30.0))
        await asyncio.sleep(0.05)
        await bus.abandon([ref("m1")])
        assert ids(await asyncio.wait_for(waiting, 10)) == ["m1"]

    async def test_many_receivers_share_messages_without_overlap(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        names = [f"m{place}" for place in range(60)]
        await self.publish(bus, *names)
        taken: list[str] = []

        async def receiver() -> None:
            while batch := ids(await self.take(bus, 4, wait=0.5, lock=LONG_SECONDS)):
                taken.extend(batch)

        await asyncio.gather(*(receiver() for _ in range(6)))
        assert sorted(taken) == sorted(names)

    # --- Locks -------------------------------------------------------------------------------------------------------

    async def test_a_locked_message_is_not_delivered(self, bus: Bus, clock: Clock) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        [delivery] = await self.take(bus, wait=1.0)
        assert clock.now() < delivery.locked_until <= after(clock.now(), self.lock_seconds)
        assert await self.take(bus) == []

    async def test_a_lock_that_ran_out_makes_its_message_deliverable_again(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        for expected in (1, 2, 3):
            [delivery] = await self.take(bus, wait=1.0)
            assert (delivery.ref, delivery.delivery_count) == (ref("m1"), expected)
            await self.pass_time(self.lock_seconds)

    async def test_settled_messages_are_never_delivered_again(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1", "m2")
        taken = await self.take(bus, wait=1.0)
        await bus.settle([taken[0].ref])
        await self.pass_time(self.lock_seconds)
        assert ids(await self.take(bus, wait=1.0)) == ["m2"]
        await bus.settle([taken[0].ref, taken[1].ref])
        await self.pass_time(self.lock_seconds)
        assert await self.take(bus) == []

    async def test_settling_what_is_not_there_is_passed_over(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        unknown = [ref("nothing"), ref("m1", "other"), ref("m1", "lane", "nobody")]
        await bus.settle(unknown)
        await bus.settle([])
        await bus.abandon(unknown)
        await bus.dead_letter(unknown, "nothing there")
        assert await bus.renew(unknown, self.lock_seconds) == [False] * 3
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]

    async def test_settle_reaches_a_subscription_that_another_process_declared(self, bus: Bus) -> None:
        async with self.client_beside(bus) as beside:
            await beside.declare([Subscription(topic="lane", name="ocr")])
            await self.publish(beside, "taken", "waiting")
            await self.take(beside, 1, wait=1.0)
            await bus.settle([ref("taken"), ref("waiting")])
            await self.pass_time(self.lock_seconds)
            expected = set() if self.settles_for_others else {"taken", "waiting"}
            again = await self.take(beside, wait=1.0 if expected else 0.0)
            assert set(ids(again)) == expected
            await beside.settle([each.ref for each in again])
            await self.pass_time(self.lock_seconds)
            assert await self.take(beside) == []

    async def test_abandoned_message_is_deliverable_at_once(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1", "m2")
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m2"]
        await bus.abandon([ref("m1")])
        [delivery] = await self.take(bus, wait=1.0)
        assert (delivery.ref, delivery.delivery_count) == (ref("m1"), 2)

    async def test_abandoned_message_waits_for_its_delay(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await self.take(bus, wait=1.0)
        await bus.abandon([ref("m1")], delay_seconds=self.short_seconds)
        assert await self.take(bus) == []
        await self.pass_time(self.short_seconds)
        [delivery] = await self.take(bus, wait=1.0)
        assert (delivery.ref, delivery.delivery_count) == (ref("m1"), 2)

    async def test_renewed_lock_holds_longer(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await self.take(bus, wait=1.0)
        for _ in range(3):
            await self.pass_time(self.lock_seconds * 0.6)
            assert await bus.renew([ref("m1")], self.lock_seconds) == [True]
        assert await self.take(bus) == []
        await self.pass_time(self.lock_seconds)
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]

    async def test_renew_tells_which_locks_no_longer_hold(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "lost", "held", "settled")
        await self.take(bus, wait=1.0)
        await bus.settle([ref("settled")])
        await self.pass_time(self.lock_seconds * 0.6)
        assert await bus.renew([ref("held")], self.lock_seconds) == [True]
        await self.pass_time(self.lock_seconds * 0.6)
        refs = [ref("lost"), ref("held"), ref("settled"), ref("nothing")]
        assert await bus.renew(refs, self.lock_seconds) == [False, True, False, False]
        assert ids(await self.take(bus, wait=1.0)) == ["lost"]

    # --- Inspecting --------------------------------------------------------------------------------------------------

    async def test_still_queued_names_messages_that_wait_unlocked(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "locked", "settled", "dead", "waiting")
        taken = await self.take(bus, 3, wait=1.0)
        assert ids(taken) == ["locked", "settled", "dead"]
        await bus.settle([ref("settled")])
        await bus.dead_letter([ref("dead")], "broken")
        asked = [ref(name) for name in ("locked", "settled", "dead", "waiting", "nothing")]
        expected = {ref("waiting")} if self.knows_what_is_queued else set()
        assert await bus.still_queued(asked) == expected
        assert await bus.still_queued([]) == set()
        await self.pass_time(self.lock_seconds)
        expected = {ref("waiting"), ref("locked")} if self.knows_what_is_queued else set()
        assert await bus.still_queued(asked) == expected

    async def test_withdraw_takes_back_what_nobody_holds(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "locked", "settled", "dead", "waiting")
        await self.take(bus, 3, wait=1.0)
        await bus.settle([ref("settled")])
        await bus.dead_letter([ref("dead")], "broken")
        asked = [ref(name) for name in ("locked", "settled", "dead", "waiting", "nothing")]
        asked += [ref("waiting", "other"), ref("waiting", "lane", "nobody")]
        assert await bus.withdraw(asked) == ({ref("waiting")} if self.can_withdraw else set())
        assert await bus.withdraw([]) == set()
        if self.can_withdraw:
            assert await self.take(bus) == []
            assert await bus.withdraw(asked) == set()

    async def test_withdraw_takes_back_a_message_whose_lock_ran_out(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await self.take(bus, wait=1.0)
        await self.pass_time(self.lock_seconds)
        assert await bus.withdraw([ref("m1")]) == ({ref("m1")} if self.can_withdraw else set())
        if self.can_withdraw:
            assert await self.take(bus) == []

    async def test_withdraw_takes_back_a_message_that_is_not_due_yet(self, bus: Bus, clock: Clock) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await bus.publish([message("m1", deliver_at=after(clock.now(), self.short_seconds))])
        assert await bus.withdraw([ref("m1")]) == ({ref("m1")} if self.can_withdraw else set())
        await self.pass_time(self.short_seconds)
        if self.can_withdraw:
            assert await self.take(bus) == []

    async def test_message_is_either_received_or_withdrawn(self, bus: Bus) -> None:
        """By two processes at the same time, if there may be two."""
        await bus.declare([Subscription(topic="lane", name="ocr")])
        names = [f"m{place}" for place in range(40)]
        await self.publish(bus, *names)
        received: list[str] = []
        withdrawn: list[str] = []

        async def receive(client: Bus) -> None:
            while batch := ids(await self.take(client, 1, lock=LONG_SECONDS)):
                received.extend(batch)
                await asyncio.sleep(0)

        async def withdraw() -> None:
            for name in reversed(names):
                await asyncio.sleep(0)
                withdrawn.extend(one.message_id for one in await bus.withdraw([ref(name)]))

        async with self.client_beside(bus) as beside:
            await asyncio.gather(receive(beside), receive(beside), withdraw())
        assert sorted(received + withdrawn) == sorted(names)
        assert bool(withdrawn) is self.can_withdraw

    async def test_depths_count_what_waits_in_every_subscription(self, bus: Bus, clock: Clock) -> None:
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in ("lane", "other")])
        began = clock.now()
        await self.publish(bus, "m1", "m2", "m3", "m4")
        await self.take(bus, 2, wait=1.0)
        await bus.dead_letter([ref("m1")], "broken")
        depths = {(depth.topic, depth.subscription): depth for depth in await bus.depths()}
        lane, other = depths["lane", "ocr"], depths["other", "ocr"]
        assert (lane.ready, lane.locked, lane.dead) == (2, 1, 1)
        assert (other.ready, other.locked, other.dead) == (0, 0, 0)
        assert lane.oldest_at is not None
        assert began <= lane.oldest_at <= clock.now()
        assert other.oldest_at is None

    async def test_depths_count_what_was_delivered_more_than_once(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1", "m2", "m3")

        async def redelivered() -> int:
            [depth] = await bus.depths()
            return depth.redelivered

        await self.take(bus, 2, wait=1.0, lock=LONG_SECONDS)
        assert await redelivered() == 0
        await bus.abandon([ref("m1"), ref("m2")])
        await self.take(bus, 3, wait=1.0, lock=LONG_SECONDS)
        assert await redelivered() == 2
        await bus.settle([ref("m1"), ref("m2"), ref("m3")])
        assert await redelivered() == 0

    async def test_upkeep_leaves_what_is_wanted(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "waiting", "locked")
        await bus.upkeep()
        assert ids(await self.take(bus, 1, wait=1.0)) == ["waiting"]
        await bus.upkeep()
        assert ids(await self.take(bus, wait=1.0)) == ["locked"]
        await bus.upkeep()
        await self.pass_time(self.lock_seconds)
        await bus.upkeep()
        assert len(await self.take(bus, wait=1.0)) == 2

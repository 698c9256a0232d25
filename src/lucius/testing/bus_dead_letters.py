"""Bus suite, part four: dead letters, and what remains of finished messages."""

from __future__ import annotations

from typing import Any

from lucius.ports.bus import Bus, DeliveryRef, Subscription
from lucius.ports.clock import Clock
from lucius.testing.bus_publishing import BusParts, ids, message, ref

SECRET = b"a callback token"


class BusDeadLetters(BusParts):
    async def test_a_message_delivered_too_often_is_a_dead_letter(self, bus: Bus, clock: Clock) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", delivery_max=2)])
        await self.publish(bus, "m1", "m2")
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m2"]
        await bus.settle([ref("m2")])
        await self.pass_time(self.lock_seconds)
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]
        await bus.abandon([ref("m1")])
        assert await self.take(bus) == []
        [letter] = await bus.dead_letters(10)
        assert (letter.ref, letter.delivery_count) == (ref("m1"), 2)
        assert letter.reason
        assert letter.dead_at <= clock.now()

    async def test_dead_letter_sets_a_message_aside_with_its_reason(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        sent = message("m1", properties={"service": "ocr", "jobId": "j1"})
        assert await bus.publish([sent, message("m2")]) == [None, None]
        await self.take(bus, wait=1.0)
        await bus.dead_letter([ref("m1")], "malformed: no jobId")
        await self.pass_time(self.lock_seconds)
        assert ids(await self.take(bus, wait=1.0)) == ["m2"]
        [letter] = await bus.dead_letters(10)
        assert (letter.ref, letter.reason, letter.delivery_count) == (ref("m1"), "malformed: no jobId", 1)
        assert dict(letter.properties) == {"service": "ocr", "jobId": "j1"}

    async def test_dead_letters_lists_the_newest(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        names = ["m1", "m2", "m3"]
        await self.publish(bus, *names)
        await self.take(bus, wait=1.0)
        for name in names:
            await bus.dead_letter([ref(name)], "broken")
            await self.pass_time(self.short_seconds)
        assert [letter.ref.message_id for letter in await bus.dead_letters(2)] == ["m3", "m2"]

    async def test_dead_letters_lists_those_of_some_topics(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr"), Subscription(topic="other", name="ocr")])
        assert await bus.publish([message("m1"), message("m2", topic="other")]) == [None, None]
        other = DeliveryRef("other", "ocr", "m2")
        await bus.dead_letter([ref("m1"), other], "broken")
        await self.carry_out(bus, "lane", "other")
        assert [letter.ref for letter in await bus.dead_letters(10, ["other"])] == [other]
        assert [letter.ref for letter in await bus.dead_letters(10, ["other", "lane"])] != [other]
        assert await bus.dead_letters(10, ["nobody's"]) == []

    # --- Sending again -----------------------------------------------------------------------------------------------

    async def test_send_again_delivers_a_dead_letter_as_if_it_were_new(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", delivery_max=1, keeps_dead_bodies=True)])
        sent = message("m1", properties={"service": "ocr", "jobId": "j1"}, body=b"kept")
        assert await bus.publish([sent]) == [None]
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]
        await self.pass_time(self.lock_seconds)
        assert await self.take(bus) == []
        [letter] = await bus.dead_letters(10)
        assert letter.body == b"kept"
        assert await bus.send_again({ref("m1"): None}) == {ref("m1")}
        assert await bus.dead_letters(10) == []
        [again] = await self.take(bus, wait=1.0)
        assert (again.ref, again.body, again.delivery_count) == (ref("m1"), b"kept", 1)
        assert dict(again.properties) == {"service": "ocr", "jobId": "j1"}
        assert await bus.send_again({ref("m1"): None}) == set()
        await bus.settle([ref("m1")])
        assert await bus.send_again({ref("m1"): None}) == set()

    async def test_send_again_needs_a_body_where_none_was_kept(self, bus: Bus) -> None:
        await self._published_secrets(bus, "m1")
        await bus.dead_letter([ref("m1")], "broken")
        await self.carry_out(bus)
        [letter] = await bus.dead_letters(10)
        assert letter.body is None
        assert await bus.send_again({ref("m1"): None}) == set()
        assert len(await bus.dead_letters(10)) == 1
        assert await bus.send_again({ref("m1"): b"made anew", ref("never was"): b"x"}) == {ref("m1")}
        [again] = await self.take(bus, wait=1.0)
        assert (again.ref, again.body) == (ref("m1"), b"made anew")

    async def test_expired_messages_are_set_aside(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", ttl_seconds=self.short_seconds)])
        await self.publish(bus, "m1")
        await self.pass_time(self.short_seconds)
        await bus.upkeep()
        assert await self.take(bus) == []
        assert [letter.ref for letter in await bus.dead_letters(10)] == [ref("m1")]

    # --- Remains ---------------------------------------------------------------------------------------------------

    async def _published_secrets(self, bus: Bus, *names: str, **wishes: Any) -> None:
        wanted = Subscription(topic="lane", name="ocr", **wishes)
        await bus.declare([wanted])
        assert await bus.publish([message(name, body=SECRET) for name in names]) == [None] * len(names)
        assert len(await self.bodies_left(bus)) == len(names)

    async def test_settled_messages_keep_no_body(self, bus: Bus) -> None:
        await self._published_secrets(bus, "taken", "waiting")
        await self.take(bus, 1, wait=1.0)
        await bus.settle([ref("taken"), ref("waiting")])
        await self.carry_out(bus)
        assert await self.bodies_left(bus) == []

    async def test_withdrawn_messages_keep_no_body(self, bus: Bus) -> None:
        await self._published_secrets(bus, "m1")
        await bus.withdraw([ref("m1")])
        assert await self.bodies_left(bus) == ([] if self.can_withdraw else [SECRET])

    async def test_dead_letters_keep_no_body(self, bus: Bus) -> None:
        await self._published_secrets(bus, "refused", "too often", delivery_max=1)
        await self.take(bus, 2, wait=1.0)
        await bus.dead_letter([ref("refused")], "broken")
        await self.pass_time(self.lock_seconds)
        assert await self.take(bus) == []
        assert len(await bus.dead_letters(10)) == 2
        assert await self.bodies_left(bus) == []

    async def test_expired_messages_keep_no_body(self, bus: Bus) -> None:
        await self._published_secrets(bus, "m1", ttl_seconds=self.short_seconds)
        await self.pass_time(self.short_seconds)
        await bus.upkeep()
        assert len(await bus.dead_letters(10)) == 1
        assert await self.bodies_left(bus) == []

    async def test_dead_letters_keep_their_body_where_the_subscription_says_so(self, bus: Bus) -> None:
        await self._published_secrets(bus, "refused", "settled", keeps_dead_bodies=True)
        await bus.dead_letter([ref("refused")], "broken")
        await bus.settle([ref("settled")])
        await self.carry_out(bus)
        assert await self.bodies_left(bus) == [SECRET]

    async def test_subscription_declared_again_keeps_bodies_no_longer(self, bus: Bus) -> None:
        await self._published_secrets(bus, "m1", keeps_dead_bodies=True)
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await bus.dead_letter([ref("m1")], "broken")
        await self.carry_out(bus)
        assert [letter.body for letter in await bus.dead_letters(10)] == [None]
        assert await self.bodies_left(bus) == []

    async def test_dead_letters_are_forgotten_after_their_time(self, bus: Bus) -> None:
        await self._published_secrets(bus, "old", keeps_dead_bodies=True, ttl_seconds=10 * self.dead_letter_seconds)
        await bus.dead_letter([ref("old")], "broken")
        await self.carry_out(bus)
        await self.pass_time(self.dead_letter_seconds / 2)
        await self.publish(bus, "new")
        await bus.dead_letter([ref("new")], "broken")
        await self.carry_out(bus)
        await bus.upkeep()
        assert len(await bus.dead_letters(10)) == 2
        await self.pass_time(self.dead_letter_seconds / 2 + 1.0)
        await bus.upkeep()
        assert [letter.ref for letter in await bus.dead_letters(10)] == [ref("new")]

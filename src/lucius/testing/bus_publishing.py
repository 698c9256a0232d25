"""Bus suite, part one: which subscriptions get a copy of a message."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from lucius.domain.time import after
from lucius.ports.bus import Bus, Delivery, DeliveryRef, Message, Refused, Subscription
from lucius.ports.clock import Clock


def message(name: str, topic: str = "lane", **fields: Any) -> Message:
    fields.setdefault("body", f"body of {name}".encode())
    fields.setdefault("properties", {"service": "ocr"})
    return Message(id=name, topic=topic, **fields)


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.ref.message_id for delivery in deliveries]


def ref(name: str, topic: str = "lane", subscription: str = "ocr") -> DeliveryRef:
    return DeliveryRef(topic, subscription, name)


LONG_SECONDS = 60.0
"""A lock that does not run out while a test is busy."""


class BusParts:
    """Settings for an adapter's tests, and helpers that all tests of the suite use."""

    lock_seconds = 5.0
    """A lock duration that this bus supports."""
    short_seconds = 1.0
    """The shortest lock, delay or time to live that this bus supports."""
    knows_what_is_queued = True
    """Whether `still_queued` is supported; otherwise it returns none."""
    can_withdraw = True
    """Whether `withdraw` is supported; otherwise it returns none."""
    settles_unreceived_at_once = True
    """Whether a message that nobody has received is gone as soon as it is settled or made a dead letter; otherwise
    that happens when it comes up for delivery at the client that was asked."""
    settles_for_others = True
    """Whether a client settles what another client holds; otherwise such a message is delivered once more."""
    dead_letter_seconds: float
    """How long a dead letter is kept; a test waits so long."""
    duplicate_window_seconds: float | None = None
    """How long duplicates are dropped, if a test can wait so long."""

    async def pass_time(self, seconds: float) -> None:
        """Let this much time pass for the bus: by waiting, or by moving its clock."""
        raise NotImplementedError

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        """The bodies of all messages that the bus still has, in memory or in its store."""
        raise NotImplementedError

    is_shared = False
    """Whether several processes may use this bus at the same time."""

    def other_client(self, bus: Bus) -> Bus:
        """Another client of the same bus, not opened yet, as another process would have."""
        raise NotImplementedError

    def client_beside(self, bus: Bus) -> AbstractAsyncContextManager[Bus]:
        """A client of another process if there may be one, else the same client."""
        return self.other_client(bus) if self.is_shared else nullcontext(bus)

    async def take(
        self,
        bus: Bus,
        limit: int = 10,
        *,
        topics: Sequence[str] = ("lane",),
        name: str = "ocr",
        wait: float = 0.0,
        lock: float | None = None,
    ) -> list[Delivery]:
        return await bus.receive(list(topics), name, limit, self.lock_seconds if lock is None else lock, wait)

    async def carry_out(self, bus: Bus, *topics: str) -> None:
        """Let messages come up that were settled unreceived; they are not delivered."""
        if not self.settles_unreceived_at_once:
            assert await self.take(bus, topics=topics or ("lane",)) == []

    async def publish(self, bus: Bus, *names: str, topic: str = "lane") -> None:
        answers = await bus.publish([message(name, topic) for name in names])
        assert answers == [None] * len(names)


class BusPublishing(BusParts):
    async def test_health_answers(self, bus: Bus) -> None:
        assert await bus.health()

    async def test_subscription_gets_a_copy_of_every_message(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        body = bytes(range(256))
        properties = {"service": "ocr", "lane": 3, "tenant_id": "größe", "lease_id": "a'b"}
        sent = message("m1", body=body, properties=properties)
        assert await bus.publish([sent]) == [None]
        [delivery] = await self.take(bus, wait=1.0)
        assert delivery.ref == ref("m1")
        assert delivery.body == body
        assert dict(delivery.properties) == properties
        assert delivery.delivery_count == 1

    async def test_many_messages_in_one_call_all_arrive(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr"), Subscription(topic="lane", name="audit")])
        names = [f"m{place:03d}" for place in range(150)]
        await self.publish(bus, *names)
        taken = await self.take(bus, 200, wait=1.0, lock=LONG_SECONDS)
        assert ids(taken) == names
        assert [each.body for each in taken] == [f"body of {name}".encode() for name in names]
        await bus.settle([each.ref for each in taken[:100]])
        await bus.abandon([each.ref for each in taken[100:]])
        assert sorted(ids(await self.take(bus, 200, wait=1.0))) == names[100:]
        assert ids(await self.take(bus, 200, name="audit", wait=1.0)) == names

    async def test_publish_of_nothing_answers_nothing(self, bus: Bus) -> None:
        assert await bus.publish([]) == []

    async def test_message_reaches_every_subscription_of_its_topic(self, bus: Bus) -> None:
        names = ("ocr", "audit", "copy")
        await bus.declare([Subscription(topic="lane", name=name) for name in names])
        await bus.declare([Subscription(topic="other", name="ocr")])
        await self.publish(bus, "m1")
        for name in names:
            assert ids(await self.take(bus, name=name, wait=1.0)) == ["m1"]
        assert await self.take(bus, topics=["other"]) == []

    async def test_copies_are_settled_apart(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name=name) for name in ("ocr", "audit")])
        await self.publish(bus, "m1")
        await bus.settle([ref("m1")])
        assert await self.take(bus) == []
        assert ids(await self.take(bus, name="audit", wait=1.0)) == ["m1"]

    async def test_filter_lets_pass_what_matches_every_property(self, bus: Bus) -> None:
        await bus.declare(
            [
                Subscription(topic="lane", name="ocr", where={"service": "ocr"}),
                Subscription(topic="lane", name="burst", where={"service": "ocr", "mode": "BURST"}),
                Subscription(topic="lane", name="three", where={"lane": 3}),
                Subscription(topic="lane", name="all"),
            ]
        )
        wishes: dict[str, dict[str, Any]] = {
            "m1": {"service": "ocr", "mode": "DEFAULT", "lane": 3},
            "m2": {"service": "ocr", "mode": "BURST", "lane": 4},
            "m3": {"service": "sis", "mode": "BURST", "lane": 3},
            "m4": {},
        }
        sent = [message(name, properties=properties) for name, properties in wishes.items()]
        assert await bus.publish(sent) == [None] * 4
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m2"]
        assert ids(await self.take(bus, name="burst", wait=1.0)) == ["m2"]
        assert ids(await self.take(bus, name="three", wait=1.0)) == ["m1", "m3"]
        assert ids(await self.take(bus, name="all", wait=1.0)) == ["m1", "m2", "m3", "m4"]

    async def test_subscription_gets_nothing_from_before_it_was_declared(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "early")
        await bus.declare([Subscription(topic="lane", name="late")])
        await self.publish(bus, "later")
        assert ids(await self.take(bus, name="late", wait=1.0)) == ["later"]

    async def test_declaring_again_keeps_messages_and_changes_filter_and_limits(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", delivery_max=1)])
        await self.publish(bus, "m1")
        again = Subscription(topic="lane", name="ocr", where={"service": "sis"}, delivery_max=9)
        await bus.declare([again])
        await bus.declare([again])
        await self.publish(bus, "m2")
        assert await bus.publish([message("m3", properties={"service": "sis"})]) == [None]
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m3"]
        await bus.abandon([ref("m1")])
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]

    async def test_any_client_publishes_to_a_subscription_just_declared(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        async with self.client_beside(bus) as client:
            await bus.declare([Subscription(topic="lane", name="new")])
            assert await client.publish([message("m1")]) == [None]
            assert ids(await self.take(bus, name="new", wait=1.0)) == ["m1"]

    async def test_any_client_publishes_to_a_topic_just_declared(self, bus: Bus) -> None:
        async with self.client_beside(bus) as client:
            await bus.declare([Subscription(topic="lane", name="ocr")])
            assert await client.publish([message("m1")]) == [None]
            assert ids(await self.take(bus, wait=1.0)) == ["m1"]

    async def test_any_client_receives_from_a_subscription_just_declared(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        async with self.client_beside(bus) as client:
            await bus.declare([Subscription(topic="lane", name="new")])
            await self.publish(bus, "m1")
            assert ids(await self.take(client, name="new", wait=2.0)) == ["m1"]

    # --- Refusals ----------------------------------------------------------------------------------------------------

    async def test_message_that_is_too_large_is_refused_and_the_rest_taken(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        large = message("large", body=b"x" * (bus.message_bytes_max + 1))
        answers = await bus.publish([message("m1"), large, message("m2")])
        assert answers[0] is None
        assert isinstance(answers[1], Refused)
        assert str(bus.message_bytes_max) in answers[1].reason
        assert answers[2] is None
        assert bus.refusal(large) == answers[1]
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m2"]

    async def test_message_of_the_largest_size_is_taken(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        body = b"x" * (bus.message_bytes_max - 4_096)
        assert bus.refusal(message("m1", body=body)) is None
        assert await bus.publish([message("m1", body=body)]) == [None]
        [delivery] = await self.take(bus, wait=1.0)
        assert delivery.body == body

    async def test_message_to_a_topic_nobody_declared_is_refused(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        answers = await bus.publish([message("m1", "nowhere"), message("m2")])
        assert isinstance(answers[0], Refused)
        assert "nowhere" in answers[0].reason
        assert answers[1] is None

    async def test_message_that_no_filter_wants_is_taken(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr", where={"service": "sis"})])
        assert await bus.publish([message("m1")]) == [None]
        assert await self.take(bus) == []

    # --- Duplicates and delays ---------------------------------------------------------------------------------------

    async def test_duplicate_is_taken_and_dropped(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        assert await bus.publish([message("m1", body=b"another body")]) == [None]
        assert [each.body for each in await self.take(bus, wait=1.0)] == [b"body of m1"]
        await self.publish(bus, "m1")
        assert await self.take(bus) == []

    async def test_duplicate_in_one_call_is_dropped(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1", "m1", "m2")
        assert ids(await self.take(bus, wait=1.0)) == ["m1", "m2"]

    async def test_duplicate_of_a_settled_message_is_dropped(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await bus.settle([each.ref for each in await self.take(bus, wait=1.0)])
        await bus.upkeep()
        await self.publish(bus, "m1")
        assert await self.take(bus) == []

    async def test_duplicate_of_a_dead_letter_is_dropped(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await bus.dead_letter([each.ref for each in await self.take(bus, wait=1.0)], "broken")
        await self.publish(bus, "m1")
        assert await self.take(bus) == []

    async def test_same_id_in_two_topics_is_no_duplicate(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic=topic, name="ocr") for topic in ("lane", "other")])
        assert await bus.publish([message("m1"), message("m1", "other")]) == [None, None]
        taken = await self.take(bus, topics=["lane", "other"], wait=1.0)
        assert sorted(each.ref.topic for each in taken) == ["lane", "other"]

    async def test_id_may_be_used_again_after_the_duplicate_window(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1")
        await bus.settle([ref("m1")])
        assert self.duplicate_window_seconds, (
            "set how long it is, or override this test and explain why it cannot wait that long"
        )
        await self.pass_time(self.duplicate_window_seconds + 1)
        await bus.upkeep()
        await self.publish(bus, "m1")
        assert ids(await self.take(bus, wait=1.0)) == ["m1"]

    async def test_message_is_not_delivered_before_its_time(self, bus: Bus, clock: Clock) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        moment = after(clock.now(), self.short_seconds)
        assert await bus.publish([message("later", deliver_at=moment), message("now")]) == [None, None]
        assert ids(await self.take(bus, wait=1.0)) == ["now"]
        assert await self.take(bus) == []
        await self.pass_time(self.short_seconds)
        [delivery] = await self.take(bus, wait=1.0)
        assert delivery.ref.message_id == "later"
        assert delivery.delivery_count == 1

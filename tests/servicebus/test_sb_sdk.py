"""What the test server does, as Azure's own Python SDK sees it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sdk import Sdk, sdk

from lucius.testing.servicebus.filters import CorrelationFilter, Rule, SqlFilter
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings, SubscriptionSettings, TopicSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOCK = 30.0


def subscription(rule: Any = None) -> SubscriptionSettings:
    return SubscriptionSettings(QueueSettings(), [Rule("r", rule)] if rule else [Rule.default()])


SETTINGS = NamespaceSettings(
    queues={
        "work": QueueSettings(lock_seconds=LOCK, max_delivery_count=3, dead_letters_expired=True),
        "small": QueueSettings(size_bytes_max=2_000),
    },
    topics={
        "lane": TopicSettings(
            duplicate_seconds=60,
            subscriptions={
                "all": subscription(),
                "ocr": subscription(CorrelationFilter({}, {"service": "ocr"})),
                "big": subscription(SqlFilter("n > 10 AND sys.Label = 'step'")),
            },
        )
    },
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus() -> AsyncIterator[Sdk]:
    delete = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with (
        ServiceBusServer(SETTINGS) as server,
        sdk(
            server,
            {
                "work": lambda c: c.get_queue_sender("work"),
                "lane": lambda c: c.get_topic_sender("lane"),
                "small": lambda c: c.get_queue_sender("small"),
            },
            {
                "work": lambda c: c.get_queue_receiver("work"),
                "dead": lambda c: c.get_queue_receiver("work", sub_queue=ServiceBusSubQueue.DEAD_LETTER),
                **{
                    name: (lambda c, name=name: c.get_subscription_receiver("lane", name, receive_mode=delete))
                    for name in ("all", "ocr", "big")
                },
            },
        ) as opened,
    ):
        yield opened


def utc(seconds: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)


async def test_a_message_arrives_as_it_was_sent(bus: Sdk) -> None:
    sent = ServiceBusMessage(
        b'{"a": 1}',
        message_id="m1",
        correlation_id="c",
        subject="evt",
        content_type="application/json",
        reply_to="r",
        to="t",
        session_id="s",
        partition_key="s",
        time_to_live=dt.timedelta(minutes=5),
        application_properties={"text": "t1", "n": 7, "pi": 3.5, "ok": True},
    )
    await bus.send("work", sent)
    got = await bus.one("work")
    assert bytes(b"".join(got.body)) == b'{"a": 1}'
    assert (got.message_id, got.correlation_id, got.subject, got.content_type) == ("m1", "c", "evt", "application/json")
    assert (got.reply_to, got.to, got.session_id, got.partition_key) == ("r", "t", "s", "s")
    assert got.application_properties == {b"text": b"t1", b"n": 7, b"pi": 3.5, b"ok": True}
    assert got.time_to_live == dt.timedelta(minutes=5)
    assert got.delivery_count == 0
    assert got.sequence_number
    assert abs((got.enqueued_time_utc - utc(0)).total_seconds()) < 30
    assert (got.locked_until_utc - got.enqueued_time_utc).total_seconds() == pytest.approx(LOCK, abs=5)
    await bus.receivers["work"].complete_message(got)
    assert len(bus.server.namespace.queue("work")) == 0


async def test_an_abandoned_message_comes_again_and_in_the_end_is_dead_lettered(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("poison"))
    for count in range(3):
        got = await bus.one("work")
        assert got.delivery_count == count
        await bus.receivers["work"].abandon_message(got)
    dead = await bus.one("dead")
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "after 3 delivery attempts" in str(dead.dead_letter_error_description)
    assert dead.dead_letter_source == "work"
    await bus.receivers["dead"].complete_message(dead)


async def test_a_dead_letter_keeps_reason_and_description(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("bad", application_properties={"kept": 1}))
    await bus.receivers["work"].dead_letter_message(
        await bus.one("work"), reason="Poison", error_description="cannot be read"
    )
    dead = await bus.one("dead")
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Poison", "cannot be read")
    assert dead.application_properties[b"kept"] == 1
    await bus.receivers["dead"].complete_message(dead)


async def test_a_deferred_message_is_received_by_its_number(bus: Sdk) -> None:
    receiver = bus.receivers["work"]
    await bus.send("work", ServiceBusMessage("later"))
    got = await bus.one("work")
    await receiver.defer_message(got)
    assert (await receiver.peek_messages(sequence_number=got.sequence_number))[
        0
    ].state == ServiceBusMessageState.DEFERRED
    (deferred,) = await receiver.receive_deferred_messages(got.sequence_number)
    assert str(deferred) == "later"
    assert deferred.delivery_count == 1
    await receiver.complete_message(deferred)
    with pytest.raises(MessageNotFoundError):
        await receiver.receive_deferred_messages(got.sequence_number)


async def test_a_renewed_lock_outlives_its_first_end(bus: Sdk) -> None:
    receiver = bus.receivers["work"]
    await bus.send("work", ServiceBusMessage("long"))
    got = await bus.one("work")
    before = got.locked_until_utc
    bus.server.advance(LOCK - 5)
    assert await receiver.renew_message_lock(got) > before
    bus.server.advance(10)
    await receiver.complete_message(got)


async def test_a_lock_that_ran_out_refuses_settling_and_renewing(bus: Sdk) -> None:
    receiver = bus.receivers["work"]
    await bus.send("work", ServiceBusMessage("slow"))
    got = await bus.one("work")
    bus.server.advance(LOCK + 1)
    with pytest.raises(MessageLockLostError):
        await receiver.renew_message_lock(got)
    with pytest.raises(MessageLockLostError):
        await receiver.complete_message(got)
    again = await bus.one("work")
    assert again.delivery_count == 1
    await receiver.complete_message(again)


async def test_a_message_that_outlives_its_time_is_dead_lettered(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("old", time_to_live=dt.timedelta(seconds=20)))
    bus.server.advance(21)
    assert await bus.nothing("work")
    dead = await bus.one("dead")
    assert dead.dead_letter_reason == "TTLExpiredException"
    await bus.receivers["dead"].complete_message(dead)


async def test_peeking_shows_messages_and_leaves_them(bus: Sdk) -> None:
    receiver = bus.receivers["work"]
    await bus.send("work", *[ServiceBusMessage(text) for text in "abc"])
    first = (await receiver.peek_messages(sequence_number=1))[0].sequence_number
    peeked = await receiver.peek_messages(max_message_count=10, sequence_number=first)
    assert [str(message) for message in peeked] == ["a", "b", "c"]
    for got in await bus.receive("work", 3):
        assert got.delivery_count == 0
        await receiver.complete_message(got)
    assert await receiver.peek_messages(sequence_number=1) == []


async def test_scheduled_messages_come_when_due_unless_cancelled(bus: Sdk) -> None:
    receiver, sender = bus.receivers["work"], bus.senders["work"]
    due = utc(100)
    numbers = await sender.schedule_messages([ServiceBusMessage("kept"), ServiceBusMessage("gone")], due)
    await bus.send("work", ServiceBusMessage("by annotation", scheduled_enqueue_time_utc=due))
    peeked = await receiver.peek_messages(max_message_count=5, sequence_number=numbers[0])
    assert {message.state for message in peeked} == {ServiceBusMessageState.SCHEDULED}
    assert peeked[0].scheduled_enqueue_time_utc is not None
    await sender.cancel_scheduled_messages(numbers[1])
    with pytest.raises(MessageNotFoundError):
        await sender.cancel_scheduled_messages(numbers[1])
    assert await bus.nothing("work")
    bus.server.advance(110)
    got = await bus.receive("work", 2)
    assert [str(message) for message in got] == ["kept", "by annotation"]
    for message in got:
        await receiver.complete_message(message)


async def test_subscriptions_get_what_their_rules_let_through(bus: Sdk) -> None:
    await bus.send(
        "lane",
        ServiceBusMessage("1", application_properties={"service": "ocr", "n": 3}, subject="step"),
        ServiceBusMessage("2", application_properties={"service": "sis", "n": 30}, subject="step"),
        ServiceBusMessage("3", application_properties={"n": 30}, subject="other"),
    )
    found = await asyncio.gather(bus.receive("all", 3), bus.receive("ocr"), bus.receive("big"))
    assert [[str(message) for message in messages] for messages in found] == [["1", "2", "3"], ["1"], ["2"]]


async def test_duplicates_are_dropped_also_in_batches(bus: Sdk) -> None:
    batch = await bus.senders["lane"].create_message_batch()
    for index in (1, 2, 1):
        batch.add_message(ServiceBusMessage(f"d{index}", message_id=f"d{index}"))
    await bus.senders["lane"].send_messages(batch, timeout=5)
    await bus.send("lane", ServiceBusMessage("again", message_id="d2"))
    bus.server.advance(61)
    await bus.send("lane", ServiceBusMessage("after the window", message_id="d2"))
    assert [str(message) for message in await bus.receive("all", 3)] == ["d1", "d2", "after the window"]


async def test_a_large_message_crosses_many_frames(bus: Sdk) -> None:
    await bus.send("lane", ServiceBusMessage("x" * 200_000))
    assert len(str(await bus.one("all"))) == 200_000


async def test_what_is_too_large_or_too_much_is_refused(bus: Sdk) -> None:
    with pytest.raises(MessageSizeExceededError):
        await bus.send("lane", ServiceBusMessage("x" * 300_000))
    with pytest.raises(ServiceBusQuotaExceededError, match="holds its maximum of 2000 bytes"):
        await bus.send("small", *[ServiceBusMessage("x" * 1_500) for _ in range(2)])
    await bus.send("small", ServiceBusMessage("fits"))


async def test_a_missing_entity_is_named(bus: Sdk) -> None:
    with pytest.raises(MessagingEntityNotFoundError, match="'nope' could not be found"):
        async with bus.client.get_queue_sender("nope") as sender:
            await sender.send_messages(ServiceBusMessage("x"), timeout=5)


async def test_a_topic_cannot_be_received_from_nor_a_subscription_sent_to(bus: Sdk) -> None:
    with pytest.raises(ServiceBusError):
        async with bus.client.get_queue_receiver("lane") as receiver:
            await receiver.receive_messages(max_wait_time=1)

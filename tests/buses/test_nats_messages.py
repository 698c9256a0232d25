"""Messages of LUCIUS as a consumer in another process sees them, with NATS's own client alone: headers and body. The
headers stay with a message when it is buried and sent again, and one of an earlier version works without them."""

from __future__ import annotations

import asyncio
import json

from tests.buses.wire_contract import SUBSCRIPTIONS, answer, assert_contract, consume, messages

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.nats.messages import FOR_OTHERS
from lucius.buses.nats.names import Names
from lucius.clocks import SystemClock
from lucius.ports.bus import DeliveryRef, Message, Subscription

CONSUMER = """
import asyncio, json, sys, nats

async def main(server, prefix, places):
    client = await nats.connect(server)
    for place, count in places.items():
        topic, name = place.split("/")
        stream = f"{prefix}-topic-{topic}"
        consumer = await client.jetstream().pull_subscribe_bind(name, stream)
        for _ in range(count):
            [message] = await consumer.fetch(1, timeout=20)
            headers = message.headers
            words = {name: json.loads(headers.get(f"Lucius-{name}", "null"))
                     for name in ("Message-Id", "Subject", "Correlation-Id", "Properties")}
            print(json.dumps({
                "id": words["Message-Id"], "content_type": headers.get("Content-Type"), "subject": words["Subject"],
                "correlation_id": words["Correlation-Id"], "properties": words["Properties"],
                "body": message.data.decode(),
            }))
            await message.ack()
    await client.close()

server, places = sys.argv[1:]
asyncio.run(main(*server.rsplit("/", 1), json.loads(places)))
"""
LETTERS = Subscription(topic="letters", name="clerk", keeps_dead_bodies=True)


async def test_consumer_in_another_process_sees_the_contract(nats_options: NatsOptions) -> None:
    async with NatsBus(nats_options, SystemClock()) as bus:
        await bus.declare(SUBSCRIPTIONS)
        sent = messages()
        assert await bus.publish(sent) == [None] * len(sent)
        await answer(bus)
        server = f"{nats_options.servers[0]}/{nats_options.prefix}"
        assert_contract(await asyncio.to_thread(consume, CONSUMER, server))


async def test_dead_letter_keeps_what_describes_it_and_has_it_again_when_sent_again(nats_options: NatsOptions) -> None:
    names, ref = Names(nats_options.prefix), DeliveryRef("letters", "clerk", "l1")
    wanted = {
        "Content-Type": "text/plain",
        "Lucius-Subject": '"zwei\\nZeilen, gr\\u00fcn"',
        "Lucius-Correlation-Id": '"intake-42"',
    }
    async with NatsBus(nats_options, SystemClock()) as bus:
        await bus.declare([LETTERS])
        letter = Message(
            id="l1", topic="letters", body=b"hello", properties={}, content_type="text/plain",
            subject="zwei\nZeilen, grün", correlation_id="intake-42",
        )  # fmt: skip
        assert await bus.publish([letter]) == [None]

        async def described(stream: str, subject: str) -> dict[str, str]:
            stored = await bus.jetstream.last(stream, subject)
            assert stored is not None
            return {name: stored.headers[name] for name in FOR_OTHERS}

        assert await described(names.topic("letters"), names.queued(ref)) == wanted
        await bus.dead_letter([ref], "BROKEN")
        assert await described(names.dead, names.dead_letter(ref)) == wanted
        assert await bus.send_again({ref: None}) == {ref}
        assert await described(names.topic("letters"), names.queued(ref)) == wanted


async def test_message_of_an_earlier_version_is_read_buried_and_sent_again(nats_options: NatsOptions) -> None:
    names, ref = Names(nats_options.prefix), DeliveryRef("letters", "clerk", "l1")
    headers = {"Lucius-Message-Id": json.dumps("l1"), "Lucius-Properties": json.dumps({"lane": 3})}
    async with NatsBus(nats_options, SystemClock()) as bus:
        await bus.declare([LETTERS])
        await bus.jetstream.publish(names.queued(ref), b"hello", headers)
        for _ in range(2):
            (delivery,) = await bus.receive(["letters"], "clerk", 1, 30.0, 10.0)
            assert (delivery.ref, delivery.body, delivery.properties) == (ref, b"hello", {"lane": 3})
            await bus.dead_letter([ref], "BROKEN")
            assert await bus.send_again({ref: None}) == {ref}

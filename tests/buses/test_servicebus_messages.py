"""Messages of LUCIUS as a consumer in another process sees them, with Azure's SDK alone: id, content type, subject,
correlation id, properties and body."""

from __future__ import annotations

import asyncio

from tests.buses.wire_contract import SUBSCRIPTIONS, answer, assert_contract, consume, messages
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.ports.bus import Message, Subscription

CONSUMER = """
import json, sys
from azure.servicebus import ServiceBusClient

def text(value):
    return value.decode() if isinstance(value, bytes) else value

connection, places = sys.argv[1:]
with ServiceBusClient.from_connection_string(connection) as client:
    for place, count in json.loads(places).items():
        topic, name = place.split("/")
        with client.get_subscription_receiver(topic, name) as receiver:
            for _ in range(count):
                [message] = receiver.receive_messages(1, max_wait_time=20)
                print(json.dumps({
                    "id": message.message_id, "content_type": message.content_type, "subject": message.subject,
                    "correlation_id": message.correlation_id, "body": b"".join(message.body).decode(),
                    "properties": {text(k): text(v) for k, v in (message.application_properties or {}).items()},
                }))
                receiver.complete_message(message)
"""


async def test_consumer_in_another_process_sees_the_contract(servicebus_server: ServerThread) -> None:
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:
        await bus.declare(SUBSCRIPTIONS)
        sent = messages()
        assert await bus.publish(sent) == [None] * len(sent)
        await answer(bus)
        assert_contract(await asyncio.to_thread(consume, CONSUMER, bus.options.connection))
    await asyncio.to_thread(servicebus_server.forget)


async def test_long_id_is_replaced_on_the_wire_and_known_again(servicebus_server: ServerThread) -> None:
    name = "x" * 200
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        message = Message(id=name, topic="lane", body=b"{}", properties={"größe": "größer"})
        assert await bus.publish([message, message]) == [None, None]
        [delivery] = await bus.receive(["lane"], "ocr", 5, 30.0, 10.0)
        assert delivery.ref.message_id == name
        assert dict(delivery.properties) == {"größe": "größer"}
        await bus.settle([delivery.ref])
    await asyncio.to_thread(servicebus_server.forget)

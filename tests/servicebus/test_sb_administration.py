"""The administration API, as Azure's own administration client sees it: over TLS, with the test's CA."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError, ServiceRequestError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from samples import message, text_of

from lucius.testing.servicebus.https import AdministrationServer
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import TopicSettings
from lucius.testing.servicebus.tokens import SharedKey

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[ServiceBusServer, AdministrationServer]]:
    folder = tmp_path_factory.mktemp("ca")
    async with (
        ServiceBusServer(shared_key=SharedKey("tests", "secret")) as server,
        AdministrationServer(server, folder) as administration,
    ):
        yield server, administration


@pytest_asyncio.fixture(loop_scope="module")
async def server(served: tuple[ServiceBusServer, AdministrationServer]) -> AsyncIterator[ServiceBusServer]:
    yield served[0]
    for name in list(served[0].namespace.entities):
        served[0].namespace.delete(name)


@pytest_asyncio.fixture(loop_scope="module")
async def client(
    served: tuple[ServiceBusServer, AdministrationServer], server: ServiceBusServer
) -> AsyncIterator[ServiceBusAdministrationClient]:
    text, ca = served[1].connection_string, str(served[1].ca_file)
    async with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=ca, retry_total=0) as made:
        yield made


async def test_topics_are_created_found_listed_changed_and_deleted(client: ServiceBusAdministrationClient) -> None:
    made = await client.create_topic(
        "lane",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=dt.timedelta(minutes=20),
        default_message_time_to_live="P14D",
    )
    assert made.requires_duplicate_detection is True
    got = await client.get_topic("Lane")
    assert got.duplicate_detection_history_time_window == dt.timedelta(minutes=20)
    assert got.default_message_time_to_live == dt.timedelta(days=14)
    with pytest.raises(ResourceExistsError):
        await client.create_topic("lane")
    await client.create_topic("other")
    assert [topic.name async for topic in client.list_topics()] == ["lane", "other"]
    await client.update_topic(got, default_message_time_to_live="P1D")
    assert (await client.get_topic("lane")).default_message_time_to_live == dt.timedelta(days=1)
    await client.delete_topic("lane")
    with pytest.raises(ResourceNotFoundError):
        await client.get_topic("lane")
    with pytest.raises(HttpResponseError, match="'lane' could not be found"):
        await client.delete_topic("lane")


async def test_long_lists_come_in_pages(client: ServiceBusAdministrationClient, server: ServiceBusServer) -> None:
    names = [f"lane-{number:03d}" for number in range(120)]
    for name in names:
        server.namespace.create_topic(name, TopicSettings())
    assert [topic.name async for topic in client.list_topics()] == names


async def test_subscriptions_are_created_found_listed_changed_and_deleted(
    client: ServiceBusAdministrationClient,
) -> None:
    await client.create_topic("lane")
    await client.create_subscription(
        "lane",
        "ocr",
        lock_duration="PT1M",
        max_delivery_count=10,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live="P14D",
        requires_session=False,
    )
    got = await client.get_subscription("lane", "ocr")
    assert (got.lock_duration, got.max_delivery_count) == (dt.timedelta(minutes=1), 10)
    assert got.dead_lettering_on_message_expiration is True
    assert [one.name async for one in client.list_subscriptions("lane")] == ["ocr"]
    got.max_delivery_count = 3
    await client.update_subscription("lane", got)
    assert (await client.get_subscription("lane", "ocr")).max_delivery_count == 3
    with pytest.raises(ResourceExistsError):
        await client.create_subscription("lane", "OCR")
    with pytest.raises(ResourceNotFoundError):
        await client.get_subscription("lane", "sis")
    await client.delete_subscription("lane", "ocr")
    assert [one.name async for one in client.list_subscriptions("lane")] == []


async def test_rules_decide_what_a_subscription_gets(
    client: ServiceBusAdministrationClient, server: ServiceBusServer
) -> None:
    await client.create_topic("lane")
    await client.create_subscription("lane", "s")
    assert [rule.name async for rule in client.list_rules("lane", "s")] == ["$Default"]
    await client.delete_rule("lane", "s", "$Default")
    filters = {
        "correlation": CorrelationRuleFilter(label="step", properties={"service": "ocr", "n": 3, "ok": True}),
        "sql": SqlRuleFilter("service = 'sis'"),
        "never": FalseRuleFilter(),
    }
    for name, given in filters.items():
        await client.create_rule("lane", "s", name, filter=given)
    await client.create_rule("lane", "s", "action", filter=SqlRuleFilter("n = 5"), action=SqlRuleAction("SET n = 6"))
    got = await client.get_rule("lane", "s", "correlation")
    assert isinstance(got.filter, CorrelationRuleFilter)
    assert got.filter.label == "step"
    assert got.filter.properties == {"service": "ocr", "n": 3, "ok": True}
    assert (await client.get_rule("lane", "s", "sql")).filter.sql_expression == "service = 'sis'"
    assert (await client.get_rule("lane", "s", "action")).action.sql_expression == "SET n = 6"
    for sent in (
        message("1", subject="step", service="ocr", n=3, ok=True),
        message("2", subject="step", service="ocr", n=4, ok=True),
        message("3", service="sis"),
        message("4", n=5),
    ):
        server.broker.publish("lane", [sent])
    found = [stored.message for stored in server.namespace.queue("lane/subscriptions/s")]
    assert [text_of(one) for one in found] == ["1", "3", "4"]
    assert found[2].application_properties == {"n": 6}
    rule = await client.get_rule("lane", "s", "sql")
    rule.filter = TrueRuleFilter()
    await client.update_rule("lane", "s", rule)
    assert (await client.get_rule("lane", "s", "sql")).filter.sql_expression == "1=1"
    with pytest.raises(ResourceNotFoundError):
        await client.get_rule("lane", "s", "none")


async def test_counts_of_messages_are_told(client: ServiceBusAdministrationClient, server: ServiceBusServer) -> None:
    await client.create_queue("work", max_delivery_count=1)
    for text in "abc":
        server.broker.publish("work", [message(text)])
    server.broker.publish("work", [message("later", due_at=server.now() + 60)])
    queue = server.namespace.queue("work")
    assert queue.take(server.now()) is not None
    server.lose_locks("work")
    told = await client.get_queue_runtime_properties("work")
    assert (told.active_message_count, told.dead_letter_message_count, told.scheduled_message_count) == (2, 1, 1)
    assert told.size_in_bytes == queue.size_bytes
    assert [one.name async for one in client.list_queues()] == ["work"]
    assert (await client.get_queue("work")).max_delivery_count == 1


async def test_what_cannot_be_set_up_is_refused_with_its_name(client: ServiceBusAdministrationClient) -> None:
    await client.create_topic("lane")
    with pytest.raises(HttpResponseError, match="LockDuration: must be longer than nothing and at most"):
        await client.create_subscription("lane", "s", lock_duration="PT10M")
    with pytest.raises(HttpResponseError, match="forwarding is not supported"):
        await client.create_subscription("lane", "s", forward_to="work")
    await client.create_subscription("lane", "s")
    with pytest.raises(HttpResponseError, match="was expected"):
        await client.create_rule("lane", "s", "bad", filter=SqlRuleFilter("a ="))


async def test_a_wrong_key_and_an_unknown_ca_are_refused(
    served: tuple[ServiceBusServer, AdministrationServer],
) -> None:
    text, ca = served[1].connection_string, str(served[1].ca_file)
    wrong = text.replace("secret", "guess")
    async with ServiceBusAdministrationClient.from_connection_string(wrong, connection_verify=ca) as client:
        with pytest.raises(HttpResponseError, match="InvalidSignature"):
            await client.create_topic("lane")
    async with ServiceBusAdministrationClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ServiceRequestError, match="certificate"):
            await client.create_topic("lane")


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: a\r\nAuthorization: none\r\nContent-Length: 3\r\n\r\n<x>",
        b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 2_000_000,
    ],
    ids=["not HTTP", "no token", "too large"],
)
async def test_a_malformed_request_is_answered_with_an_error(
    served: tuple[ServiceBusServer, AdministrationServer], sent: bytes
) -> None:
    context = ssl.create_default_context(cafile=served[1].ca_file)
    reader, writer = await asyncio.open_connection("127.0.0.1", served[1].port, ssl=context)
    writer.write(sent)
    async with asyncio.timeout(5):
        line = await reader.readline()
    assert line.split()[1] in (b"400", b"401", b"413")
    writer.close()


async def test_no_key_is_left_in_the_folder(served: tuple[ServiceBusServer, AdministrationServer]) -> None:
    folder = Path(served[1].ca_file).parent
    assert [path.name for path in folder.iterdir()] == ["servicebus-test-ca.pem"]
    assert b"PRIVATE" not in served[1].ca_file.read_bytes()

"""The switches that hurt: each does to Azure's own SDK what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from sdk import WAIT, Sdk, sdk

from lucius.testing.servicebus.faults import Fault
from lucius.testing.servicebus.refusals import entity_full
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings
from lucius.testing.servicebus.tokens import SharedKey

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened() -> AsyncIterator[Sdk]:
    names = ("work", "other", "again")
    key = SharedKey("tests", "secret+/=")
    async with (
        ServiceBusServer(NamespaceSettings({name: QueueSettings() for name in names}), shared_key=key) as server,
        sdk(
            server,
            {"work": lambda c: c.get_queue_sender("work")},
            {"work": lambda c: c.get_queue_receiver("work")},
        ) as found,
    ):
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def bus(opened: Sdk) -> AsyncIterator[Sdk]:
    yield opened
    opened.server.faults.clear()
    for stored in opened.server.namespace.queue("work"):
        opened.server.namespace.queue("work")._remove(stored)


def held(bus: Sdk) -> int:
    return len(bus.server.namespace.queue("work"))


async def test_a_busy_server_says_so_as_often_as_told(bus: Sdk) -> None:
    bus.server.faults.busy("work", times=2)
    for _ in range(2):
        with pytest.raises(ServiceBusServerBusyError):
            await bus.send("work", ServiceBusMessage("x"))
    await bus.send("work", ServiceBusMessage("x"))
    assert held(bus) == 1
    bus.server.faults.busy("work")
    with pytest.raises(ServiceBusServerBusyError):
        await bus.receivers["work"].peek_messages()


async def test_a_full_entity_refuses(bus: Sdk) -> None:
    bus.server.faults.refuse(entity_full("work", 1), "work")
    with pytest.raises(ServiceBusQuotaExceededError):
        await bus.send("work", ServiceBusMessage("x"))
    assert bus.server.faults.happened[Fault.REFUSE] >= 1


async def test_a_fault_for_one_entity_leaves_others_alone(bus: Sdk) -> None:
    bus.server.faults.busy("other")
    await bus.send("work", ServiceBusMessage("x"))
    assert held(bus) == 1


async def test_a_forgotten_send_is_stored_all_the_same(bus: Sdk) -> None:
    bus.server.faults.forget_sends("work")
    with pytest.raises(OperationTimeoutError):
        await bus.senders["work"].send_messages(ServiceBusMessage("x"), timeout=0.5)
    assert held(bus) == 1


async def test_a_forgotten_request_is_not_answered_and_the_next_one_is(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("x"))
    bus.server.faults.forget_requests("work")
    with pytest.raises(OperationTimeoutError):
        await bus.receivers["work"].peek_messages(timeout=0.5)
    assert bus.server.faults.happened[Fault.FORGET_REQUEST] == 1
    assert [str(one) for one in await bus.receivers["work"].peek_messages(timeout=WAIT)] == ["x"]


async def test_lost_locks_are_lost_at_once(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("x"))
    got = await bus.one("work")
    bus.server.lose_locks("work")
    with pytest.raises(MessageLockLostError):
        await bus.receivers["work"].complete_message(got)
    again = await bus.one("work")
    assert again.delivery_count == 1
    await bus.receivers["work"].complete_message(again)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_an_unanswered_disposition_leaves_the_client_in_doubt(bus: Sdk, carried_out: bool) -> None:
    """The SDK waits, then asks over the management link, which tells the truth."""
    await bus.send("work", ServiceBusMessage("x"))
    receiver = bus.receivers["work"]
    got = await bus.one("work")
    receiver._config.timeout = 0.3  # How long the SDK waits for the answer; it has no setting for it.
    bus.server.faults.forget_dispositions("work", carried_out=carried_out)
    if carried_out:
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(got)
    else:
        await receiver.complete_message(got)
    assert held(bus) == 0


async def test_a_stalled_receiver_gets_nothing_until_the_fault_is_cleared(bus: Sdk) -> None:
    bus.server.faults.stall("work")
    await bus.send("work", ServiceBusMessage("x"))
    assert await bus.nothing("work")
    bus.server.faults.clear()
    await bus.receivers["work"].complete_message(await bus.one("work"))


async def test_a_dropped_link_is_an_error_once_and_is_opened_again(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("x"))
    assert bus.server.drop_links("work") >= 2
    with pytest.raises(ServiceBusError):
        await bus.send("work", ServiceBusMessage("y"))
    await bus.send("work", ServiceBusMessage("z"))
    assert held(bus) == 2


async def test_clients_come_back_after_a_restart_and_find_their_messages(bus: Sdk) -> None:
    await bus.send("work", ServiceBusMessage("kept"))
    port = bus.server.port
    bus.hold_connections()
    await bus.server.stop()
    with pytest.raises((ServiceBusError, OSError)):
        await bus.send("work", ServiceBusMessage("lost"))
    await bus.server.start()
    assert bus.server.port == port
    async with bus.client.get_queue_receiver("work") as receiver:
        (got,) = await receiver.receive_messages(max_wait_time=5)
        assert str(got) == "kept"
        await receiver.complete_message(got)


@pytest.mark.parametrize("how", ["wrong key", "refused"])
async def test_a_wrong_or_refused_token_is_an_authentication_error(bus: Sdk, how: str) -> None:
    text = bus.server.connection_string
    if how == "wrong key":
        text = text.replace("secret", "guess")
    else:
        bus.server.faults.refuse_tokens()
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_sender("again") as sender:
                await sender.send_messages(ServiceBusMessage("x"), timeout=5)


async def test_expired_tokens_detach_links_and_a_new_one_is_put(bus: Sdk) -> None:
    async with bus.client.get_queue_sender("again") as sender:
        await sender.send_messages(ServiceBusMessage("x"), timeout=5)
        assert bus.server.expire_tokens() >= 1
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("y"), timeout=5)
        await sender.send_messages(ServiceBusMessage("z"), timeout=5)
    assert len(bus.server.namespace.queue("again")) == 2


async def test_dropped_connections_are_connection_errors(bus: Sdk) -> None:
    async with bus.client.get_queue_sender("other") as sender:
        await sender.send_messages(ServiceBusMessage("x"), timeout=5)
        bus.hold_connections()
        assert bus.server.drop_connections() >= 1
        await asyncio.sleep(0.05)
        with pytest.raises((ServiceBusConnectionError, ServiceBusError, OSError)):
            await sender.send_messages(ServiceBusMessage("y"), timeout=5)
        await sender.send_messages(ServiceBusMessage("z"), timeout=5)
    assert len(bus.server.namespace.queue("other")) == 2

"""Sessions of the test server, as Azure's own Python SDK sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from sdk import Sdk, sdk

from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOCK = 30.0
NAMES = ("talks", "next", "none", "lost")
"""A queue for each test, so that they do not depend on each other."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus() -> AsyncIterator[Sdk]:
    queues = {name: QueueSettings(lock_seconds=LOCK, requires_session=True) for name in NAMES}
    senders = {name: (lambda c, name=name: c.get_queue_sender(name)) for name in NAMES}
    settings = NamespaceSettings(queues | {"plain": QueueSettings()})
    async with ServiceBusServer(settings) as server, sdk(server, senders, {}) as opened:
        yield opened


def message(text: str, session_id: str) -> ServiceBusMessage:
    return ServiceBusMessage(text, session_id=session_id)


async def test_a_session_has_its_messages_in_order_its_state_and_one_owner(bus: Sdk) -> None:
    await bus.send("talks", message("a1", "a"), message("b1", "b"), message("a2", "a"))
    async with bus.client.get_queue_receiver("talks", session_id="a") as receiver:
        got = await receiver.receive_messages(2, max_wait_time=5)
        assert [str(one) for one in got] == ["a1", "a2"]
        assert [str(one) for one in await receiver.peek_messages(5, sequence_number=1)] == ["a1", "a2"]
        session = receiver.session
        assert await session.get_state() is None
        await session.set_state("half done")
        assert bytes(await session.get_state()) == b"half done"
        before = session.locked_until_utc
        bus.server.advance(LOCK - 5)
        assert await session.renew_lock() > before
        bus.server.advance(10)
        await receiver.complete_message(got[0])
        await receiver.defer_message(got[1])
        (deferred,) = await receiver.receive_deferred_messages(got[1].sequence_number)
        await receiver.complete_message(deferred)
        with pytest.raises(SessionCannotBeLockedError):
            async with bus.client.get_queue_receiver("talks", session_id="a"):
                pass
    assert bus.server.namespace.queue("talks").sessions.state("a") == b"half done"


async def test_the_next_session_is_the_one_that_has_messages(bus: Sdk) -> None:
    await bus.send("next", message("b1", "b"))
    async with bus.client.get_queue_receiver("next", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
        assert receiver.session.session_id == "b"
        await receiver.complete_message((await receiver.receive_messages(max_wait_time=5))[0])

    async def accept() -> str:
        waiting = bus.client.get_queue_receiver("next", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10)
        async with waiting as found:
            await found.complete_message((await found.receive_messages(max_wait_time=5))[0])
            return str(found.session.session_id)

    accepting = asyncio.ensure_future(accept())
    queue = bus.server.namespace.queue("next")
    async with asyncio.timeout(10):
        while not bus.server.broker._requests[queue]:
            await asyncio.sleep(0.01)
    await bus.send("next", message("c1", "c"))
    assert await accepting == "c"


async def test_without_a_session_in_time_accepting_fails(bus: Sdk) -> None:
    with pytest.raises(OperationTimeoutError):
        async with bus.client.get_queue_receiver("none", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2):
            pass


async def test_a_lost_session_says_so(bus: Sdk) -> None:
    await bus.send("lost", message("d1", "d"))
    async with bus.client.get_queue_receiver("lost", session_id="d") as receiver:
        (got,) = await receiver.receive_messages(max_wait_time=5)
        bus.server.lose_locks("lost")
        with pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()
        with pytest.raises(ServiceBusError):
            await receiver.complete_message(got)
    async with bus.client.get_queue_receiver("lost", session_id="d") as receiver:
        (again,) = await receiver.receive_messages(max_wait_time=5)
        assert again.delivery_count == 1
        await receiver.complete_message(again)


async def test_sessions_and_entities_must_agree(bus: Sdk) -> None:
    with pytest.raises(ServiceBusError, match="requires sessions"):
        async with bus.client.get_queue_receiver("talks") as receiver:
            await receiver.receive_messages(max_wait_time=1)
    with pytest.raises(ServiceBusError, match="has no sessions"):
        async with bus.client.get_queue_receiver("plain", session_id="a"):
            pass
    with pytest.raises(ServiceBusError, match="requires sessions"):
        await bus.send("talks", ServiceBusMessage("without"))

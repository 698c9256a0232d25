"""How one subscription is read on Service Bus: as fast as callers take, and without keeping them from settling."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import Any, cast

from azure.servicebus._pyamqp.aio._client_async import ReceiveClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.servicebus.faults import Problems
from lucius.buses.servicebus.lane import (
    ANSWER_TURN_SECONDS,
    BUSY_TURN_SECONDS,
    CREDIT_FLOWING,
    CREDIT_MAX,
    IDLE_TURN_SECONDS,
    Lane,
)

CALLER = object()
STEPS = 50
"""Of the event loop, without any time passing."""


class FullReceiver:
    """Has a next message at once, always."""

    def __init__(self) -> None:
        self.read = 0
        self.turns: list[float] = []
        self.credits: list[int] = []
        self._handler = type("Handler", (), {"_connection": type("Connection", (), {})()})()

    async def __aenter__(self) -> FullReceiver:
        return self

    async def __anext__(self) -> Any:
        self.read += 1
        self.turns.append(self._handler._socket_timeout)
        self.credits.append(self._handler._link_credit)
        return f"message {self.read}"

    async def close(self) -> None:
        pass


def lane_of(receiver: FullReceiver) -> Lane:
    def make() -> ServiceBusReceiver:
        return cast(ServiceBusReceiver, receiver)

    return Lane("lane", "ocr", make, Problems("here"), lambda: None)


async def let_it_run() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


async def test_next_message_is_read_as_soon_as_one_is_taken() -> None:
    """The lane was once looked at every 20 ms, so callers that take one message at a time got fifty a second."""
    receiver = FullReceiver()
    lane = lane_of(receiver)
    lane.want(CALLER, 1 / 16)
    for count in range(1, 6):
        await let_it_run()
        assert (receiver.read, len(lane.buffer)) == (count, 1), "no more than callers wait for"
        lane.take()
    lane.leave(CALLER)
    await lane.close()


async def test_lane_asks_for_a_few_ahead_while_its_messages_flow() -> None:
    """Asking for each when the one before had come took 7 to 16 ms a message, and whoever was behind a flood waited
    for that."""
    receiver = FullReceiver()
    lane = lane_of(receiver)
    lane._last_message_at = float("-inf")
    lane.want(CALLER, 3.0)
    await let_it_run()
    assert receiver.credits == [3, CREDIT_FLOWING, CREDIT_FLOWING]
    for _ in range(3):
        lane.take()
    lane._last_message_at = float("-inf")
    await let_it_run()
    assert receiver.credits[3:] == [CREDIT_FLOWING, 2, CREDIT_FLOWING], "the fourth came after a long time"
    lane.want(CALLER, 200.0)
    await let_it_run()
    lane.buffer.clear()
    await lane.close()
    assert receiver.credits[6] == CREDIT_MAX


async def test_turns_are_short_while_messages_are_in_hand() -> None:
    receiver = FullReceiver()
    lane = lane_of(receiver)
    for in_hand in (0, 1, 0):
        lane.in_hand[cast(ServiceBusReceiver, receiver)] = in_hand
        lane.want(CALLER, 1.0)
        await let_it_run()
        lane.leave(CALLER)
        lane.take()
    await lane.close()
    assert receiver.turns == [IDLE_TURN_SECONDS, BUSY_TURN_SECONDS, IDLE_TURN_SECONDS]
    assert receiver._handler._connection._socket_timeout == ANSWER_TURN_SECONDS


async def test_lane_whose_reading_passes_over_being_cancelled_is_closed() -> None:
    """As `asyncio.wait_for` of Python 3.11 does when its time is up at that moment: a bus was never closed."""

    class Stubborn(FullReceiver):
        async def __anext__(self) -> Any:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60.0)
            raise StopAsyncIteration

    lane = lane_of(Stubborn())
    lane.want(CALLER, 1.0)
    await let_it_run()
    lane.leave(CALLER)
    async with asyncio.timeout(5.0):
        await lane.close()


def test_sdk_takes_the_length_of_turns_from_where_it_is_set() -> None:
    """They have no public name. Should the SDK rename them, `lane.take_turns` has to follow."""
    assert "listen(wait=self._socket_timeout" in inspect.getsource(ReceiveClientAsync._client_run_async)
    assert "timeout = self._socket_timeout" in inspect.getsource(Connection._read_frame)


def test_sdk_takes_the_credit_from_where_it_is_set() -> None:
    assert "flow(link_credit=self._link_credit)" in inspect.getsource(ReceiveClientAsync._client_run_async)

"""One subscription as this process receives from it: a receiver, and the task that reads it.

The receiver reads only while somebody waits for messages, and its credit is the callers' share, so a process locks
little more than it was asked for. While messages are taken as fast as they come it reads a few ahead, because asking
for each takes longer than some callers' work. A message that comes when nobody waits any more is released, which does
not count as a delivery. A receiver that fails, or has brought nothing for a long time although somebody waits, is
replaced.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.servicebus.faults import CALL_ERRORS, Kind, Problems, end, kind_of, sdk_call

log = logging.getLogger("lucius.bus")

CREDIT_MAX = 100
CREDIT_FLOWING = 4
"""Of a lane whose messages flow, also if callers wait for fewer."""
FLOWING_SECONDS = 0.1
"""Messages flow while no more time passes between one that is read and the next."""
PREFETCH = 1
"""Any number makes the SDK keep what comes while nobody reads; `ask` says how many may come."""
SHARE_DIGITS = 6
"""Of a sum of shares; further ones are errors of rounding."""
OPEN_SECONDS = 20.0
CLOSE_SECONDS = 5.0
READ_SECONDS = 1.0
"""How long one read waits for a message."""
UNWANTED_SECONDS = 0.3
"""How long a lane that nobody waits for keeps its credit, and what has come, for the next caller."""
IDLE_SECONDS = 60.0
"""A receiver that nobody has used for so long is closed, if it holds nothing."""
RETIRED_SECONDS_MAX = 300
"""How long a receiver that reads no more is kept for the messages in hand: the longest lock."""
SILENCE_SECONDS = 300.0
IDLE_TURN_SECONDS = 0.2
"""How long a receiver that waits for a message keeps other calls from its connection: the SDK's own value."""
BUSY_TURN_SECONDS = 0.01
"""The same while messages of it are in hand, which are to be settled over that connection."""
ANSWER_TURN_SECONDS = 0.002
"""How long a call that settles a message keeps others from the connection while it waits for its answer."""
RETRY_SECONDS = 1.0
BUSY_SECONDS = 10.0


class Lane:
    def __init__(
        self,
        topic: str,
        name: str,
        make: Callable[[], ServiceBusReceiver],
        problems: Problems,
        arrived: Callable[[], None],
        silence_seconds: float = SILENCE_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.topic, self.name = topic, name
        self.entity = f"subscription {topic}/{name}"
        self.buffer: deque[tuple[ServiceBusReceivedMessage, ServiceBusReceiver]] = deque()
        self.in_hand: Counter[ServiceBusReceiver] = Counter()
        """How many messages of each receiver callers have."""
        self.replaced = 0
        self.is_broken = False
        self._make = make
        self._problems = problems
        self._arrived = arrived
        self._silence_seconds = silence_seconds
        self._busy_seconds = busy_seconds
        self._receiver: ServiceBusReceiver | None = None
        self._is_flowing = False
        self._wanted: dict[object, float] = {}
        """By caller, its share of what it waits for: the rest comes from other lanes."""
        self._wanted_by_all = 0.0
        self._is_wanted = asyncio.Event()
        self._has_room = asyncio.Event()
        """Somebody waits for more than has come."""
        self._last_message_at = 0.0
        self._quiet_since: float | None = None
        """Since when this receiver has asked and got nothing."""
        self._task: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    # --- Who waits ---------------------------------------------------------------------------------------------------

    def want(self, caller: object, share: float) -> None:
        loop = asyncio.get_running_loop()
        self._wanted_by_all += share - self._wanted.get(caller, 0.0)
        self._wanted[caller] = share
        self._is_wanted.set()
        self._weigh()
        if self._task is None or self._task.done():
            self._last_message_at = loop.time()
            self._task = asyncio.create_task(self._run(), name=f"service bus: {self.entity}")

    def leave(self, caller: object) -> None:
        self._wanted_by_all -= self._wanted.pop(caller, 0.0)
        if not self._wanted:
            self._wanted_by_all = 0.0
            self._is_wanted.clear()
        self._weigh()

    def take(self) -> tuple[ServiceBusReceivedMessage, ServiceBusReceiver]:
        """The oldest message that has come."""
        taken = self.buffer.popleft()
        self._weigh()
        return taken

    def _weigh(self) -> None:
        if self._demand > len(self.buffer):
            self._has_room.set()
        else:
            self._has_room.clear()

    @property
    def _demand(self) -> int:
        return math.ceil(round(self._wanted_by_all, SHARE_DIGITS))

    def is_answered(self, seconds: float) -> bool:
        """Whether a receiver has asked for messages for so long and got none, or cannot ask."""
        since = self._quiet_since
        return self.is_broken or (since is not None and asyncio.get_running_loop().time() - since >= seconds)

    async def close(self) -> None:
        if self._task is not None:
            await end(self._task)
        while self.buffer:
            message, receiver = self.take()
            await release(receiver, message)
        await self._drop()
        self.in_hand.clear()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    # --- The task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except Exception as error:
                self._problems.met(self.entity, error)
                self.is_broken = True
                self._arrived()
                await self._drop()
                await asyncio.sleep(self._busy_seconds if kind_of(error) is Kind.BUSY else RETRY_SECONDS)
                await self._is_wanted.wait()

    async def _step(self) -> None:
        loop = asyncio.get_running_loop()
        if self._receiver is None:
            await self._open()
        if len(self.buffer) >= self._demand:
            await self._rest()
            return
        if self._quiet_since is None:
            self._quiet_since = loop.time()
        message = await self._read()
        if message is not None and self._receiver is not None:
            self._quiet_since = None
            self._is_flowing = loop.time() - self._last_message_at <= FLOWING_SECONDS
            self._last_message_at = loop.time()
            self._problems.gone(self.entity)
            self.buffer.append((message, self._receiver))
            self._weigh()
            self._arrived()
        elif loop.time() - self._last_message_at > self._silence_seconds:
            # It may hang without an error; a new one costs little.
            log.info("%s on Service Bus: nothing came for %g s; its receiver is replaced",
                     self.entity, self._silence_seconds)  # fmt: skip
            self.replaced += 1
            self._last_message_at = loop.time()
            await self._retire()

    async def _read(self) -> ServiceBusReceivedMessage | None:
        receiver = self._receiver
        assert receiver is not None
        missing = self._demand - len(self.buffer)
        ask(receiver, min(max(missing, CREDIT_FLOWING if self._is_flowing else 1), CREDIT_MAX))
        take_turns(receiver, is_busy=bool(self.buffer or self.in_hand[receiver]))
        try:
            # The iterator ends after READ_SECONDS without a message; the deadline is for one that hangs.
            async with sdk_call(self._silence_seconds):
                return await anext(receiver)
        except StopAsyncIteration:
            self._problems.gone(self.entity)
            return None

    async def _rest(self) -> None:
        """Until somebody waits again; gives back what nobody wanted, and closes the receiver in the end."""
        self._quiet_since = None
        for seconds, then in ((UNWANTED_SECONDS, self._give_back), (IDLE_SECONDS, self._retire)):
            try:
                async with asyncio.timeout(seconds):
                    await self._has_room.wait()
                return
            except TimeoutError:
                await then()
        await self._has_room.wait()

    async def _open(self) -> None:
        self._receiver = receiver = self._make()
        async with sdk_call(OPEN_SECONDS):
            await receiver.__aenter__()
        self.is_broken = False
        self._problems.gone(self.entity)

    async def _retire(self) -> None:
        """Read no more, and close the receiver when the messages in hand are settled, which only it can do."""
        receiver, self._receiver = self._receiver, None
        self._quiet_since = None
        if receiver is not None:
            await drain(receiver)
            self._leave_to(self._close_when_settled(receiver))

    async def _close_when_settled(self, receiver: ServiceBusReceiver) -> None:
        for _ in range(RETIRED_SECONDS_MAX):
            if not self.in_hand[receiver]:
                break
            await asyncio.sleep(1.0)
        await _close(receiver)
        del self.in_hand[receiver]

    async def _drop(self) -> None:
        """Closing releases what the receiver has read ahead. Messages in hand can then no longer be settled, and come
        again."""
        receiver, self._receiver = self._receiver, None
        self._quiet_since = None
        self.buffer = deque(one for one in self.buffer if one[1] is not receiver)
        self._weigh()
        if receiver is not None:
            self._leave_to(_close(receiver))

    def _leave_to(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _give_back(self) -> None:
        """Release what nobody wanted, and take back the credit: what came would be locked unseen."""
        self._is_flowing = False
        while self.buffer:
            message, receiver = self.take()
            await release(receiver, message)
        if self._receiver is not None and not await drain(self._receiver):
            await self._retire()


async def release(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    """Unlock a message that nobody has seen. The SDK does this itself for messages that it has read ahead, without a
    public call; abandoning would count as a delivery."""
    with suppress(*CALL_ERRORS):
        async with sdk_call(CLOSE_SECONDS):
            handler: Any = receiver._handler
            if handler is not None:  # Closed, and the message released with it.
                await handler.settle_messages_async(message._delivery_id, message._delivery_tag, "released")


def ask(receiver: ServiceBusReceiver, credit: int) -> None:
    """How many messages may come once those that were asked for have come. The SDK takes this from the number with
    which a receiver was made, and has no public call to change it."""
    handler: Any = receiver._handler
    if handler is not None:
        handler._link_credit = credit


def take_turns(receiver: ServiceBusReceiver, is_busy: bool) -> None:
    """The SDK lets one call at a time use a connection: while a receiver waits for messages, nothing can be settled,
    and while a settling call waits for its answer, no message is read. A turn lasts until something comes, or for a
    time that has one public setting for both. Turns are short only while there is something to settle: an idle
    receiver would spend processor time on them for nothing."""
    handler: Any = receiver._handler
    if handler is not None and handler._connection is not None:
        handler._socket_timeout = BUSY_TURN_SECONDS if is_busy else IDLE_TURN_SECONDS
        handler._connection._socket_timeout = ANSWER_TURN_SECONDS


async def drain(receiver: ServiceBusReceiver) -> bool:
    """Take back a receiver's credit and release what it has read ahead: what the SDK does before it closes one, and
    has no public call for. False if that is not possible."""
    try:
        async with sdk_call(CLOSE_SECONDS):
            transport: Any = receiver._amqp_transport
            await transport.drain_and_release_messages_async(receiver._handler)
    except CALL_ERRORS:
        return False
    return True


async def _close(receiver: ServiceBusReceiver) -> None:
    with suppress(*CALL_ERRORS):
        async with sdk_call(CLOSE_SECONDS):
            await receiver.close()

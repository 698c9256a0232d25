"""Sending: one sender for each topic, kept open, and one task that owns it.

Whoever publishes puts messages into the task's queue and waits for the answer. The task sends what has gathered in
batches within Service Bus's limits. A sender that fails is replaced, and so is one that has been idle: the service
detaches idle links after ten minutes, and the send that finds out takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, MessagingEntityNotFoundError

from lucius.buses.servicebus.faults import CALL_ERRORS, EntityUnavailable, Kind, Problems, end, kind_of, sdk_call
from lucius.ports.bus import BusUnavailable, Refused

BATCH_MESSAGES_MAX = 1_000
CALL_SECONDS = 10.0
HARD_SECONDS = 20.0
"""After this a call is given up, whatever the SDK still waits for."""
TROUBLED_SECONDS = 0.5
"""How long a message to a topic that was full or busy is waited for: others wait behind it, and the SDK tries again
for seconds before it says so."""
SILENT_SECONDS = 3.0
"""How long a topic that does not answer is waited for while others do."""
ANSWERED_SECONDS = 30.0
"""A topic that has taken a message within so many seconds is one that answers."""
IDLE_SECONDS = 300.0
BUSY_SECONDS = 10.0
CLOSE_SECONDS = 5.0

Item = tuple[ServiceBusMessage | None, "asyncio.Future[Refused | None]"]
"""Without a message: only open the sender."""


class TopicSender:
    def __init__(
        self,
        topic: str,
        make: Callable[[], ServiceBusSender],
        problems: Problems,
        busy_seconds: float = BUSY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.topic = topic
        self.is_missing = False
        self.replaced = 0
        self._entity = f"topic {topic}"
        self._make = make
        self._problems = problems
        self._busy_seconds = busy_seconds
        self._idle_seconds = idle_seconds
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._sender: ServiceBusSender | None = None
        self._held_up: tuple[float, str] = (0.0, "")
        """Until when nothing is sent, in the loop's time, and why."""
        self._answered_at = -inf
        self._waits_since = inf
        """Since when a call has not been answered."""
        self._task = asyncio.create_task(self._run(), name=f"service bus: sending to {topic}")

    @property
    def answers(self) -> bool:
        """Whether it has taken a message lately."""
        return asyncio.get_running_loop().time() - self._answered_at < ANSWERED_SECONDS

    async def send(
        self, messages: Sequence[ServiceBusMessage], others_answer: Callable[[], bool] = lambda: False
    ) -> list[Refused | None]:
        """One answer for each. Raises `BusUnavailable`, or `EntityUnavailable` if others than this topic may work; what
        of these messages was sent is then unknown. `others_answer`: whether other topics do."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._held_up[0]:
            raise EntityUnavailable(self._held_up[1])
        trouble = self._problems.unavailable(self._entity) if self._has_no_room else None
        is_silent = loop.time() - self._waits_since > SILENT_SECONDS and others_answer()
        patience = SILENT_SECONDS if trouble is None and not is_silent else TROUBLED_SECONDS
        items: list[Item] = [(message, loop.create_future()) for message in messages]
        for item in items:
            self._queue.put_nowait(item)
        futures = [future for _, future in items]
        try:
            while (await asyncio.wait(futures, timeout=patience))[1]:
                if trouble is not None:
                    raise trouble
                if others_answer():
                    raise EntityUnavailable(
                        f"{self._entity} on Service Bus at {self._problems.location} does not answer, and others do"
                    )
        finally:
            for future in futures:
                future.cancel()
        answers = await asyncio.gather(*futures, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def check(self) -> None:
        """Open the sender if it is not open: whether that works is among the problems. Whether there is room, or the
        service is less busy, is not found out without a message."""
        future: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((None, future))
        with suppress(BusUnavailable):
            await future

    async def close(self) -> None:
        await end(self._task)
        await self._drop()

    async def _run(self) -> None:
        """Send what gathers, but for what nobody waits for any more."""
        waiting: list[Item] = []
        try:
            await self._warm()
            while True:
                try:
                    async with asyncio.timeout(self._idle_seconds):
                        waiting.append(await self._queue.get())
                except TimeoutError:
                    self.replaced += 1
                    await self._drop()
                    await self._warm()
                    continue
                while not self._queue.empty() and len(waiting) < BATCH_MESSAGES_MAX:
                    waiting.append(self._queue.get_nowait())
                while waiting := [item for item in waiting if not item[1].done()]:
                    waiting = await self._send(waiting)
        finally:
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            for _, future in waiting:
                if not future.done():
                    future.set_exception(BusUnavailable(f"{self._entity}: the bus was closed"))

    async def _warm(self) -> None:
        """Open the sender before the first message needs it."""
        with suppress(BusUnavailable):
            await self._opened()

    async def _opened(self) -> ServiceBusSender:
        if self._sender is None:
            sender = None
            try:
                async with sdk_call(HARD_SECONDS):
                    sender = self._make()
                    await sender.__aenter__()
            except Exception as error:
                if sender is not None:
                    await _close(sender)
                raise self._failed(error) from error
            self._sender = sender
            self._worked(has_sent=False)
        return self._sender

    async def _send(self, items: list[Item]) -> list[Item]:
        """Sends a batch; returns what did not fit."""
        batch: list[Item] = []
        self._waits_since = asyncio.get_running_loop().time()
        try:
            sender = await self._opened()
            async with sdk_call(HARD_SECONDS):
                wire = await sender.create_message_batch()
                for place, (message, future) in enumerate(items):
                    if message is None:
                        batch = items[: place + 1]
                        continue
                    try:
                        wire.add_message(message)
                    except MessageSizeExceededError as error:
                        if batch:
                            break
                        _answer(future, Refused(f"the message is too large for Service Bus: {error}"))
                        return items[1:]
                    batch = items[: place + 1]
                if len(wire):
                    await sender.send_messages(wire, timeout=CALL_SECONDS)
        except BusUnavailable as error:
            _fail(items, error)
            return []
        except MessageSizeExceededError as error:
            if len(batch) == 1:
                _answer(batch[0][1], Refused(f"the message is too large for Service Bus: {error}"))
                return items[1:]
            _fail(items, self._failed(error))
            return []
        except Exception as error:
            unavailable = self._failed(error)
            if kind_of(error) not in (Kind.BUSY, Kind.FULL):
                await self._drop()
            _fail(items, unavailable)
            return []
        finally:
            self._waits_since = inf
        self._worked(has_sent=len(wire) > 0)
        for _, future in batch:
            _answer(future, None)
        return items[len(batch) :]

    def _failed(self, error: BaseException) -> BusUnavailable:
        unavailable = self._problems.met(self._entity, error)
        self.is_missing = isinstance(error, MessagingEntityNotFoundError)
        if kind_of(error) is Kind.BUSY:
            self._held_up = (asyncio.get_running_loop().time() + self._busy_seconds, str(unavailable))
        return unavailable

    def _worked(self, has_sent: bool) -> None:
        """An open link says nothing about room: only a message that was taken does."""
        self.is_missing = False
        if has_sent:
            self._answered_at = asyncio.get_running_loop().time()
        if has_sent or not self._has_no_room:
            self._problems.gone(self._entity)

    @property
    def _has_no_room(self) -> bool:
        return self._problems.kind(self._entity) in (Kind.BUSY, Kind.FULL)

    async def _drop(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await _close(sender)


async def _close(sender: ServiceBusSender) -> None:
    with suppress(*CALL_ERRORS):
        async with sdk_call(CLOSE_SECONDS):
            await sender.close()


def _answer(future: asyncio.Future[Refused | None], refused: Refused | None) -> None:
    if not future.done():
        future.set_result(refused)


def _fail(items: Sequence[Item], error: BusUnavailable) -> None:
    for _, future in items:
        if not future.done():
            future.set_exception(type(error)(str(error)))

"""Dead letters: the dead-letter queue of each subscription, which Service Bus keeps itself.

A letter keeps its body there; it is shown only if the subscription says so. Service Bus never deletes a dead letter,
so upkeep does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.servicebus.browsing import Browsing, Place, close_quietly, entity_of
from lucius.buses.servicebus.faults import CALL_ERRORS, LOCK_LOST, Problems, sdk_call
from lucius.buses.servicebus.lane import release
from lucius.buses.servicebus.messages import again, body_of, id_of, instant_of, properties_of
from lucius.domain.time import Instant, after
from lucius.ports.bus import DeadLetter, DeliveryRef, Subscription
from lucius.ports.clock import Clock

READ_MAX = 5_000
"""Dead letters of one subscription that are read to find the newest, or one of them."""
TAKEN_AT_ONCE = 50
WAIT_SECONDS = 1.0
CALL_SECONDS = 10.0
OPEN_SECONDS = 20.0
LOOKS_AT_ONCE = 16

Send = Callable[[str, ServiceBusMessage], Any]


class DeadLetters:
    def __init__(self, browsing: Browsing, problems: Problems, clock: Clock, dead_seconds: float, send: Send) -> None:
        self._browsing = browsing
        self._problems = problems
        self._clock = clock
        self._dead_seconds = dead_seconds
        self._send = send
        self._slots = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def newest(self, limit: int, subscriptions: Sequence[Subscription]) -> list[DeadLetter]:
        found = await asyncio.gather(*(self._of(one) for one in subscriptions))
        letters = sorted((letter for some in found for letter in some), key=lambda one: one.dead_at, reverse=True)
        return letters[:limit]

    async def _of(self, one: Subscription) -> list[DeadLetter]:
        async with self._slots:
            return [
                _letter(one, message) async for message in self._browsing.all((one.topic, one.name, True), 1, READ_MAX)
            ]

    async def send_again(self, one: Subscription, bodies: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        """Takes the letters of one subscription out of its dead-letter queue and sends them as new messages."""
        back: set[DeliveryRef] = set()
        others = []
        async with self._opened((one.topic, one.name, True)) as receiver:
            seen = 0
            while seen < READ_MAX and len(back) < len(bodies):
                taken = await _take(receiver)
                if not taken:
                    break
                seen += len(taken)
                for message in taken:
                    ref = _ref(one, message)
                    body = bodies.get(ref)
                    if ref in bodies and body is None and one.keeps_dead_bodies:
                        body = body_of(message)
                    if body is None or ref in back:
                        others.append(message)
                        continue
                    await self._send(one.topic, again(message, body, ref.message_id, one.name))
                    await _settled(receiver.complete_message(message))
                    back.add(ref)
            await asyncio.gather(*(release(receiver, message) for message in others))
        return back

    async def forget_old(self, one: Subscription) -> None:
        place = (one.topic, one.name, True)
        async with self._slots:
            oldest = await self._browsing.page(place, 1, 1)
            if not oldest or not self._is_old(oldest[0]):
                return
            async with self._opened(place) as receiver:
                while taken := await _take(receiver):
                    is_old = [self._is_old(message) for message in taken]
                    await asyncio.gather(
                        *(
                            _settled(receiver.complete_message(message)) if old else release(receiver, message)
                            for message, old in zip(taken, is_old, strict=True)
                        )
                    )
                    if not all(is_old):
                        return

    def _is_old(self, message: ServiceBusReceivedMessage) -> bool:
        return after(_dead_at(message), self._dead_seconds) <= self._clock.now()

    @asynccontextmanager
    async def _opened(self, place: Place) -> Any:
        receiver: ServiceBusReceiver = self._browsing.receiver(place)
        try:
            async with sdk_call(OPEN_SECONDS):
                await receiver.__aenter__()
            yield receiver
        except CALL_ERRORS as error:
            raise self._problems.met(entity_of(place), error) from error
        finally:
            await close_quietly(receiver)


async def _take(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    async with sdk_call(OPEN_SECONDS):
        return await receiver.receive_messages(TAKEN_AT_ONCE, max_wait_time=WAIT_SECONDS)


async def _settled(call: Any) -> None:
    try:
        async with sdk_call(CALL_SECONDS):
            await call
    except LOCK_LOST:
        pass  # Somebody else has it.


def _ref(one: Subscription, message: ServiceBusReceivedMessage) -> DeliveryRef:
    return DeliveryRef(one.topic, one.name, id_of(message) or f"#{message.sequence_number}")


def _dead_at(message: ServiceBusReceivedMessage) -> Instant:
    return instant_of(message.enqueued_time_utc)


def _letter(one: Subscription, message: ServiceBusReceivedMessage) -> DeadLetter:
    reason = message.dead_letter_reason or "UNKNOWN"
    if message.dead_letter_error_description:
        reason = f"{reason}: {message.dead_letter_error_description}"
    return DeadLetter(
        ref=_ref(one, message),
        properties=properties_of(message),
        delivery_count=message.delivery_count or 0,
        reason=reason,
        dead_at=_dead_at(message),
        body=body_of(message) if one.keeps_dead_bodies else None,
    )

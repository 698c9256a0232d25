"""The messages that callers of this process have, and their locks.

A caller says for how long it locks a message; on Service Bus that is a property of the subscription. A lock that is to
last longer is renewed, one that is to end earlier is ended by abandoning the message. What is not held here is noted:
when a message comes that was settled before, it is completed instead of being delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.servicebus.faults import CALL_ERRORS, LOCK_LOST, sdk_call
from lucius.buses.servicebus.lane import Lane
from lucius.buses.servicebus.messages import instant_of
from lucius.domain.time import Instant, after
from lucius.ports.bus import DeliveryRef
from lucius.ports.clock import Clock

log = logging.getLogger("lucius.bus")

CALL_SECONDS = 10.0
HARD_SECONDS = 20.0
"""After this a call is given up, whatever the SDK still waits for."""
TICK_SECONDS = 0.5
RENEW_MARGIN_SECONDS = 3.0
NOTED_MAX = 20_000
OVER_MAX = 20_000
REASON_CHARS_MAX = 1_024
CALLS_MAX = 100


@dataclass(slots=True, eq=False)
class Held:
    message: ServiceBusReceivedMessage
    receiver: ServiceBusReceiver
    lane: Lane
    until: Instant
    """When the caller's lock ends."""
    locked_until: Instant
    """When Service Bus's lock ends."""


class HeldMessages:
    def __init__(self, clock: Clock, tick_seconds: float = TICK_SECONDS) -> None:
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._held: dict[DeliveryRef, Held] = {}
        self._noted: OrderedDict[DeliveryRef, str | None] = OrderedDict()
        """What to do with messages when they come: None completes, a reason makes a dead letter."""
        self._over: OrderedDict[DeliveryRef, int] = OrderedDict()
        """Messages whose last delivery was to this process and is over, with its number."""
        self._slots = asyncio.Semaphore(CALLS_MAX)

    def __contains__(self, ref: DeliveryRef) -> bool:
        return ref in self._held

    def count(self, topic: str, name: str) -> int:
        return sum(ref.topic == topic and ref.subscription == name for ref in self._held)

    def add(self, ref: DeliveryRef, held: Held) -> None:
        self._held[ref] = held
        held.lane.in_hand[held.receiver] += 1
        self._over.pop(ref, None)

    def is_noted(self, ref: DeliveryRef) -> bool:
        return ref in self._noted

    def last_delivery(self, ref: DeliveryRef) -> int:
        """The number of the delivery to this process that is over; 0 if there was none."""
        return self._over.get(ref, 0)

    def take_note(self, ref: DeliveryRef) -> tuple[bool, str | None]:
        """Whether something was noted for a message that has come, and what."""
        if ref not in self._noted:
            return False, None
        return True, self._noted.pop(ref)

    # --- What callers do ---------------------------------------------------------------------------------------------

    async def settle(self, refs: Iterable[DeliveryRef]) -> None:
        await self._each(self._complete(ref, one) for ref, one in self._known(refs, None))

    async def dead_letter(self, refs: Iterable[DeliveryRef], reason: str) -> None:
        await self._each(self._bury(ref, one, reason) for ref, one in self._known(refs, reason))

    async def abandon(self, refs: Iterable[DeliveryRef], delay_seconds: float) -> None:
        held = [(ref, self._held[ref]) for ref in dict.fromkeys(refs) if ref in self._held]
        if delay_seconds:
            # Service Bus cannot delay it: the lock is kept for that long.
            for _, one in held:
                one.until = after(self._clock.now(), delay_seconds)
            return
        await self._each(self._abandon(ref, one) for ref, one in held)

    async def renew(self, ref: DeliveryRef, lock_seconds: float) -> bool:
        one = self._held.get(ref)
        now = self._clock.now()
        if one is None or one.until <= now:
            return False
        until = after(now, lock_seconds)
        if one.locked_until < until and not await self._renew_lock(ref, one):
            return False
        one.until = until
        return True

    def _known(self, refs: Iterable[DeliveryRef], note: str | None) -> list[tuple[DeliveryRef, Held]]:
        """Those that are held; what is to be done with the others is noted."""
        held = []
        for ref in dict.fromkeys(refs):
            one = self._held.get(ref)
            if one is not None:
                held.append((ref, one))
            else:
                self._note(ref, note)
        return held

    async def _complete(self, ref: DeliveryRef, one: Held) -> None:
        if not await self._call(ref, one, one.receiver.complete_message(one.message)):
            self._note(ref, None)

    async def _abandon(self, ref: DeliveryRef, one: Held) -> None:
        await self._call(ref, one, one.receiver.abandon_message(one.message))
        self._end(ref, one)

    async def _bury(self, ref: DeliveryRef, one: Held, reason: str) -> None:
        call = one.receiver.dead_letter_message(one.message, reason=reason[:REASON_CHARS_MAX])
        if not await self._call(ref, one, call):
            self._note(ref, reason)

    async def _call(self, ref: DeliveryRef, one: Held, call: Awaitable[None]) -> bool:
        """Whether it was done. If the lock, the link or the answer is lost, the message comes again: an expected
        duplicate. That the bus is away is for those to say who send and receive."""
        try:
            async with self._slots, sdk_call(CALL_SECONDS):
                await call
        except (*LOCK_LOST, *CALL_ERRORS) as error:
            log.info("%s: message %s could not be settled: %s", one.lane.entity, ref.message_id, error)
            return False
        finally:
            self._forget(ref, one)
        return True

    def _note(self, ref: DeliveryRef, note: str | None) -> None:
        self._noted[ref] = note
        if len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)

    async def _each(self, calls: Iterable[Awaitable[None]]) -> None:
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    # --- Locks -------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Until cancelled: renew locks that are to last, and end those that are not."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            now = self._clock.now()
            soon = after(now, RENEW_MARGIN_SECONDS + 2 * self._tick_seconds)
            due = [
                self._expire(ref, one) if one.until <= now else self._renew_lock(ref, one)
                for ref, one in list(self._held.items())
                if one.until <= now or one.locked_until <= min(soon, one.until - 1)
            ]
            for outcome in await asyncio.gather(*due, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.error("keeping a lock on Service Bus failed: a defect; report it", exc_info=outcome)

    async def _expire(self, ref: DeliveryRef, one: Held) -> None:
        if one.locked_until > self._clock.now():
            await self._abandon(ref, one)
        else:
            self._end(ref, one)

    async def _renew_lock(self, ref: DeliveryRef, one: Held) -> bool:
        """False if it does not hold any more: among many others, it may have been settled while this call waited."""
        try:
            async with self._slots, sdk_call(HARD_SECONDS):
                until = await one.receiver.renew_message_lock(one.message, timeout=CALL_SECONDS)
        except (*LOCK_LOST, *CALL_ERRORS):
            if self._held.get(ref) is one:
                self._end(ref, one)
            return False
        one.locked_until = instant_of(until)
        return True

    def _end(self, ref: DeliveryRef, one: Held) -> None:
        """It is delivered again, to whomever."""
        self._forget(ref, one)
        self._over[ref] = (one.message.delivery_count or 0) + 1
        if len(self._over) > OVER_MAX:
            self._over.popitem(last=False)

    def _forget(self, ref: DeliveryRef, one: Held) -> None:
        if self._held.get(ref) is one:
            del self._held[ref]
            one.lane.in_hand[one.receiver] -= 1

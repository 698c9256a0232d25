"""Receiving from several subscriptions at once: the lanes that callers wait for, and what comes from them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from lucius.buses.servicebus.faults import CALL_ERRORS, Problems, sdk_call
from lucius.buses.servicebus.held import Held, HeldMessages
from lucius.buses.servicebus.lane import Lane
from lucius.buses.servicebus.messages import body_of, id_of, instant_of, only_for, properties_of
from lucius.domain.time import after
from lucius.ports.bus import Delivery, DeliveryRef
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer

log = logging.getLogger("lucius.bus")

LOOK_SECONDS = 0.5
"""How long a caller that does not wait gives the service to answer."""
OPENING_SECONDS = 10.0
"""The same while a receiver is being opened."""
GATHER_SECONDS = 0.05
"""How long after a message a caller that wants several is given the next ones."""
SETTLE_SECONDS = 10.0
LOCK_LEFT_SECONDS_MIN = 0.5
"""A message that has been read ahead and whose lock ends so soon is left to come again."""

MakeReceiver = Callable[[str, str], ServiceBusReceiver]


class Receiving:
    def __init__(
        self,
        make: MakeReceiver,
        held: HeldMessages,
        problems: Problems,
        clock: Clock,
        silence_seconds: float,
        busy_seconds: float,
        gather_seconds: float,
        look_seconds: float,
        observer: Observer,
    ) -> None:
        self._make = make
        self._held = held
        self._problems = problems
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._busy_seconds = busy_seconds
        self._gather_seconds = gather_seconds
        self._look_seconds = look_seconds
        self._observer = observer
        self.lanes: dict[tuple[str, str], Lane] = {}
        self._waiting: dict[asyncio.Event, Collection[Lane]] = {}
        """The callers that wait, and for which lanes, the longest first."""
        self._turn = 0
        self._settling: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self.lanes.values()), return_exceptions=True)
        await asyncio.gather(*self._settling, return_exceptions=True)

    async def receive(
        self, topics: Sequence[str], name: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        if not topics:
            return []
        loop = asyncio.get_running_loop()
        lanes = [self._lane(topic, name) for topic in topics]
        deadline = loop.time() + wait_seconds
        patience = loop.time() + max(wait_seconds, OPENING_SECONDS)
        caller, arrived = object(), asyncio.Event()
        self._waiting[arrived] = lanes
        try:
            taken = self._take_for(caller, lanes, limit, lock_seconds)
            while not taken:
                now = loop.time()
                if now >= deadline and (now >= patience or all(lane.is_answered(self._look_seconds) for lane in lanes)):
                    return []
                await self._wait(arrived, min(max(deadline - now, 0.02), 1.0))
                taken = self._take_for(caller, lanes, limit, lock_seconds)
            while len(taken) < limit and await self._wait(arrived, self._gather_seconds):
                taken += self._take_for(caller, lanes, limit - len(taken), lock_seconds)
            return taken
        finally:
            del self._waiting[arrived]
            for lane in lanes:
                lane.leave(caller)
                if lane.buffer:
                    self._arrived((lane.topic, lane.name))

    @staticmethod
    async def _wait(arrived: asyncio.Event, seconds: float) -> bool:
        """Whether something came within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            return False
        arrived.clear()
        return True

    def _lane(self, topic: str, name: str) -> Lane:
        lane = self.lanes.get((topic, name))
        if lane is None:
            lane = self.lanes[topic, name] = Lane(
                topic,
                name,
                partial(self._make, topic, name),
                self._problems,
                partial(self._arrived, (topic, name)),
                self._silence_seconds,
                self._busy_seconds,
            )
        return lane

    def _arrived(self, place: tuple[str, str]) -> None:
        """Wake the one who has waited longest for a message of this lane. If the lane is broken, wake all."""
        lane = self.lanes[place]
        for arrived, lanes in self._waiting.items():
            if lane in lanes and (lane.is_broken or not arrived.is_set()):
                arrived.set()
                if not lane.is_broken:
                    return

    def _take_for(self, caller: object, lanes: Sequence[Lane], limit: int, lock_seconds: float) -> list[Delivery]:
        """What is there, and let the lanes read the caller's share of the rest."""
        taken = self._take(lanes, limit, lock_seconds)
        share = (limit - len(taken)) / len(lanes)
        for lane in lanes:
            lane.want(caller, share) if share else lane.leave(caller)
        return taken

    def _take(self, lanes: Sequence[Lane], limit: int, lock_seconds: float) -> list[Delivery]:
        """One message of each lane in turn; each call starts with another lane."""
        taken: list[Delivery] = []
        self._turn += 1
        first = self._turn % len(lanes)
        order = [*lanes[first:], *lanes[:first]]
        while len(taken) < limit and any(lane.buffer for lane in order):
            for lane in order:
                if lane.buffer and len(taken) < limit:
                    delivery = self._accept(lane, *lane.take(), lock_seconds)
                    if delivery is not None:
                        taken.append(delivery)
        return taken

    def _accept(
        self, lane: Lane, message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver, lock_seconds: float
    ) -> Delivery | None:
        """A message for a caller; None if it is for nobody."""
        now = self._clock.now()
        locked_until = instant_of(message.locked_until_utc)
        message_id, body = id_of(message), body_of(message)
        if message_id is None or body is None:
            what = "no message id" if message_id is None else "a body that is no data"
            reason = f"FOREIGN: it has {what}, so LUCIUS did not publish it"
            log.warning("%s: a message is made a dead letter: %s", lane.entity, reason)
            counted = partial(self._observer.message_refused, lane.topic, "FOREIGN")
            self._settle(lane, receiver.dead_letter_message(message, reason=reason), counted)
            return None
        if locked_until <= after(now, LOCK_LEFT_SECONDS_MIN):
            return None
        ref = DeliveryRef(lane.topic, lane.name, message_id)
        is_noted, reason_noted = self._held.take_note(ref)
        if is_noted and reason_noted is not None:
            self._settle(lane, receiver.dead_letter_message(message, reason=reason_noted))
            return None
        if is_noted or only_for(message) not in (None, lane.name):
            self._settle(lane, receiver.complete_message(message))
            return None
        until = after(now, lock_seconds)
        self._held.add(ref, Held(message, receiver, lane, until, locked_until))
        return Delivery(
            ref=ref,
            body=body,
            properties=properties_of(message),
            delivery_count=(message.delivery_count or 0) + 1,
            locked_until=until,
        )

    def _settle(self, lane: Lane, call: object, then: Callable[[], None] = lambda: None) -> None:
        async def settle() -> None:
            try:
                async with sdk_call(SETTLE_SECONDS):
                    await call  # type: ignore[misc]
                then()
            except CALL_ERRORS as error:
                log.info("%s: a message could not be settled and comes again: %s", lane.entity, error)

        task = asyncio.create_task(settle())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

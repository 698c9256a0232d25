"""The bus on Azure Service Bus. See `docs/decisions/0038-service-bus.md`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from lucius.azure.credential import AzureIdentity
from lucius.buses.servicebus.browsing import Browsing
from lucius.buses.servicebus.counting import Counting, Counts
from lucius.buses.servicebus.dead_letters import DeadLetters
from lucius.buses.servicebus.faults import EntityUnavailable, Problems, end
from lucius.buses.servicebus.held import TICK_SECONDS, HeldMessages
from lucius.buses.servicebus.identity import identity_of, open_client
from lucius.buses.servicebus.lane import BUSY_SECONDS, PREFETCH, READ_SECONDS, SILENCE_SECONDS
from lucius.buses.servicebus.messages import id_of, instant_of, to_wire
from lucius.buses.servicebus.options import ServiceBusOptions
from lucius.buses.servicebus.queue_proof import QueueProof
from lucius.buses.servicebus.receiving import GATHER_SECONDS, LOOK_SECONDS, Receiving
from lucius.buses.servicebus.sending import TopicSender
from lucius.ports.bus import (
    DEAD_LETTER_SECONDS,
    BusUnavailable,
    DeadLetter,
    Deferred,
    Delivery,
    DeliveryRef,
    Depth,
    Message,
    Refused,
    Subscription,
)
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer

COUNTED_MAX = 1_000
"""Messages of one subscription that are counted; a larger depth is shown as this."""
HEALTH_SECONDS = 2.5
LOOKS_MAX = 32
"""Entities with a problem that one look at the health looks at again."""
DEAD_LOOK_SECONDS = 10.0
FORGET_SECONDS = 3_600.0
"""How often dead letters that are too old are looked for."""
MESSAGE_BYTES_MAX = 262_144


class ServiceBus:
    takes_turns = False

    def __init__(
        self,
        options: ServiceBusOptions,
        clock: Clock,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        dead_seconds: float = DEAD_LETTER_SECONDS,
        tick_seconds: float = TICK_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
        forget_seconds: float = FORGET_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        dead_look_seconds: float = DEAD_LOOK_SECONDS,
        identity: AzureIdentity | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.options = options
        self.message_bytes_max = message_bytes_max
        self.problems = Problems(options.location)
        self._clock = clock
        self._dead_seconds = dead_seconds
        self._silence_seconds = silence_seconds
        self._busy_seconds = busy_seconds
        self._forget_seconds = forget_seconds
        self._forgot_at = 0.0
        self._gather_seconds = gather_seconds
        self._look_seconds = look_seconds
        self._observer = observer or Observer()
        self._dead_look_seconds = dead_look_seconds
        self._letters_failed_at = 0.0
        self._letters: dict[tuple[int, tuple[str, ...]], tuple[float, list[DeadLetter]]] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._looked = 0
        self._look: asyncio.Task[None] | None = None
        self._senders: dict[str, TopicSender] = {}
        self._held = HeldMessages(clock, tick_seconds)
        self._identity = identity or identity_of(options)
        self._is_identity_shared = identity is not None
        self._client: ServiceBusClient
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> ServiceBus:
        self._forgot_at = asyncio.get_running_loop().time()
        self._client = open_client(self.options, self._identity)
        self._browsing = Browsing(self._client, self.problems)
        self._receiving = Receiving(
            self._make_receiver,
            self._held,
            self.problems,
            self._clock,
            self._silence_seconds,
            self._busy_seconds,
            self._gather_seconds,
            self._look_seconds,
            self._observer,
        )
        self._counting = Counting(self.options, self._identity)
        self._proof = QueueProof(self._browsing, self._held)
        self._dead = DeadLetters(self._browsing, self.problems, self._clock, self._dead_seconds, self._send_one)
        self._tasks = [asyncio.create_task(self._held.keep(), name="service bus: locks")]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(*self._tasks, *([self._look] if self._look is not None else []))
        await asyncio.gather(
            self._receiving.close(),
            self._browsing.close(),
            self._counting.close(),
            *(sender.close() for sender in self._senders.values()),
            return_exceptions=True,
        )
        await self._client.close()
        if not self._is_identity_shared:
            await self._identity.close()

    def _make_receiver(self, topic: str, name: str) -> ServiceBusReceiver:
        return self._client.get_subscription_receiver(topic, name, prefetch_count=PREFETCH, max_wait_time=READ_SECONDS)

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        """Nothing is created: `lucius bus provision` does that. The senders of these topics are opened meanwhile."""
        for one in subscriptions:
            self._subscriptions[one.topic, one.name] = one
            self._sender(one.topic)

    # --- Publishing --------------------------------------------------------------------------------------------------

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > self.message_bytes_max:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {self.message_bytes_max}")
        return None

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:
        answers: list[Refused | Deferred | None] = [self.refusal(message) for message in messages]
        by_topic: dict[str, list[int]] = {}
        for place, (message, refused) in enumerate(zip(messages, answers, strict=True)):
            if refused is None:
                by_topic.setdefault(message.topic, []).append(place)
        sent = await asyncio.gather(
            *(self._publish(topic, [messages[place] for place in places]) for topic, places in by_topic.items()),
            return_exceptions=True,
        )
        failures = [outcome for outcome in sent if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, BusUnavailable):
                raise failure
        if failures and len(failures) == len(sent) and not any(isinstance(one, EntityUnavailable) for one in failures):
            raise failures[0]  # Nothing says that anything of Service Bus works.
        for places, outcome in zip(by_topic.values(), sent, strict=True):
            for number, place in enumerate(places):
                answers[place] = Deferred(str(outcome)) if isinstance(outcome, BaseException) else outcome[number]
        return answers

    async def _publish(self, topic: str, messages: Sequence[Message]) -> list[Refused | None]:
        sender = self._sender(topic)
        now = self._clock.now()
        try:
            return await sender.send(
                [to_wire(message, now) for message in messages], partial(self._others_answer, sender)
            )
        except BusUnavailable:
            if sender.is_missing and not self._is_declared(topic):
                await self._senders.pop(topic).close()
                self.problems.gone(f"topic {topic}")
                return [Refused(f"there is no topic {topic} on Service Bus at {self.options.location}")] * len(messages)
            raise

    def _others_answer(self, besides: TopicSender) -> bool:
        """Whether topics besides this one have taken messages lately."""
        return any(sender.answers for sender in self._senders.values() if sender is not besides)

    async def _send_one(self, topic: str, message: ServiceBusMessage) -> None:
        [refused] = await self._sender(topic).send([message])
        if refused is not None:
            raise BusUnavailable(refused.reason)

    def _sender(self, topic: str) -> TopicSender:
        sender = self._senders.get(topic)
        if sender is None:
            sender = self._senders[topic] = TopicSender(
                topic, lambda: self._client.get_topic_sender(topic), self.problems, self._busy_seconds
            )
        return sender

    def _is_declared(self, topic: str) -> bool:
        return any(one.topic == topic for one in self._subscriptions.values())

    # --- Receiving ---------------------------------------------------------------------------------------------------

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        return await self._receiving.receive(topics, subscription, limit, lock_seconds, wait_seconds)

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._held.settle(refs)

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        """None: Service Bus cannot take back a message without receiving what is before it."""
        return set()

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        await self._held.abandon(refs, delay_seconds)

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        return list(await asyncio.gather(*(self._held.renew(ref, lock_seconds) for ref in refs)))

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        await self._held.dead_letter(refs, reason)
        self._letters.clear()

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        by_subscription: dict[tuple[str, str], list[DeliveryRef]] = {}
        for ref in refs:
            by_subscription.setdefault((ref.topic, ref.subscription), []).append(ref)
        found = await asyncio.gather(
            *(self._proof.still_queued(topic, name, some) for (topic, name), some in by_subscription.items())
        )
        return set().union(*found)

    async def depths(self) -> list[Depth]:
        every = sorted(self._subscriptions.values(), key=lambda one: (one.topic, one.name))
        counts = await self._counting.counts(one.topic for one in every)
        return list(await asyncio.gather(*(self._depth(one, counts) for one in every)))

    async def _depth(self, one: Subscription, counts: Counts | None) -> Depth:
        place = (one.topic, one.name, False)
        if counts is None:
            waiting = [message async for message in self._browsing.all(place, 1, COUNTED_MAX)]
            dead = len([message async for message in self._browsing.all((one.topic, one.name, True), 1, COUNTED_MAX)])
            count = len(waiting)
        else:
            count, dead = counts.get((one.topic, one.name), (0, 0))
            waiting = await self._browsing.page(place) if count else []
        locked = min(self._held.count(one.topic, one.name), count)
        return Depth(
            topic=one.topic,
            subscription=one.name,
            ready=count - locked,
            locked=locked,
            dead=dead,
            redelivered=sum(_deliveries(one, message, self._held) > 1 for message in waiting),
            oldest_at=instant_of(_first(waiting)) if waiting else None,
        )

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        """At most a few seconds old: engines ask every second, and each look is a request for each subscription."""
        key, now = (limit, tuple(topics)), asyncio.get_running_loop().time()
        if self._letters_failed_at and now - self._letters_failed_at < self._dead_look_seconds:
            raise BusUnavailable(f"Service Bus at {self.options.location}: dead letters could not be read just now")
        read_at, letters = self._letters.get(key, (0.0, []))
        if not read_at or now - read_at > self._dead_look_seconds:
            try:
                letters = await self._read_letters(limit, topics)
            except BusUnavailable:
                self._letters_failed_at = now
                raise
            self._letters[key] = (now, letters)
        return letters

    async def _read_letters(self, limit: int, topics: Sequence[str]) -> list[DeadLetter]:
        wanted = [one for one in self._subscriptions.values() if not topics or one.topic in topics]
        counts = await self._counting.counts(one.topic for one in wanted)
        if counts is not None:
            wanted = [one for one in wanted if counts.get((one.topic, one.name), (0, 0))[1]]
        return await self._dead.newest(limit, wanted)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        self._letters.clear()
        back: set[DeliveryRef] = set()
        for (topic, name), one in list(self._subscriptions.items()):
            bodies = {ref: body for ref, body in letters.items() if (ref.topic, ref.subscription) == (topic, name)}
            if bodies:
                back |= await self._dead.send_again(one, bodies)
        return back

    async def health(self) -> str:
        """Looks into one subscription after the other: each fault is found in time, and so is its end."""
        if self._subscriptions and (self._look is None or self._look.done()):
            self._looked += 1
            next_one = list(self._subscriptions)[self._looked % len(self._subscriptions)]
            self._look = asyncio.create_task(self._look_into(next_one), name="service bus: health")
        if self._look is not None:
            await asyncio.wait([self._look], timeout=HEALTH_SECONDS)
        problems = self.problems.sentences()
        if problems:
            more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise BusUnavailable(problems[0] + more)
        if self._look is not None and not self._look.done():
            raise BusUnavailable(f"Service Bus at {self.options.location} has not answered for {HEALTH_SECONDS:g} s")
        return f"Service Bus at {self.options.location}"

    async def _look_into(self, next_one: tuple[str, str]) -> None:
        """One subscription more, and whatever did not work before."""
        known = {f"subscription {topic}/{name}": (topic, name) for topic, name in self._subscriptions}
        broken = self.problems.entities()[:LOOKS_MAX]
        places = {next_one, *(known[entity] for entity in broken if entity in known)}
        senders = [sender for topic, sender in self._senders.items() if f"topic {topic}" in broken]
        for entity in set(broken) - known.keys():
            if entity.startswith("subscription "):
                self.problems.gone(entity)  # Of a caller that asked for something nobody declared.
        await asyncio.gather(
            *(sender.check() for sender in senders), *(self._peek(place) for place in places), return_exceptions=True
        )

    async def _peek(self, place: tuple[str, str]) -> None:
        await self._browsing.page((*place, False), 1, 1)

    async def upkeep(self) -> None:
        """Service Bus itself forgets ids and sets aside what expires; it never deletes a dead letter."""
        now = asyncio.get_running_loop().time()
        if now - self._forgot_at < self._forget_seconds:
            return
        self._forgot_at = now
        self._letters.clear()
        await asyncio.gather(*(self._dead.forget_old(one) for one in list(self._subscriptions.values())))


def _deliveries(one: Subscription, message: ServiceBusReceivedMessage, held: HeldMessages) -> int:
    """With the one that is under way, if it is to this process."""
    is_held = DeliveryRef(one.topic, one.name, id_of(message) or "") in held
    return (message.delivery_count or 0) + is_held


def _first(messages: Sequence[ServiceBusReceivedMessage]) -> Any:
    return messages[0].enqueued_time_utc

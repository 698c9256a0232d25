"""The bus on NATS JetStream. See `docs/decisions/0035-nats-jetstream.md`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, KeysView, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from nats.aio.msg import Msg

from lucius.buses.nats import messages as wire
from lucius.buses.nats.connection import Connection, NoResponders, Request
from lucius.buses.nats.dead_letters import DeadLetters
from lucius.buses.nats.held import HeldMessages
from lucius.buses.nats.jetstream import (
    NO_RESOURCES,
    TOO_LARGE,
    WRONG_LAST_SEQUENCE,
    ApiError,
    JetStream,
    PublishedAs,
    all_of,
)
from lucius.buses.nats.locks import Locks
from lucius.buses.nats.names import Names
from lucius.buses.nats.no_room import NoRoom
from lucius.buses.nats.options import NatsOptions
from lucius.buses.nats.receiving import Receiving, Taken
from lucius.buses.nats.streams import Streams, too_old
from lucius.buses.nats.subscriptions import Subscriptions
from lucius.buses.nats.sync_check import check_sync
from lucius.buses.waiting import Waiting
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

DUPLICATE_WINDOW_SECONDS = 600.0
LOOK_SECONDS = 1.0
"""How often one of the receivers that wait looks for locks and delays that have run out, and for messages of which no
process said that it published them."""
SERVER_VERSION_MIN = (2, 12)
"""The first that delivers messages at a given time."""
HEADER_BYTES_MAX = 65_536
"""What a server must take beside the body of the largest message."""

Copy = tuple[int, DeliveryRef]
"""Which of some messages goes to which subscription."""
Copies = KeysView[Copy]
"""In the order of their messages."""


class NatsBus:
    takes_turns = False

    def __init__(
        self,
        options: NatsOptions,
        clock: Clock,
        message_bytes_max: int = 262_144,
        dead_seconds: float = DEAD_LETTER_SECONDS,
        duplicate_seconds: float = DUPLICATE_WINDOW_SECONDS,
        makes_streams: bool = True,
        observer: Observer | None = None,
    ) -> None:
        """`makes_streams`: false for a service or worker, which finds the streams as LUCIUS has made them."""
        self.options = options
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._makes_streams = makes_streams
        self._names = Names(options.prefix)
        self._connection = Connection(options)
        self.jetstream = JetStream(self._connection)
        self._streams = Streams(
            self.jetstream, self._names, options.replicas, duplicate_seconds, dead_seconds, makes_streams
        )
        self._subscriptions = Subscriptions(self.jetstream, self._names)
        self._locks = Locks(self.jetstream, self._names)
        self._dead = DeadLetters(self.jetstream, self._names, clock)
        self._receiving = Receiving(
            self.jetstream, self._names, self._streams, self._locks, self._dead, clock, observer or Observer()
        )
        self._held = HeldMessages(self.jetstream, self._names, self._locks, clock)
        self._no_room = NoRoom(options.location)
        self._waiting: Waiting[tuple[str, str]] = Waiting(LOOK_SECONDS)

    async def __aenter__(self) -> NatsBus:
        await check_sync(self.options)
        await self._connection.open()
        try:
            await self._begin()
            self._connection.on_connect = self._restore
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def _begin(self) -> None:
        version = self._connection.server_version
        if version < SERVER_VERSION_MIN:
            raise too_old(version, SERVER_VERSION_MIN)
        needed = self.message_bytes_max + HEADER_BYTES_MAX
        if self._connection.payload_max < needed:
            raise BusUnavailable(
                f"NATS at {self.options.location} takes messages of {self._connection.payload_max} bytes;"
                f" set its max_payload to {needed} or more"
            )
        try:
            await self._ensure_streams()
        except NoResponders as error:
            raise BusUnavailable(
                f"JetStream is off at {self.options.location}, or this account may not use it"
            ) from error
        await self._subscriptions.refresh()
        await self._connection.listen(self._names.every_wake(), self._woken)

    async def _ensure_streams(self) -> None:
        if self._makes_streams:
            await self._streams.make_shared()
        elif missing := await self._streams.missing(()):
            raise BusUnavailable(
                f"missing on NATS at {self.options.location}: {', '.join(missing)}; is LUCIUS running on it, and with"
                f" LUCIUS_NATS_PREFIX={self.options.prefix}?"
            )

    async def _restore(self) -> None:
        """A server that was restarted has no locks any more, which were in its memory."""
        if self._makes_streams:
            await self._streams.make_shared()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        if all(self._subscriptions.has(one) for one in subscriptions):
            return
        await self._subscriptions.refresh()
        wanted = [one for one in subscriptions if not self._subscriptions.has(one)]
        # The consumer is there before anybody publishes for it.
        await self._streams.make(wanted)
        await all_of([self._subscriptions.save(one) for one in wanted])
        for one in wanted:
            self._dead.declared(one)
        await self._subscriptions.refresh()

    # --- Publishing --------------------------------------------------------------------------------------------------

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > self.message_bytes_max:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {self.message_bytes_max}")
        if not self._subscriptions.has_topic(message.topic):
            return Refused(f"nobody subscribes to topic {message.topic}")
        return None

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:
        if not messages:
            return []
        if not all(self._subscriptions.has_topic(message.topic) for message in messages):
            await self._subscriptions.refresh()
        version = self._subscriptions.version
        answers = [self.refusal(message) for message in messages]
        copies = self._copies(messages, answers)
        # Another process has hardly ever declared something since, so that is asked meanwhile, not before.
        work: list[Awaitable[Any]] = [self._publish_copies(messages, copies), self._subscriptions.refresh()]
        not_taken, _ = await all_of(work)
        if self._subscriptions.version != version:
            before, copies = copies, self._copies(messages, answers)
            await self.settle([ref for place, ref in before - copies])
            not_taken |= await self._publish_copies(messages, copies - before)
        await self._wake_for([ref for place, ref in copies if place not in not_taken])
        return [not_taken.get(place, answer) for place, answer in enumerate(answers)]

    def _copies(self, messages: Sequence[Message], answers: Sequence[Refused | None]) -> Copies:
        return dict.fromkeys(
            (place, DeliveryRef(message.topic, one.name, message.id))
            for place, (message, refused) in enumerate(zip(messages, answers, strict=True))
            if refused is None
            for one in self._subscriptions.wanting(message)
        ).keys()

    async def _publish_copies(
        self, messages: Sequence[Message], copies: Iterable[Copy]
    ) -> dict[int, Refused | Deferred]:
        """The messages that the server does not take, by their place. Raises `BusUnavailable` if it has no room for any
        of them."""
        copies = list(copies)
        answers = await self.jetstream.publish_all([self._request(messages[place], ref) for place, ref in copies])
        not_taken: dict[int, Refused | Deferred] = {}
        for (place, ref), answer in zip(copies, answers, strict=True):
            outcome = self._outcome(ref.topic, answer)
            if outcome is not None:
                not_taken[place] = outcome
        if answers and all(isinstance(one, ApiError) and one.code == NO_RESOURCES for one in answers):
            raise BusUnavailable(next(iter(not_taken.values())).reason)
        return not_taken

    def _outcome(self, topic: str, answer: PublishedAs | ApiError | NoResponders) -> Refused | Deferred | None:
        match answer:
            case PublishedAs():
                self._no_room.taken(topic)
            case NoResponders():
                return Deferred(
                    f"stream {self._names.topic(topic)} is missing on NATS, and the reconciler makes it again, or its"
                    " servers are choosing a leader"
                )
            case ApiError(code=code) if code == TOO_LARGE:
                return Refused(str(answer))
            case ApiError(code=code) if code != WRONG_LAST_SEQUENCE:
                return Deferred(self._no_room.met(topic, answer.reason))
        return None

    def _request(self, message: Message, ref: DeliveryRef) -> Request:
        queued = self._names.queued(ref)
        headers = {
            **wire.headers_of(message.id, message.properties),
            **wire.headers_for_others(message),
            "Nats-Msg-Id": f"{ref.subscription} {message.id}".encode("unicode_escape").decode(),
            # Also after the duplicate window, for as long as the first one waits.
            "Nats-Expected-Last-Subject-Sequence": "0",
        }
        if message.deliver_at is None or message.deliver_at <= self._clock.now():
            return Request(queued, message.body, headers)
        return Request(self._names.later(ref), message.body, wire.scheduled(headers, message.deliver_at, queued))

    async def _wake_for(self, refs: Sequence[DeliveryRef]) -> None:
        """Tell every process that these subscriptions have something, a receiver for each message."""
        counts: dict[tuple[str, str], int] = {}
        for ref in refs:
            counts[ref.topic, ref.subscription] = counts.get((ref.topic, ref.subscription), 0) + 1
        for (topic, name), count in counts.items():
            await self._connection.send(self._names.wake(topic, name), str(count).encode())

    async def _woken(self, message: Msg) -> None:
        topic, name = (wire.id_in(word) for word in message.subject.split(".")[-2:])
        if message.data.isdigit():
            self._receiving.hint(topic, name)
            self._waiting.wake((topic, name), int(message.data))

    # --- Receiving ---------------------------------------------------------------------------------------------------

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        if any(self._subscriptions.find(topic, subscription) is None for topic in topics):
            await self._subscriptions.refresh()
        wanted = [one for topic in topics if (one := self._subscriptions.find(topic, subscription)) is not None]

        async def take(only_hinted: bool = False) -> list[Taken]:
            taken = await self._receiving.take(wanted, limit, lock_seconds, only_hinted)
            self._held.received(taken)
            return taken

        keys = [(one.topic, one.name) for one in wanted]
        taken = await self._waiting.receive(keys, limit, wait_seconds, take, partial(take, only_hinted=True))
        return [one.delivery for one in taken]

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._held.settle(await self._known(refs))

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        waiting = await self._held.waiting(await self._known(refs))
        are_back = await all_of([self._held.withdraw(ref, place) for ref, place in waiting.items()])
        return {ref for ref, is_back in zip(waiting, are_back, strict=True) if is_back}

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        known = await self._known(refs)
        released = await all_of([self._held.release(ref, delay_seconds) for ref in known])
        if not delay_seconds:
            await self._wake_for([ref for ref, is_released in zip(known, released, strict=True) if is_released])

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        known = await self._known(refs)
        renewed = await all_of([self._held.renew(ref, lock_seconds) for ref in known])
        by_ref = dict(zip(known, renewed, strict=True))
        return [by_ref.get(ref, False) for ref in refs]

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        await all_of([self._bury(ref, reason) for ref in await self._known(refs)])

    async def _bury(self, ref: DeliveryRef, reason: str) -> None:
        one = self._subscriptions.find(ref.topic, ref.subscription)
        found = await self._held.find(ref)
        if one is None or found is None:
            return
        stored, held = found
        count, ack_subject = (0, "") if held is None else (held.entry.delivery_count, held.entry.ack_subject)
        await self._dead.bury(one, ref, stored, count, reason, ack_subject)
        self._held.forget(ref)
        if held is not None:
            await self._locks.remove(held.seq)

    async def _known(self, refs: Sequence[DeliveryRef]) -> list[DeliveryRef]:
        """Each once, and only those of subscriptions that somebody has declared."""
        if any(self._subscriptions.find(ref.topic, ref.subscription) is None for ref in refs):
            await self._subscriptions.refresh()
        return [ref for ref in dict.fromkeys(refs) if self._subscriptions.find(ref.topic, ref.subscription) is not None]

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        return set(await self._held.waiting(await self._known(refs)))

    async def depths(self) -> list[Depth]:
        await self._subscriptions.refresh()
        any_dead = bool((await self.jetstream.stream(self._names.dead))["state"]["messages"])
        every = sorted(self._subscriptions, key=lambda one: (one.topic, one.name))
        return await all_of([self._depth(one, any_dead) for one in every])

    async def _depth(self, one: Subscription, any_dead: bool) -> Depth:
        names = self._names
        stream = names.topic(one.topic)
        info = await self.jetstream.consumer(stream, names.consumer(one.name))
        dead = 0
        if any_dead:
            counted = await self.jetstream.consumer(names.dead, names.dead_consumer(one.topic, one.name))
            dead = int(counted["num_pending"])
        ready, locked = int(info["num_pending"]), int(info["num_ack_pending"])
        oldest = await self.jetstream.page(stream, names.queue(one.topic, one.name), 1, 1) if ready or locked else []
        return Depth(
            topic=one.topic,
            subscription=one.name,
            ready=ready,
            locked=locked,
            dead=dead,
            oldest_at=oldest[0].stored_at if oldest else None,
            redelivered=min(int(info["num_redelivered"]), ready + locked),
        )

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        return await self._dead.newest(limit, topics)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        known = await self._known(list(letters))
        are_back = await all_of([self._dead.send_again(ref, letters[ref]) for ref in known])
        back = {ref for ref, is_back in zip(known, are_back, strict=True) if is_back}
        await self._wake_for(list(back))
        return back

    async def health(self) -> str:
        missing = await self._streams.missing(self._subscriptions.topics)
        if missing:
            raise BusUnavailable(f"missing on NATS at {self.options.location}: {', '.join(missing)}")
        if (no_room := self._no_room.sentence()) is not None:
            raise BusUnavailable(no_room)
        return f"NATS at {self.options.location}"

    async def upkeep(self) -> None:
        """Dead letters that are too old and ids outside the duplicate window are forgotten by the servers."""
        if await self._streams.repair(self._subscriptions):
            self._receiving.forget_ack_waits()
            await all_of([self._subscriptions.save(one) for one in self._subscriptions])
        await self._subscriptions.refresh()
        await self._dead.expire(list(self._subscriptions))

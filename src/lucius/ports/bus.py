"""The bus port: topics, subscriptions with property filters, peek-lock delivery. Lanes are only names here.

It fits an embedded table as well as NATS JetStream and Azure Service Bus, so it does not assume a transaction shared
with the ledger. If a bus can share one, its ledger publishes in its own commits (`Ledger.enlists`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from lucius.domain.time import Instant

DEAD_LETTER_SECONDS = 14 * 86_400.0
"""How long a dead letter is kept by default."""


class BusUnavailable(Exception):
    """The bus as a whole is unreachable; whether it took the messages is unknown."""


class Message(Struct, frozen=True, kw_only=True):
    id: str
    """Unique per topic; a second message with the same id within the duplicate window is taken and dropped."""
    topic: str
    body: bytes
    properties: Mapping[str, Any]
    deliver_at: Instant | None = None
    """Not delivered before this time."""
    content_type: str = "application/json"
    """What the body is. This and the next two are for consumers that are not LUCIUS; a bus that has a place for them
    passes them on."""
    subject: str = ""
    """What the message is about in a word: the step type of a directive, the type of a runbook's message."""
    correlation_id: str = ""


class Subscription(Struct, frozen=True, kw_only=True):
    """Gets a copy of every message published to its topic, after it was declared, whose properties match its filter."""

    topic: str
    name: str
    where: Mapping[str, str | int] = {}
    """Every property named here must have this value."""
    delivery_max: int = 10
    """After this many deliveries without being settled, a message becomes a dead letter."""
    ttl_seconds: float = 14 * 86_400.0
    lock_seconds: float = 60.0
    """How long a message stays locked after its receiver has died, on a bus where that is a property of the
    subscription. Receivers say themselves for how long they lock messages."""
    keeps_dead_bodies: bool = False
    """Whether a dead letter keeps its body, to be read or sent again. False if bodies contain a secret: the directive
    of an attempt can be rebuilt from the ledger at any time."""


class DeliveryRef(Struct, frozen=True):
    """Names one message in one subscription."""

    topic: str
    subscription: str
    message_id: str


class Delivery(Struct, frozen=True, kw_only=True):
    ref: DeliveryRef
    body: bytes
    properties: Mapping[str, Any]
    delivery_count: int
    locked_until: Instant


class Refused(Struct, frozen=True):
    """A message that the bus will never take: too large, or to an undeclared topic."""

    reason: str


class Deferred(Struct, frozen=True):
    """A message that the bus does not take now because its topic takes none: it is full, busy or missing. Whether it
    was taken after all is unknown, so it is published again under the same id."""

    reason: str


class DeadLetter(Struct, frozen=True, kw_only=True):
    ref: DeliveryRef
    properties: Mapping[str, Any]
    delivery_count: int
    reason: str
    dead_at: Instant
    body: bytes | None = None
    """None unless its subscription keeps the bodies of dead letters."""


class Depth(Struct, frozen=True, kw_only=True):
    topic: str
    subscription: str
    ready: int
    locked: int
    dead: int
    oldest_at: Instant | None
    """Since when the oldest of those that are ready or locked has been on the bus."""
    redelivered: int = 0
    """How many of those that are ready or locked were delivered more than once."""


def tenant_of(properties: Mapping[str, Any]) -> str:
    """Whose message this is, for a bus on which tenants take turns; those of nobody in particular take turns as one."""
    return str(properties.get("tenant_id", ""))


class Bus(AbstractAsyncContextManager["Bus"], Protocol):
    message_bytes_max: int
    takes_turns: bool
    """Whether the tenants of a topic take turns when messages are received: however many of one wait, another's next
    message is delivered after at most one of each. On a bus that delivers in its own order, the engine limits what one
    tenant may have there instead."""

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        """Create these subscriptions. Declaring one again changes its filter and limits and keeps its messages."""
        ...

    def refusal(self, message: Message) -> Refused | None:
        """Why this bus would not take this message, as far as that is known without asking it."""
        ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Refused | Deferred | None]:
        """Publish messages; one answer for each, None if it was taken. When the call returns, a taken message survives
        a crash of this process (and, on a durable bus, of every process). A topic that takes nothing holds up no other:
        its messages are `Deferred`, the rest is published. Raises `BusUnavailable` if the bus as a whole takes
        nothing."""
        ...

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        """Take up to `limit` messages that are due and unlocked, and lock them; wait up to `wait_seconds` for the
        first. No topic starves another. Oldest first within a topic; if `takes_turns`, oldest first within each of its
        tenants, and the tenants take turns. When a lock expires, its message is deliverable again, and its delivery
        count is incremented."""
        ...

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        """These messages are done and never delivered again. Messages that do not exist are ignored."""
        ...

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        """Remove those of these messages that no receiver holds, and return which: they are never delivered again.
        These are the messages that wait for delivery and are not locked, including those whose lock expired: the
        earlier receiver may still be working, and is told to stop when it answers. If a message is withdrawn and
        received at the same time, exactly one of the two happens. A bus that cannot do this returns none."""
        ...

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        """Release the lock: the message is deliverable again after the delay."""
        ...

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        """Extend the locks that have not expired; for each, whether it was extended."""
        ...

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        """Make these messages dead letters, with the reason."""
        ...

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        """Those of these messages that certainly wait, unlocked, for delivery. A bus that does not know returns
        none."""
        ...

    async def depths(self) -> list[Depth]:
        """The number of messages in every subscription. May count everything that is queued: whoever asks regularly
        does so at an interval."""
        ...

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        """The newest dead letters; only those of `topics` if any are given."""
        ...

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        """Put dead letters back into their queues, deliverable now and with a delivery count of zero, and return which
        are back. Each is mapped to its body, or to None to use the body that was kept; a letter without either stays
        dead. Of two calls about one letter only one puts it back."""
        ...

    async def health(self) -> str:
        """A human-readable location of the bus. Raises `BusUnavailable` if it does not answer, and from when a topic
        took no message until it takes one."""
        ...

    async def upkeep(self) -> None:
        """Delete settled messages whose duplicate window has passed and dead letters that are too old; make expired
        messages dead letters. Called periodically."""
        ...

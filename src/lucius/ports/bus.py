"""The bus port: topics, subscriptions with property filters, peek-lock delivery. Lanes are only names here.

Made to fit an embedded table as well as NATS JetStream and Azure Service Bus, so nothing in it presumes a transaction
shared with the ledger. A bus that can have one says so to its ledger, which then publishes in its own commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from lucius.domain.time import Instant


class BusUnavailable(Exception):
    """The bus as a whole is out of reach; whether the messages in hand were taken is unknown."""


class Message(Struct, frozen=True, kw_only=True):
    id: str
    """Unique per topic; a second message with the same id within the duplicate window is taken and dropped."""
    topic: str
    body: bytes
    properties: Mapping[str, Any]
    deliver_at: Instant | None = None
    """Not delivered before this moment."""


class Subscription(Struct, frozen=True, kw_only=True):
    """Gets a copy of every message published to its topic, after it was declared, whose properties match its filter."""

    topic: str
    name: str
    where: Mapping[str, str | int] = {}
    """Every property named here must have this value."""
    delivery_max: int = 10
    """After so many deliveries that nobody settled, a message is a dead letter."""
    ttl_seconds: float = 14 * 86_400.0


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
    """A message the bus will not take, whatever is tried: too large, or to a topic nobody declared."""

    reason: str


class DeadLetter(Struct, frozen=True, kw_only=True):
    ref: DeliveryRef
    properties: Mapping[str, Any]
    delivery_count: int
    reason: str
    dead_at: Instant


class Depth(Struct, frozen=True, kw_only=True):
    topic: str
    subscription: str
    ready: int
    locked: int
    dead: int
    oldest_at: Instant | None


class Bus(AbstractAsyncContextManager["Bus"], Protocol):
    message_bytes_max: int

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        """Make these subscriptions exist. Declaring one again changes its filter and limits, and keeps its messages."""
        ...

    def refusal(self, message: Message) -> Refused | None:
        """Why this bus would not take this message, as far as that can be said without asking it."""
        ...

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        """Hand over messages; one answer for each, None if it was taken. A taken message survives a crash of this
        process (and, on a durable bus, of every process) before the call returns. Raises `BusUnavailable`."""
        ...

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        """Take up to `limit` messages that are due and unlocked, and lock them; wait up to `wait_seconds` for the
        first. Oldest first within a topic, and no topic starves another. A lock that ran out makes its message
        deliverable again, with its count grown."""
        ...

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        """These messages are dealt with and never delivered again. One that is not there is passed over."""
        ...

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        """Give up the lock: the message is deliverable again after the delay."""
        ...

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        """Extend locks that still hold; for each whether it did."""
        ...

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        """Set these messages aside, with the reason."""
        ...

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        """Those of these messages that are certainly waiting, unlocked, to be delivered. A bus that cannot say so
        answers with none."""
        ...

    async def depths(self) -> list[Depth]:
        """How much waits in every subscription."""
        ...

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """The newest dead letters."""
        ...

    async def upkeep(self) -> None:
        """Forget settled messages whose duplicate window has passed; set expired ones aside. Called now and then."""
        ...

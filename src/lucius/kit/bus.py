"""The bus as services and workers use it.

This module and `brokers` are the only ones of both kits that import the bus port and its adapters, and only once a bus
is wanted: a service that talks HTTP installs neither a broker's client nor what the adapters need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lucius.kit.consumer import PullFailed

if TYPE_CHECKING:
    from lucius.ports.bus import Bus

LANE_TOPICS = tuple(f"global-bus-p{lane}" for lane in range(16))
REASON_CHARS_MAX = 500


class BusFailed(PullFailed):
    """The bus is out of reach; the call may be repeated."""


@dataclass(frozen=True)
class Incoming:
    """A message that is locked for this process."""

    ref: Any
    body: bytes
    delivery_count: int


@dataclass(frozen=True)
class Outgoing:
    id: str
    topic: str
    body: bytes = field(repr=False)
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class NotTaken:
    """Why the bus did not take a message."""

    reason: str
    is_final: bool
    """Otherwise its topic takes nothing now, and the same message may be published again."""


class KitBus:
    """A bus that somebody has opened. Every method but `ref` raises `BusFailed`."""

    def __init__(self, bus: Bus, location: str = "") -> None:
        from lucius.ports import bus as port

        self._port = port
        self._bus = bus
        self.location = location
        self.message_bytes_max = bus.message_bytes_max

    def ref(self, topic: str, subscription: str, message_id: str) -> Any:
        return self._port.DeliveryRef(topic, subscription, message_id)

    async def declare(self, topic: str, name: str, where: Mapping[str, str]) -> None:
        with self._failures():
            await self._bus.declare([self._port.Subscription(topic=topic, name=name, where=dict(where))])

    async def receive(
        self, topics: Sequence[str], subscription: str, count_max: int, lock_seconds: float, wait_seconds: float
    ) -> list[Incoming]:
        with self._failures():
            found = await self._bus.receive(topics, subscription, count_max, lock_seconds, wait_seconds)
        return [Incoming(one.ref, one.body, one.delivery_count) for one in found]

    async def publish(self, messages: Sequence[Outgoing]) -> list[NotTaken | None]:
        """One answer for each; None if it was taken."""
        wanted = [
            self._port.Message(id=one.id, topic=one.topic, body=one.body, properties=one.properties) for one in messages
        ]
        with self._failures():
            answers = await self._bus.publish(wanted)
        final = self._port.Refused
        return [None if one is None else NotTaken(one.reason, isinstance(one, final)) for one in answers]

    async def settle(self, refs: Sequence[Any]) -> None:
        with self._failures():
            await self._bus.settle(refs)

    async def abandon(self, refs: Sequence[Any]) -> None:
        with self._failures():
            await self._bus.abandon(refs)

    async def renew(self, refs: Sequence[Any], lock_seconds: float) -> list[bool]:
        with self._failures():
            return await self._bus.renew(refs, lock_seconds)

    async def dead_letter(self, refs: Sequence[Any], reason: str) -> None:
        with self._failures():
            await self._bus.dead_letter(refs, reason[:REASON_CHARS_MAX])

    def _failures(self) -> _Failures:
        return _Failures(self._port.BusUnavailable)


class _Failures:
    """Makes the port's error one of the kit's."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._kind):
            raise BusFailed(str(error)) from error

"""The environment of a rehearsal: a clock that is set, and a private bus.

The bus keeps the messages of committed transactions in two lists, for the rehearsal that created it. It takes part in
the transaction, as the embedded bus does, so there is no outbox. Operations that a rehearsal does not need raise an
error, so that their use is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NoReturn

from lucius.domain.time import Instant
from lucius.ports.bus import DeadLetter, Delivery, DeliveryRef, Depth, Message, Refused, Subscription
from lucius.ports.database import Database, Script
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import EVENTS_TOPIC, JOBS_TOPIC, ORCHESTRATOR

MESSAGE_BYTES_MAX = 262_144
"""The same as other buses: a job too large for them also fails in a rehearsal."""
EVENTS_MAX = 64


class RehearsalFailed(Exception):
    """The rehearsal cannot continue. The message is for users."""


class VirtualClock:
    def __init__(self, now: Instant) -> None:
        self._now = now
        self._ids = 0

    skew_seconds = 0.0

    def now(self) -> Instant:
        return self._now

    def set(self, now: Instant) -> None:
        self._now = now

    def job_id(self) -> str:
        return self.lease_id()

    def lease_id(self) -> str:
        self._ids += 1
        return f"rehearsal-{self._ids}"

    def jitter(self) -> float:
        return 0.5


class StrictObserver(Observer):
    """An internal error would make the prediction wrong, so it ends the rehearsal."""

    def failed(self, what: str, error: BaseException) -> None:
        raise RehearsalFailed(f"{what}: {error}") from error


class RehearsalBus:
    message_bytes_max = MESSAGE_BYTES_MAX
    takes_turns = False

    def __init__(self, database: Database) -> None:
        self.database = database
        self.jobs: list[Message] = []
        """Jobs sent to workers since the last collection."""
        self.settled: list[str] = []
        """Jobs that have a result or no longer need one."""
        self._events: deque[Message] = deque()

    def enlisted(
        self, messages: Sequence[Message], settled: Sequence[DeliveryRef], are_unique: bool = False
    ) -> Script[None]:
        """Nothing to write: `committed` records the messages."""
        yield from ()

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None:
        for message in messages:
            if message.topic == JOBS_TOPIC:
                self.jobs.append(message)
            else:
                self._events.append(message)
        self.settled += [ref.message_id for ref in settled if ref.topic == JOBS_TOPIC]

    def events(self) -> list[Delivery]:
        """Remove and return the oldest messages for the orchestrator."""
        taken = [self._events.popleft() for _ in range(min(EVENTS_MAX, len(self._events)))]
        return [
            Delivery(
                ref=DeliveryRef(EVENTS_TOPIC, ORCHESTRATOR, message.id),
                body=message.body,
                properties=message.properties,
                delivery_count=1,
                locked_until=0,
            )
            for message in taken
        ]

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > MESSAGE_BYTES_MAX:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {MESSAGE_BYTES_MAX}")
        return None

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        """Every topic exists."""

    async def __aenter__(self) -> RehearsalBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    # --- Not used in a rehearsal -------------------------------------------------------------------------------

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        _unused("publish")

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        _unused("receive")

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        _unused("settle")

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        _unused("abandon")

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        _unused("withdraw")

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        _unused("renew")

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        _unused("dead_letter")

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        _unused("still_queued")

    async def depths(self) -> list[Depth]:
        _unused("depths")

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        _unused("dead_letters")

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        _unused("send_again")

    async def health(self) -> str:
        _unused("health")

    async def upkeep(self) -> None:
        _unused("upkeep")


def _unused(name: str) -> NoReturn:
    raise RehearsalFailed(f"a rehearsal does not use {name} of its bus")

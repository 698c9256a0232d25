"""A message in a queue, and what a receiver can make of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from lucius.testing.servicebus.message import ACTIVE, DEFERRED, SCHEDULED, Message, broker_annotations


class Outcome(Enum):
    """What a receiver makes of a message."""

    COMPLETE = "completed"
    ABANDON = "abandoned"
    DEFER = "defered"
    DEAD_LETTER = "suspended"
    RELEASE = "released"


@dataclass(slots=True)
class Stored:
    message: Message
    sequence_number: int
    enqueued_at: float
    expires_at: float
    size: int
    due_at: float | None = None
    """When a scheduled message becomes active."""
    is_deferred: bool = False
    delivery_count: int = 0
    token: UUID | None = None
    locked_until: float | None = None
    """None for a message that is locked with its session."""

    @property
    def is_active(self) -> bool:
        return self.token is None and not self.is_deferred and self.due_at is None

    def encoded(self, locked_until: float | None = None) -> bytes:
        """As a receiver gets it, or, if it is not locked, as peeking shows it."""
        state = SCHEDULED if self.due_at is not None else DEFERRED if self.is_deferred else ACTIVE
        count = self.delivery_count - 1 if self.token is not None and self.delivery_count else self.delivery_count
        added = broker_annotations(self.sequence_number, self.enqueued_at, state, locked_until)
        return self.message.encoded(count, added)

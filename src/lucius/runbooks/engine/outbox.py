"""Messages that are sent if and only if their transaction commits.

A bus in the same database takes them within the transaction. For any other bus they are rows of an outbox, which is
emptied right after the commit, or by a later sweep if this process dies in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.bus import Bus, BusUnavailable, Deferred, DeliveryRef, Message
from lucius.ports.database import Database, DatabaseUnavailable, Script
from lucius.runbooks.core.messages import JOBS_TOPIC
from lucius.runbooks.store import outbox
from lucius.runbooks.store.outbox import OutboxRow

CLAIM_SECONDS = 30.0
"""How long a process may hold an outbox row it has claimed."""
BATCH_MAX = 200


@runtime_checkable
class EnlistingBus(Protocol):
    """A bus whose messages can be part of a transaction."""

    database: Database

    def enlisted(
        self, messages: Sequence[Message], settled: Sequence[DeliveryRef], are_unique: bool = False
    ) -> Script[None]: ...

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None: ...


class Outbox:
    def __init__(self, database: Database, bus: Bus) -> None:
        self._database = database
        self._bus = bus
        self._own = bus if isinstance(bus, EnlistingBus) and bus.database is database else None

    @property
    def is_needed(self) -> bool:
        return self._own is None

    def refusal(self, message: Message) -> str | None:
        """Why the bus would never accept this message. Its queue exists: publishing a runbook declares it."""
        size, size_max = len(message.body), self._bus.message_bytes_max
        return None if size <= size_max else f"{size} bytes exceed the bus's limit of {size_max}"

    def send(self, messages: Sequence[Message], settled: Sequence[DeliveryRef], now: Instant) -> Script[None]:
        """Within a transaction: send these messages and settle these deliveries with it."""
        if self._own is not None:
            # A job's id has the number of its dispatch, which only grows: no other turn sends it.
            jobs = [one for one in messages if one.topic == JOBS_TOPIC]
            others = [one for one in messages if one.topic != JOBS_TOPIC]
            if jobs or settled:
                yield from self._own.enlisted(jobs, settled, are_unique=True)
            if others:
                yield from self._own.enlisted(others, ())
        elif messages:
            yield from outbox.put(messages, now)

    async def sent(self, messages: Sequence[Message], settled: Sequence[DeliveryRef], now: Instant) -> None:
        """After the commit: the transaction stands whether or not the bus is reachable."""
        if self._own is not None:
            self._own.committed(messages, settled)
            return
        try:
            if settled:
                await self._bus.settle(settled)
            if messages:
                await self.empty(now)
        except (BusUnavailable, DatabaseUnavailable):
            # The next attempt to empty the outbox meets and reports the same error. Unsettled deliveries come again and
            # change nothing.
            return

    async def empty(self, now: Instant) -> int:
        """Publish waiting messages, oldest first; return their number. Those that the bus did not take stay; raises
        `BusUnavailable` if it takes nothing, and after the others if a topic takes nothing."""
        count = 0
        deferred: Deferred | None = None
        while self._own is None:
            rows = await self._database.write(lambda: _claim(now))
            if not rows:
                break
            answers = await self._bus.publish([row.message() for row in rows])
            # A message that was not taken keeps its row and is tried again when its claim expires.
            ids = [row.id for row, answer in zip(rows, answers, strict=True) if answer is None]
            deferred = next((answer for answer in answers if isinstance(answer, Deferred)), deferred)
            await self._database.write(partial(outbox.drop, ids))
            count += len(rows)
        if deferred is not None:
            raise BusUnavailable(deferred.reason)
        return count


def _claim(now: Instant) -> Script[list[OutboxRow]]:
    until = after(now, CLAIM_SECONDS)
    # A claim beyond the maximum duration was written by a process whose clock was ahead.
    return (yield from outbox.claim(now, until, after(until, CLOCK_TOLERANCE_SECONDS), BATCH_MAX))

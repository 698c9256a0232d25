"""Messages that leave with a transaction, or not at all.

A bus in the same database takes them within the transaction. For any other bus they are rows of an outbox, which is
emptied right after the commit, and again by whoever looks later if this process dies in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from lucius.domain.time import Instant, after
from lucius.ports.bus import Bus, BusUnavailable, DeliveryRef, Message
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Run, Script

CLAIM_SECONDS = 30.0
"""How long an outbox row is left to the process that has taken it."""
BATCH_MAX = 200

_PUT = (
    "INSERT INTO runbook_outbox (topic, message_id, body, properties, created_at, claimed_until)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
)
_TAKE = (
    "SELECT id, topic, message_id, body, properties FROM runbook_outbox WHERE claimed_until <= $1"
    " ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED"
)
_CLAIM = "UPDATE runbook_outbox SET claimed_until = $2 WHERE id = $1"
_DROP = "DELETE FROM runbook_outbox WHERE id = $1"
WAITING = "SELECT COUNT(*), MIN(created_at) FROM runbook_outbox"

_encode = msgspec.json.Encoder().encode


@runtime_checkable
class EnlistingBus(Protocol):
    """A bus whose messages can be part of a transaction."""

    database: Database

    def enlisted(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> Script[None]: ...

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
        """Why the bus would never take this message. Its queue exists: it is declared before a runbook is published."""
        size, size_max = len(message.body), self._bus.message_bytes_max
        return None if size <= size_max else f"it has {size} bytes, and the bus takes {size_max}"

    def send(self, messages: Sequence[Message], settled: Sequence[DeliveryRef], now: Instant) -> Script[None]:
        """Within a transaction: these messages go out with it, and these are dealt with."""
        if self._own is not None:
            yield from self._own.enlisted(messages, settled)
        elif messages:
            yield Run(_PUT, [(m.topic, m.id, m.body, _encode(m.properties).decode(), now, 0) for m in messages])

    async def sent(self, messages: Sequence[Message], settled: Sequence[DeliveryRef], now: Instant) -> None:
        """After the commit: what has happened stays so, whether or not the bus can be reached."""
        if self._own is not None:
            self._own.committed(messages, settled)
            return
        try:
            if settled:
                await self._bus.settle(settled)
            if messages:
                await self.empty(now)
        except (BusUnavailable, DatabaseUnavailable):
            # Whoever empties the outbox next meets the same trouble and tells of it. What was not settled comes again,
            # and changes nothing.
            return

    async def empty(self, now: Instant) -> int:
        """Publish what waits, oldest first; how many that were. Raises `BusUnavailable`, and then they wait on."""
        count = 0
        while self._own is None:
            rows = await self._database.write(lambda: self._take(now))
            if not rows:
                break
            messages = [
                Message(id=row[2], topic=row[1], body=bytes(row[3]), properties=msgspec.json.decode(row[4]))
                for row in rows
            ]
            answers = await self._bus.publish(messages)
            # One that was refused keeps its row, and is tried again when its claim has run out.
            ids = [(row[0],) for row, refused in zip(rows, answers, strict=True) if refused is None]
            await self._database.write(partial(_drop, ids))
            count += len(rows)
        return count

    def _take(self, now: Instant) -> Script[Sequence[Any]]:
        rows = yield Fetch(_TAKE, (now, BATCH_MAX))
        if rows:
            yield Run(_CLAIM, [(row[0], after(now, CLAIM_SECONDS)) for row in rows])
        return rows


def _drop(ids: Sequence[tuple[int]]) -> Script[None]:
    yield Run(_DROP, ids)

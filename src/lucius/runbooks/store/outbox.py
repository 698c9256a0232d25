"""The table `runbook_outbox`: messages that wait for a bus outside the database."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.bus import Message
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.store.columns import columns_of

_encode = msgspec.json.Encoder().encode


class OutboxRow(Struct, frozen=True):
    id: int
    topic: str
    message_id: str
    body: bytes
    properties: str

    def message(self) -> Message:
        properties = msgspec.json.decode(self.properties)
        return Message(
            id=self.message_id,
            topic=self.topic,
            body=bytes(self.body),
            properties=properties,
            subject=properties.get("MessageType", ""),
        )


_PUT = (
    "INSERT INTO runbook_outbox (topic, message_id, body, properties, created_at, claimed_until)"
    " VALUES ($1, $2, $3, $4, $5, 0)"
)
_TAKE = (
    f"SELECT {columns_of(OutboxRow, {})} FROM runbook_outbox"
    " WHERE claimed_until <= $1 OR claimed_until > $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED"
)
_CLAIM = "UPDATE runbook_outbox SET claimed_until = $2 WHERE id = $1"
_DROP = "DELETE FROM runbook_outbox WHERE id = $1"
WAITING = "SELECT COUNT(*), MIN(created_at) FROM runbook_outbox"


def put(messages: Sequence[Message], now: Instant) -> Script[None]:
    yield Run(_PUT, [(one.topic, one.id, one.body, _encode(one.properties).decode(), now) for one in messages])


def claim(now: Instant, until: Instant, too_long: Instant, limit: int) -> Script[list[OutboxRow]]:
    """Claim the oldest unclaimed rows until this time. A claim beyond `too_long` is ignored."""
    rows = [OutboxRow(*row) for row in (yield Fetch(_TAKE, (now, too_long, limit)))]
    if rows:
        yield Run(_CLAIM, [(row.id, until) for row in rows])
    return rows


def drop(ids: Sequence[int]) -> Script[None]:
    yield Run(_DROP, [(row_id,) for row_id in ids])

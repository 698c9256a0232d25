"""The database as a bus sees it: its failures are the bus's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from lucius.buses.sql import statements
from lucius.domain.time import Instant
from lucius.ports.bus import BusUnavailable, DeadLetter, DeliveryRef, Subscription
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script

T = TypeVar("T")

log = logging.getLogger("lucius.bus")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_MATCHES_NOTHING = {"filter": "unreadable"}


def read_properties(text: str, message_id: str) -> dict[str, Any]:
    """A message's properties; none where something other than LUCIUS has changed them. Its body is what counts."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        log.error("the properties of message %s cannot be read and are left out: %s", message_id, error)
        return {}


def read_filter(text: str, topic: str, name: str) -> dict[str, Any]:
    """A subscription's filter; one that cannot be read lets nothing through until it is declared again."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        log.error("the filter of subscription %s of topic %s cannot be read: %s", name, topic, error)
        return _MATCHES_NOTHING


def subscription_row(subscription: Subscription) -> tuple[Any, ...]:
    """As `statements.DECLARE` takes it."""
    return (
        subscription.topic,
        subscription.name,
        _encode(subscription.where).decode(),
        subscription.delivery_max,
        subscription.ttl_seconds,
        int(subscription.keeps_dead_bodies),
    )


def read_subscription(row: Row) -> Subscription:
    """From a row of `statements.SUBSCRIPTIONS`, whose first column is its id."""
    return Subscription(
        topic=row[1],
        name=row[2],
        where=read_filter(row[3], row[1], row[2]),
        delivery_max=row[4],
        ttl_seconds=row[5],
        keeps_dead_bodies=bool(row[6]),
    )


def read_dead_letter(row: Row, topic: str, name: str) -> DeadLetter:
    """From a row of `statements.DEAD_LETTERS`."""
    return DeadLetter(
        ref=DeliveryRef(topic, name, row[1]),
        properties=read_properties(row[2], row[1]),
        delivery_count=row[3],
        reason=row[4],
        dead_at=row[5],
        body=None if row[6] is None else bytes(row[6]),
    )


def settle_script(keys: Sequence[tuple[str, int]], now: Instant) -> Script[None]:
    """`keys` are message ids with the ids of their subscriptions."""
    if keys:
        ids = [message_id for message_id, _ in keys]
        pairs = [f"{message_id} {subscription_id}" for message_id, subscription_id in keys]
        yield Run(statements.SETTLE_UNIQUE, [(ids, pairs)])
        yield Run(statements.SETTLE, [(ids, pairs, now)])


class MessageStore:
    """Every call raises `BusUnavailable` where the database is out of reach."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        def script() -> Script[None]:
            yield Run(sql, rows)

        if rows:
            await self.write(script)

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        def script() -> Script[Sequence[Row]]:
            return (yield Fetch(sql, args))

        return await self.read(script)

    async def dead_letters(
        self, limit: int, topics: Sequence[str], subscriptions: Mapping[int, tuple[str, str]]
    ) -> list[DeadLetter]:
        """`subscriptions` are topic and name of each, by id."""
        if topics:
            ids = [known for known, (topic, _) in subscriptions.items() if topic in topics]
            rows = await self.fetch(statements.DEAD_LETTERS_OF, limit, ids)
        else:
            rows = await self.fetch(statements.DEAD_LETTERS, limit)
        return [read_dead_letter(row, *subscriptions[row[0]]) for row in rows if row[0] in subscriptions]

    async def health(self) -> str:
        await self.fetch(statements.PING)
        return f"in {self._database.name}"

    async def read(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.read(script)
        except DatabaseUnavailable as error:
            raise BusUnavailable(str(error)) from error

    async def write(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.write(script)
        except DatabaseUnavailable as error:
            raise BusUnavailable(str(error)) from error

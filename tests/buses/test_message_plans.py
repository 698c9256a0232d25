"""What the bus does with messages that it knows by id, PostgreSQL finds by id, whatever it believes about the queue.

It counts rows once a minute, perhaps when nothing was queued. It would then rather look through the index of what is
queued, which is thought to be empty, and compare all of it with every id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from lucius.buses.sql import SqlBus, statements
from lucius.clocks import SystemClock
from lucius.ports.bus import Message, Subscription
from lucius.sql.postgres import PostgresDatabase

SETTLED, QUEUED = 3_000, 3_000
BY_ID = {
    "settle": (statements.SETTLE, ["text[]", "text[]", "bigint"]),
    "settle for good": (statements.SETTLE_UNIQUE, ["text[]", "text[]"]),
    "unlock": (statements.UNLOCK, ["text", "bigint", "bigint"]),
    "renew": (statements.RENEW, ["text", "bigint", "bigint", "bigint"]),
    "withdraw": (statements.WITHDRAW, ["text", "bigint", "bigint"]),
    "bury": (statements.BURY, ["text", "bigint", "bigint", "text", "bigint"]),
    "bury, with deliveries": (statements.BURY_COUNTED, ["text", "bigint", "bigint", "text", "bigint", "bigint"]),
    "send again": (statements.SEND_AGAIN, ["text", "bigint", "bigint", "bigint", "bytea"]),
    "look whether it waits": (statements.WAITING, ["text", "bigint", "bigint"]),
}


@pytest.fixture
async def connection(postgres_database: PostgresDatabase, postgres_url: str) -> asyncpg.Connection:
    """To a queue that has filled since the rows were counted."""
    connection = await asyncpg.connect(postgres_url)
    bus = SqlBus(postgres_database, SystemClock())
    await bus.declare([Subscription(topic="lane", name="ocr")])
    await publish(bus, "settled", SETTLED)
    await connection.execute("UPDATE messages SET state = 'SETTLED', ended_at = 1")
    await connection.execute("VACUUM ANALYZE messages")
    await publish(bus, "queued", QUEUED)
    await connection.execute("SET plan_cache_mode = force_generic_plan")  # As drivers come to use.
    yield connection
    await connection.close()


async def publish(bus: SqlBus, name: str, count: int) -> None:
    sent = [Message(id=f"{name}-{place}", topic="lane", body=b"x", properties={}) for place in range(count)]
    assert await bus.publish(sent) == [None] * count


@pytest.mark.parametrize("act", BY_ID)
async def test_message_is_found_by_its_id(connection: asyncpg.Connection, act: str) -> None:
    sql, types = BY_ID[act]
    values = {"text[]": "ARRAY['queued-1']", "text": "'queued-1'", "bigint": "1", "bytea": "NULL"}
    await connection.execute(f"PREPARE act ({', '.join(types)}) AS {sql}")
    plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE act ({', '.join(values[name] for name in types)})")
    assert {node["Index Name"] for node in nodes(json.loads(plan)[0]["Plan"]) if "Index Name" in node} == {
        "messages_once"
    }


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)

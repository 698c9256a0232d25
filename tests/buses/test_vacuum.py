"""The message table on PostgreSQL is vacuumed as fast as it is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from asyncpg import Connection, connect

from lucius.buses.sql import SqlBus, vacuum
from lucius.buses.sql.store import MessageStore
from lucius.buses.sql.vacuum import Vacuum
from lucius.clocks import SystemClock
from lucius.ports.bus import BusUnavailable, DeliveryRef, Message, Subscription
from lucius.sql.postgres import PostgresDatabase

FIGURES = "SELECT n_dead_tup, vacuum_count FROM pg_stat_user_tables WHERE relid = 'messages'::regclass"
SECONDS_MAX = 20.0
COUNT = 400


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "DEAD_ROWS_MIN", COUNT // 2)


@pytest.fixture
async def administrator(postgres_url: str) -> AsyncIterator[Connection]:
    connection = await connect(postgres_url)
    await connection.execute("VACUUM messages")  # What earlier tests in this database left.
    yield connection
    await connection.close()


async def use(bus: SqlBus) -> None:
    await bus.declare([Subscription(topic="lane", name="ocr")])
    sent = [Message(id=f"m{place}", topic="lane", body=b"x", properties={}) for place in range(COUNT)]
    assert await bus.publish(sent) == [None] * COUNT
    taken = await bus.receive(["lane"], "ocr", COUNT, 30.0, 0.0)
    await bus.settle([one.ref for one in taken])


async def figures(administrator: Connection) -> tuple[int, int]:
    """Dead rows, and how often the table was vacuumed: tests share databases, so it may have been before."""
    row = await administrator.fetchrow(FIGURES)
    return row[0], row[1]


async def until_counted(administrator: Connection) -> None:
    """The server counts with a delay."""
    async with asyncio.timeout(SECONDS_MAX):
        while (await figures(administrator))[0] < COUNT:
            await asyncio.sleep(0.1)


async def test_dead_rows_go_while_a_process_uses_the_bus(
    postgres_database: PostgresDatabase, administrator: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "LOOK_SECONDS", 0.1)
    _, before = await figures(administrator)
    async with SqlBus(postgres_database, SystemClock()) as bus, asyncio.timeout(SECONDS_MAX):
        await use(bus)
        while (await figures(administrator))[1] == before:
            await bus.settle([DeliveryRef("lane", "ocr", "nonesuch")])
            await asyncio.sleep(0.1)
        assert (await figures(administrator))[0] < COUNT


async def test_first_vacuum_analyzes_the_table(postgres_database: PostgresDatabase, administrator: Connection) -> None:
    """Later ones leave that to the server."""
    analyzed = "SELECT analyze_count FROM pg_stat_user_tables WHERE relid = 'messages'::regclass"
    await administrator.execute("SELECT pg_stat_reset_single_table_counters('messages'::regclass)")
    await use(SqlBus(postgres_database, SystemClock()))
    looking = Vacuum(MessageStore(postgres_database))
    counted = []
    for _ in range(2):
        _, vacuums = await figures(administrator)
        await administrator.execute("UPDATE messages SET visible_at = visible_at + 1")
        await until_counted(administrator)
        await looking.look()
        assert (await figures(administrator))[1] == vacuums + 1
        counted.append(await administrator.fetchval(analyzed))
    assert counted == [1, 1]


async def test_few_dead_rows_are_left_alone(
    postgres_database: PostgresDatabase, administrator: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, before = await figures(administrator)
    await use(SqlBus(postgres_database, SystemClock()))
    await until_counted(administrator)
    monkeypatch.setattr(vacuum, "DEAD_ROWS_MIN", 100 * COUNT)
    await Vacuum(MessageStore(postgres_database)).look()
    assert (await figures(administrator))[1] == before


async def test_what_a_vacuum_cannot_remove_is_left_until_there_is_twice_as_much(
    postgres_database: PostgresDatabase, postgres_url: str, administrator: Connection
) -> None:
    """A transaction that began before may still see it."""
    _, before = await figures(administrator)
    holder = await connect(postgres_url)
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("SELECT COUNT(*) FROM messages")
        await use(SqlBus(postgres_database, SystemClock()))
        await until_counted(administrator)
        looking = Vacuum(MessageStore(postgres_database))
        await looking.look()
        await looking.look()
        dead, vacuums = await figures(administrator)
        assert (dead >= COUNT, vacuums) == (True, before + 1)
    await holder.close()


async def test_database_that_is_away_ends_nothing(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "LOOK_SECONDS", 0.01)
    looking = Vacuum(MessageStore(postgres_database))
    looks = 0

    async def away() -> None:
        nonlocal looks
        looks += 1
        raise BusUnavailable("away")

    monkeypatch.setattr(looking, "look", away)
    task = asyncio.create_task(looking.run())
    async with asyncio.timeout(SECONDS_MAX):
        while looks < 3:
            looking.used()
            await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

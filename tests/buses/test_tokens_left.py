"""No callback token outlives its message: not in the file, not in dead letters of older versions, not after a prune."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lucius.buses.sql import JournaledBus, SqlBus
from lucius.domain.directive import message_id
from lucius.domain.time import after
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import BusUnavailable, Message, Subscription
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.bus_publishing import ids, message, ref
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import START, ManualClock

TOKEN = b"cbt_of_the_tests"
LANE = Subscription(topic="lane", name="ocr")
BEFORE = schema.MIGRATIONS[: [migration.version for migration in schema.MIGRATIONS].index(6)]
"""The migrations before the one that empties dead letters."""


async def fetch(database: Database, sql: str) -> list[Row]:
    def script() -> Script[list[Row]]:
        return list((yield Fetch(sql)))

    return await database.read(script)


async def write(database: Database, sql: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
    def script() -> Script[None]:
        yield Run(sql, rows)

    await database.write(script)


async def test_sqlite_file_holds_no_token_of_messages_that_are_over(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "lucius.db"
    names = [f"m{place}" for place in range(50)]
    async with SqliteDatabase(path) as database:
        await schema.upgrade(database)
        async with JournaledBus(database, clock) as bus:
            await bus.declare([LANE])
            await bus.publish([message(name, body=TOKEN + bytes(1_500)) for name in names])
            await bus.dead_letter([ref(name) for name in names[:10]], "broken")
            await bus.withdraw([ref(name) for name in names[10:20]])
            await bus.settle([ref(name) for name in names[20:]])
    assert path.read_bytes().count(TOKEN) == 0
    assert not path.with_name("lucius.db-wal").exists(), "the last to close it writes all back"


async def test_withdrawal_that_cannot_be_written_leaves_the_message_deliverable(
    sqlite_database: SqliteDatabase, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(script: object) -> None:
        raise DatabaseUnavailable("a test has taken the file away")

    async with JournaledBus(sqlite_database, clock) as bus:
        await bus.declare([LANE])
        await bus.publish([message("m1")])
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_database, "write", away)
            with pytest.raises(BusUnavailable):
                await bus.withdraw([ref("m1")])
        assert ids(await bus.receive(["lane"], "ocr", 1, 5.0, 0.0)) == ["m1"]


ATTEMPT = (
    "INSERT INTO attempts (job_id, step_index, attempt_no, step_id, lease_id, tenant_id, resolved_mode, lane,"
    " routing_key_used, created_at, status, outbox_status, claimed_until, acked_at, ended_at)"
    " VALUES ($1, 0, 1, 'ocr', 'lease', 'acme', 'SHARED', 3, 'acme', 1, 'any', 'SENT', 1, $2, $3)"
)
MESSAGE = (
    "INSERT INTO messages (subscription_id, message_id, state, body, properties, enqueued_at, visible_at,"
    " delivery_count, expires_at) VALUES ($1, $2, $3, $4, '{}', 1, 1, 1, 99)"
)
SUBSCRIPTION = (
    "INSERT INTO subscriptions (topic, name, filter, delivery_max, ttl_seconds) VALUES ($1, 'one', '{}', 10, 60.0)"
)
TOPICS = ("global-bus-p3", "jobs", "orchestrator-events", "results")


async def check_upgrade(database: Database) -> None:
    """A database from before has dead letters with bodies, and directives of attempts that are over."""
    await schema.upgrade(database, BEFORE)
    await write(database, SUBSCRIPTION, [(topic,) for topic in TOPICS])
    known = {row[0]: row[1] for row in await fetch(database, "SELECT topic, subscription_id FROM subscriptions")}
    attempts = [("timed-out", None, 5), ("live", None, None), ("at-work", 4, None)]
    await write(database, ATTEMPT, attempts)
    rows = [(known[topic], f"dead on {topic}", "DEAD", TOKEN) for topic in TOPICS]
    rows += [(known[TOPICS[0]], message_id(job_id, "ocr", 1), "QUEUED", TOKEN) for job_id, _, _ in attempts]
    await write(database, MESSAGE, rows)

    await schema.upgrade(database)

    kept = await fetch(database, "SELECT message_id FROM messages WHERE body IS NOT NULL")
    assert {row[0] for row in kept} == {
        "dead on orchestrator-events", "live:ocr:1", "at-work:ocr:1",
    }  # fmt: skip
    states = {row[0]: row[1] for row in await fetch(database, "SELECT message_id, state FROM messages")}
    assert states["timed-out:ocr:1"] == "SETTLED"
    assert states["live:ocr:1"] == states["at-work:ocr:1"] == "QUEUED"


async def test_upgrade_empties_older_dead_letters_on_sqlite(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await check_upgrade(database)


async def test_upgrade_empties_older_dead_letters_on_postgres(postgres_database: PostgresDatabase) -> None:
    await write(postgres_database, "DROP SCHEMA public CASCADE")
    await write(postgres_database, "CREATE SCHEMA public")
    await check_upgrade(postgres_database)


async def check_prune(ledger: SqlLedger, bus: JournaledBus | SqlBus, clock: ManualClock) -> None:
    await bus.declare([LANE])
    driver = LedgerDriver(ledger, clock)
    old, recent = await driver.create(key="old"), await driver.create(key="recent")
    names = [message_id(job.job_id, "ocr", 1) for job in (old, recent)]
    await bus.publish([Message(id=name, topic="lane", body=TOKEN, properties={}) for name in names])
    await bus.dead_letter([ref(name) for name in names], "broken")
    await driver.succeed(old)
    clock.advance(60)
    await driver.succeed(recent)
    assert await ledger.prune(after(START, 1), 10) == 1
    assert [letter.ref.message_id for letter in await bus.dead_letters(10)] == names[1:]


async def test_prune_takes_dead_letters_with_their_job_on_sqlite(
    sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    async with JournaledBus(sqlite_database, clock) as bus, SqlLedger(sqlite_database, bus) as ledger:
        await check_prune(ledger, bus, clock)


async def test_prune_takes_dead_letters_with_their_job_on_postgres(
    postgres_database: PostgresDatabase, clock: ManualClock
) -> None:
    async with SqlBus(postgres_database, clock) as bus, SqlLedger(postgres_database, bus) as ledger:
        await check_prune(ledger, bus, clock)

"""How often a turn, a read and a pull ask PostgreSQL; statements that leave together do what they do alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from lucius.buses.sql import SqlBus
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import DeliveryRef, Message, Subscription
from lucius.ports.ledger import Committed, Conflict, Duplicate, Limit, Saturated
from lucius.sql import postgres_statements
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.together import in_one_round_trip, together
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import ManualClock

INSERT = "INSERT INTO notes (name, size) VALUES ($1, $2)"
NAMES = "SELECT name FROM notes ORDER BY name"


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent on any connection, in order; preparing a statement for the first time is not counted."""
    sent: list[str] = []
    for name in ("execute", "executemany", "fetch"):
        real = getattr(asyncpg.Connection, name)

        def counting(self: Any, query: str, *args: Any, _real: Any = real, **options: Any) -> Any:
            sent.append(query)
            return _real(self, query, *args, **options)

        monkeypatch.setattr(asyncpg.Connection, name, counting)
    return sent


@pytest.fixture
async def bus(postgres_database: PostgresDatabase, clock: ManualClock) -> SqlBus:
    bus = SqlBus(postgres_database, clock)
    await bus.declare([Subscription(topic="lane", name="ocr", where={"service": "ocr"})])
    return bus


def message(name: str, tenant: str = "acme", service: str = "ocr") -> Message:
    return Message(id=name, topic="lane", body=b"x", properties={"service": service, "tenant_id": tenant})


async def test_a_turn_takes_one_round_trip_and_one_more_if_jobs_begin(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock, trips: list[str]
) -> None:
    driver = LedgerDriver(SqlLedger(postgres_database, bus), clock)
    creation = driver.creation(limits=(Limit("tenant:acme", 10, "TENANT_SATURATED"),), steps=["ocr", "sis"])
    trips.clear()
    job = await driver.write(replace(creation, messages=(message("one"),)))
    assert len(trips) == 2, trips  # What is read, and what is written.

    trips.clear()
    change = driver.change(job, published(job), ack(job), result(job))
    settled = (DeliveryRef("lane", "ocr", "one"),)
    job = await driver.write(replace(change, messages=(message("two"),), settled=settled))
    assert len(trips) == 1, trips

    trips.clear()
    assert (await driver.read(job)).revision == job.revision
    assert len(trips) == 1, trips
    assert [one.ref.message_id for one in await bus.receive(["lane"], "ocr", 9, 60.0, 0.0)] == ["two"]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[Any]]]:
    """What another process does once, between what a turn reads and the one statement that writes it."""
    races: list[Callable[[], Awaitable[Any]]] = []
    real = postgres_statements._run_together

    async def racing(connection: Any, statements: Any, in_one: bool = False) -> Any:
        if races and in_one and any(isinstance(one, Run) for one in statements):
            await races.pop()()
        return await real(connection, statements, in_one)

    monkeypatch.setattr(postgres_statements, "_run_together", racing)
    return races


LIMITS = (Limit("tenant:acme", 2, "TENANT_SATURATED"),)


async def test_a_job_that_has_changed_costs_its_turn_one_attempt_and_the_next_turns_a_look(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock, trips: list[str]
) -> None:
    ledger = SqlLedger(postgres_database, bus)
    driver = LedgerDriver(ledger, clock)
    stale, job = [await driver.write(driver.creation(key=key, limits=LIMITS)) for key in ("stale", "fresh")]
    await LedgerDriver(SqlLedger(postgres_database, bus), clock).tell(stale, published(stale))
    late = replace(driver.change(stale, published(stale), ack(stale)), messages=(message("never"),))
    for facts, round_trips in (((published(job),), 5), ((ack(job),), 2)):
        trips.clear()
        outcomes = await ledger.commit([late, driver.change(job, *facts)])
        assert outcomes == [Conflict(), Committed()]
        # The statement that fails, BEGIN, what is read, what is written, COMMIT; then a look and one statement.
        assert len(trips) == round_trips, trips
        job = await driver.read(job)
    assert await bus.receive(["lane"], "ocr", 9, 60.0, 0.0) == []


async def test_a_limit_that_another_process_fills_meanwhile_is_kept(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock, meanwhile: list[Any]
) -> None:
    ledger = SqlLedger(postgres_database, bus)
    driver = LedgerDriver(ledger, clock)
    await driver.write(driver.creation(key="first", limits=LIMITS))
    meanwhile.append(lambda: driver.write(driver.creation(key="other", limits=LIMITS)))
    outcome = await driver.commit(replace(driver.creation(key="late", limits=LIMITS), messages=(message("never"),)))
    assert isinstance(outcome, Saturated)
    assert (await ledger.inflight())["tenant:acme"] == 2
    assert await bus.receive(["lane"], "ocr", 9, 60.0, 0.0) == []


async def test_a_claim_that_another_process_takes_meanwhile_is_its(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock, meanwhile: list[Any]
) -> None:
    driver = LedgerDriver(SqlLedger(postgres_database, bus), clock)
    other = driver.creation(key="one")
    meanwhile.append(lambda: driver.write(other))
    outcome = await driver.commit(replace(driver.creation(key="one"), messages=(message("never"),)))
    assert isinstance(outcome, Duplicate)
    assert outcome.job_id == other.after.job_id
    assert await bus.receive(["lane"], "ocr", 9, 60.0, 0.0) == []


async def test_a_subscription_that_is_declared_meanwhile_gets_the_turns_message(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock, meanwhile: list[Any]
) -> None:
    driver = LedgerDriver(SqlLedger(postgres_database, bus), clock)
    other = SqlBus(postgres_database, clock)
    meanwhile.append(lambda: other.declare([Subscription(topic="lane", name="all", where={})]))
    await driver.write(replace(driver.creation(key="one"), messages=(message("one"),)))
    for name in ("ocr", "all"):
        assert [one.ref.message_id for one in await other.receive(["lane"], name, 9, 60.0, 0.0)] == ["one"]


async def test_writes_of_one_statement_run_in_their_order(postgres_database: PostgresDatabase) -> None:
    """Locks are taken in it, and the counters that many turns wait for come last."""

    def create() -> Script[None]:
        for name in ("first", "second", "third"):
            yield Run(f"CREATE TABLE {name} (at BIGINT)")
        yield Run("CREATE SEQUENCE places")

    def write() -> Script[None]:
        for name in ("first", "second", "third"):
            yield Run(f"INSERT INTO {name} (at) SELECT nextval('places') FROM unnest($1::text[])", [(["row"],)])

    await postgres_database.write(create)
    await postgres_database.write(lambda: in_one_round_trip([write()], writes=True))

    def read() -> Script[list[int]]:
        found = []
        for name in ("first", "second", "third"):
            found += [row[0] for row in (yield Fetch(f"SELECT at FROM {name}"))]
        return found

    assert await postgres_database.read(read) == [1, 2, 3]


async def test_a_pull_takes_one_round_trip_whether_it_finds_something_or_not(bus: SqlBus, trips: list[str]) -> None:
    await bus.receive(["lane"], "ocr", 9, 60.0, 0.0)  # Looks for waits that are too long, once a minute.
    await bus.publish([message(f"{tenant}-{at}", tenant) for tenant in ("a", "b") for at in range(4)])
    trips.clear()
    assert len(await bus.receive(["lane"], "ocr", 9, 60.0, 0.0)) == 8
    assert len(trips) == 1, trips
    assert await bus.receive(["lane"], "ocr", 9, 60.0, 0.0) == []
    assert len(trips) == 2, trips


async def test_a_message_reaches_a_subscription_that_another_process_has_just_declared(
    postgres_database: PostgresDatabase, bus: SqlBus, clock: ManualClock
) -> None:
    other = SqlBus(postgres_database, clock)
    await other.declare([Subscription(topic="lane", name="sis", where={"service": "sis"})])
    await bus.publish([message("one", service="sis")])
    assert len(await other.receive(["lane"], "sis", 9, 60.0, 0.0)) == 1


async def test_what_one_transaction_publishes_and_settles_is_not_delivered(
    postgres_database: PostgresDatabase, bus: SqlBus
) -> None:
    settled = [DeliveryRef("lane", "ocr", "gone")]
    await postgres_database.write(lambda: bus.enlisted([message("gone"), message("stays")], settled, True))
    taken = await bus.receive(["lane"], "ocr", 9, 60.0, 0.0)
    assert [one.ref.message_id for one in taken] == ["stays"]


async def test_scripts_side_by_side_are_answered_like_scripts_one_after_another(
    postgres_database: PostgresDatabase, trips: list[str]
) -> None:
    def create() -> Script[None]:
        yield Run("CREATE TABLE notes (name TEXT PRIMARY KEY, size BIGINT NOT NULL)")

    await postgres_database.write(create)
    seen: dict[str, Any] = {}

    def write(*names: str) -> Script[None]:
        yield Run(INSERT, [(name, len(name)) for name in names])

    def read(key: str) -> Script[None]:
        seen[key] = [tuple(row) for row in (yield Fetch(NAMES))]
        seen[f"{key} again"] = [tuple(row) for row in (yield Fetch(f"{NAMES} LIMIT $1::bigint", (1,)))]

    def nothing() -> Script[None]:
        return
        yield

    trips.clear()
    await postgres_database.write(
        lambda: together(
            [read("first"), write("a", "b"), nothing(), together([write("c")], at_once=True)], at_once=True
        )
    )
    assert len(trips) == 4, trips
    assert seen == {"first": [], "first again": [("a",)]}
    await postgres_database.write(lambda: together([write("d"), read("second")], at_once=False))
    assert [row[0] for row in seen["second"]] == ["a", "b", "c", "d"]


async def test_a_read_that_goes_on_sees_one_state(postgres_database: PostgresDatabase) -> None:
    """And one that is cancelled leaves no connection behind that a later transaction could not begin on."""

    def two() -> Script[tuple[Any, Any]]:
        first = yield Fetch("SELECT txid_current_snapshot()::text")
        second = yield Fetch("SELECT txid_current_snapshot()::text")
        return first[0][0], second[0][0]

    first, second = await postgres_database.read(two)
    assert first == second

    def slow() -> Script[None]:
        yield Fetch("SELECT pg_sleep(30)")

    for _ in range(3):
        task = asyncio.create_task(postgres_database.read(slow))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await postgres_database.write(two)

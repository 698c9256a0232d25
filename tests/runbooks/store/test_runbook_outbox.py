"""Messages leave with the transaction that has them, or not at all; on every kind of bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.ports.bus import BusUnavailable, Deferred, Delivery, DeliveryRef, Message, Refused, Subscription
from lucius.runbooks.engine.outbox import BATCH_MAX, CLAIM_SECONDS, Outbox
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.store.outbox import WAITING
from lucius.sql.database import Database, Fetch, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import JOB_TOKENS, ManualClock

QUEUE = Subscription(topic="jobs", name="w", where={"WorkerId": "w"})


def message(number: int, topic: str = "jobs") -> Message:
    return Message(id=f"m{number}", topic=topic, body=b'{"n":%d}' % number, properties={"WorkerId": "w"})


class UnreliableBus(MemoryBus):
    """One that may be away, before it takes messages or after."""

    away = False
    forgets_to_answer = False
    full = ""
    """A topic that takes nothing."""

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:  # type: ignore[override]
        if self.away:
            raise BusUnavailable("away")
        taken = iter(await super().publish([one for one in messages if one.topic != self.full]))
        answers = [Deferred(f"{self.full} is full") if one.topic == self.full else next(taken) for one in messages]
        if self.forgets_to_answer:
            raise BusUnavailable("the answer was lost")
        return answers

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        if self.away:
            raise BusUnavailable("away")
        await super().settle(refs)


@pytest.fixture
async def bus(clock: ManualClock) -> UnreliableBus:
    bus = UnreliableBus(clock)
    await bus.declare([QUEUE])
    return bus


@pytest.fixture
def turns(sqlite_database: SqliteDatabase, bus: UnreliableBus, clock: ManualClock) -> Turns:
    return Turns(sqlite_database, Outbox(sqlite_database, bus), clock, JOB_TOKENS)


def sending(*messages: Message, settled: Sequence[DeliveryRef] = ()) -> Any:
    def work(turn: Turn) -> Script[None]:
        turn.messages.extend(messages)
        turn.settled.extend(settled)
        yield Fetch("SELECT 1")

    return work


async def waiting(database: Database) -> int:
    def script() -> Script[int]:
        return (yield Fetch(WAITING))[0][0]

    return await database.read(script)


async def received(bus: Any) -> list[Delivery]:
    found: list[Delivery] = await bus.receive(["jobs"], "w", 1_000, 60.0, 0.0)
    return found


async def test_a_message_leaves_with_the_commit(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase
) -> None:
    assert turns.outbox.is_needed
    await turns.take(sending(message(1)))
    [delivery] = await received(bus)
    assert delivery.body == b'{"n":1}'
    assert delivery.properties == {"WorkerId": "w"}
    assert await waiting(sqlite_database) == 0


async def test_nothing_leaves_before_the_commit(sqlite_database: SqliteDatabase, bus: UnreliableBus) -> None:
    outbox = Outbox(sqlite_database, bus)
    await sqlite_database.write(lambda: outbox.send([message(1)], (), 0))
    assert await received(bus) == []
    assert await waiting(sqlite_database) == 1


async def test_a_rollback_leaves_nothing(turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase) -> None:
    def failing() -> Script[None]:
        yield from turns.outbox.send([message(1)], (), 0)
        raise ValueError("after the message was written")

    with pytest.raises(ValueError, match="after the message"):
        await sqlite_database.write(failing)
    assert await waiting(sqlite_database) == 0
    assert await turns.outbox.empty(10) == 0
    assert await received(bus) == []


async def test_they_leave_in_the_order_in_which_they_were_sent(turns: Turns, bus: UnreliableBus) -> None:
    count = BATCH_MAX * 2 + 7
    await turns.take(sending(*(message(number) for number in range(count))))
    assert [delivery.ref.message_id for delivery in await received(bus)] == [f"m{number}" for number in range(count)]


async def test_what_was_committed_has_happened_even_if_the_bus_is_away(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    bus.away = True
    await turns.take(sending(message(1), message(2)))
    assert await waiting(sqlite_database) == 2
    clock.advance(CLAIM_SECONDS)
    with pytest.raises(BusUnavailable):
        await turns.outbox.empty(clock.now())


async def test_another_process_sends_what_a_dead_one_left(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    bus.away = True
    await turns.take(sending(message(1), message(2)))
    bus.away = False
    other = Outbox(sqlite_database, bus)
    assert await other.empty(clock.advance(CLAIM_SECONDS - 1)) == 0, "its maker may still be at it"
    assert await received(bus) == []
    assert await other.empty(clock.advance(1)) == 2
    assert [delivery.ref.message_id for delivery in await received(bus)] == ["m1", "m2"]
    assert await waiting(sqlite_database) == 0
    assert await other.empty(clock.advance(CLAIM_SECONDS)) == 0


async def test_what_the_bus_has_and_the_outbox_does_not_know_of_arrives_once(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    """The process died between the bus's answer and its own note of it."""
    bus.forgets_to_answer = True
    await turns.take(sending(message(1)))
    assert await waiting(sqlite_database) == 1
    bus.forgets_to_answer = False
    assert await Outbox(sqlite_database, bus).empty(clock.advance(CLAIM_SECONDS)) == 1
    assert len(await received(bus)) == 1, "the message's id is the same"
    assert await waiting(sqlite_database) == 0


async def test_one_that_the_bus_refuses_does_not_hold_up_the_others(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    await turns.take(sending(message(1), message(2, topic="nobody-declared-it"), message(3)))
    assert [delivery.ref.message_id for delivery in await received(bus)] == ["m1", "m3"]
    assert await waiting(sqlite_database) == 1
    await bus.declare([Subscription(topic="nobody-declared-it", name="w")])
    await turns.outbox.empty(clock.advance(CLAIM_SECONDS))
    assert await waiting(sqlite_database) == 0


async def test_full_topic_does_not_hold_up_the_others_and_is_said(
    turns: Turns, bus: UnreliableBus, sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    await bus.declare([Subscription(topic="events", name="w")])
    bus.full = "events"
    many = BATCH_MAX + 10
    await turns.take(sending(*(message(n, topic="events") for n in range(many)), message(many)))
    assert [delivery.ref.message_id for delivery in await received(bus)] == [f"m{many}"]
    assert await waiting(sqlite_database) == many
    with pytest.raises(BusUnavailable, match="events is full"):
        await turns.outbox.empty(clock.advance(CLAIM_SECONDS))
    bus.full = ""
    assert await turns.outbox.empty(clock.advance(CLAIM_SECONDS)) == many
    assert await waiting(sqlite_database) == 0


async def test_a_message_that_no_bus_would_take_is_refused_beforehand(turns: Turns) -> None:
    large = Message(id="m", topic="jobs", body=b"x" * 300_000, properties={})
    assert turns.outbox.refusal(message(1)) is None
    assert "300000 bytes" in (turns.outbox.refusal(large) or "")


async def test_what_is_dealt_with_is_settled_after_the_commit(turns: Turns, bus: UnreliableBus) -> None:
    await bus.publish([message(1)])
    [delivery] = await received(bus)
    await turns.take(sending(settled=[delivery.ref]))
    [depth] = await bus.depths()
    assert (depth.ready, depth.locked) == (0, 0)


async def test_what_could_not_be_settled_comes_again(turns: Turns, bus: UnreliableBus, clock: ManualClock) -> None:
    await bus.publish([message(1)])
    [delivery] = await received(bus)
    bus.away = True
    await turns.take(sending(settled=[delivery.ref]))
    bus.away = False
    clock.advance(61)
    assert [again.ref.message_id for again in await received(bus)] == ["m1"]


async def test_two_processes_never_send_the_same_rows(
    postgres_database: PostgresDatabase, bus: UnreliableBus, clock: ManualClock
) -> None:
    count = BATCH_MAX * 4
    first = Outbox(postgres_database, bus)
    await postgres_database.write(lambda: first.send([message(number) for number in range(count)], (), clock.now()))
    outboxes = [first, Outbox(postgres_database, bus), Outbox(postgres_database, bus)]
    sent = await asyncio.gather(*(outbox.empty(clock.now()) for outbox in outboxes))
    assert sum(sent) == count
    assert await waiting(postgres_database) == 0
    assert len(await received(bus)) == count


# --- Buses in the same database --------------------------------------------------------------------------------------


@pytest.fixture
async def journaled_bus(sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[JournaledBus]:
    async with JournaledBus(sqlite_database, clock) as bus:
        await bus.declare([QUEUE])
        yield bus


@pytest.fixture
async def sql_bus(postgres_database: PostgresDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
    async with SqlBus(postgres_database, clock) as bus:
        await bus.declare([QUEUE])
        yield bus


@pytest.fixture(params=["journaled_bus", "sql_bus"])
def own_bus(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


async def test_a_bus_in_the_same_database_takes_them_within_the_transaction(own_bus: Any, clock: ManualClock) -> None:
    turns = Turns(own_bus.database, Outbox(own_bus.database, own_bus), clock, JOB_TOKENS)
    assert not turns.outbox.is_needed
    await turns.take(sending(message(1)))
    [delivery] = await received(own_bus)
    assert delivery.ref.message_id == "m1"
    assert await waiting(own_bus.database) == 0, "it has never been in the outbox"
    await turns.take(sending(message(2), settled=[delivery.ref]))
    assert [one.ref.message_id for one in await received(own_bus)] == ["m2"]
    assert await turns.outbox.empty(clock.now()) == 0


async def test_there_too_a_rollback_leaves_nothing(own_bus: Any, clock: ManualClock) -> None:
    outbox = Outbox(own_bus.database, own_bus)

    def failing() -> Script[None]:
        yield from outbox.send([message(1)], (), clock.now())
        raise ValueError("after the message was written")

    with pytest.raises(ValueError, match="after the message"):
        await own_bus.database.write(failing)
    assert await received(own_bus) == []


async def test_a_bus_in_another_database_needs_the_outbox(
    sqlite_database: SqliteDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    async with SqliteDatabase(tmp_path / "elsewhere.db") as elsewhere:
        await upgrade(elsewhere)
        async with JournaledBus(elsewhere, clock) as bus:
            await bus.declare([QUEUE])
            turns = Turns(sqlite_database, Outbox(sqlite_database, bus), clock, JOB_TOKENS)
            assert turns.outbox.is_needed
            await turns.take(sending(message(1)))
            assert len(await received(bus)) == 1


async def test_claim_of_a_clock_that_was_ahead_is_no_longer_than_a_claim(
    turns: Turns, bus: UnreliableBus, clock: ManualClock
) -> None:
    bus.away = True
    clock.advance(3_600)
    await turns.take(sending(message(1)))
    clock.advance(-3_600)
    bus.away = False
    clock.advance(CLAIM_SECONDS)
    assert await turns.outbox.empty(clock.now()) == 1
    assert len(await received(bus)) == 1

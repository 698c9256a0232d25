"""Notices become rows: at most one message for one cause in its interval, and nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.notifications.samples import NOW, held

from lucius.domain.notifications import INTERVAL_SECONDS, Cause, Notice
from lucius.domain.time import after
from lucius.notifications import recording, store
from lucius.notifications.store import DELIVERED, NotificationFilter
from lucius.ports.database import Database, Script

EVERYTHING = NotificationFilter()


async def record(database: Database, notices: list[Notice], now: int = NOW) -> int:
    return len(await database.write(partial(recording.record, notices, now)))


async def rows(database: Database) -> list[tuple[int, int]]:
    """When each is due after NOW, in seconds, and its count; oldest first."""
    found = await database.read(partial(store.listed, EVERYTHING, 100, None))
    return [((one.due_at - NOW) // 1000, one.facts.count) for one in reversed(found)]


async def test_what_repeats_within_the_interval_becomes_one_message_at_its_end(database: Database) -> None:
    assert await record(database, [held()]) == 1
    for second in (10, 20, 30):
        await record(database, [held(at=after(NOW, second))], after(NOW, second))
    assert await rows(database) == [(0, 1), (INTERVAL_SECONDS, 3)]
    # The message at the interval's end begins the next interval.
    later = after(NOW, INTERVAL_SECONDS + 5)
    await record(database, [held(at=later)], later)
    assert await rows(database) == [(0, 1), (INTERVAL_SECONDS, 3), (2 * INTERVAL_SECONDS, 1)]


async def test_after_a_quiet_interval_the_next_is_due_at_once(database: Database) -> None:
    await record(database, [held()])
    later = after(NOW, INTERVAL_SECONDS + 1)
    await record(database, [held(at=later)], later)
    assert await rows(database) == [(0, 1), (INTERVAL_SECONDS + 1, 1)]


async def test_what_happens_many_times_in_one_transaction_is_one_message(volatile: Database) -> None:
    await record(volatile, [held(), held(), held(batch_id=8), held(cause=Cause.BATCH_ENDED)])
    assert sorted(await rows(volatile)) == [(0, 1), (0, 1), (0, 2)]


async def test_a_message_that_is_being_sent_takes_nothing_more(database: Database) -> None:
    await record(database, [held()])
    await record(database, [held()], after(NOW, 10))
    due = after(NOW, INTERVAL_SECONDS)
    # A sender whose clock is ahead has claimed it.
    claimed = await database.write(partial(store.claim, due, after(due, 60), 10, []))
    assert len(claimed) == 2
    await record(database, [held()], after(NOW, 20))
    assert await rows(database) == [(0, 1), (INTERVAL_SECONDS, 1), (2 * INTERVAL_SECONDS, 1)]


async def test_a_transaction_that_fails_records_nothing(database: Database) -> None:
    def work() -> Script[None]:
        yield from recording.record([held()], NOW)
        raise RuntimeError("the turn fails")

    with pytest.raises(RuntimeError):
        await database.write(work)
    assert await rows(database) == []
    assert await record(database, [held()]) == 1


async def test_many_at_once_record_one_message(database: Database) -> None:
    await asyncio.gather(*(record(database, [held(), held(batch_id=8)]) for _ in range(8)))
    assert sorted(await rows(database)) == [(0, 1), (0, 1), (INTERVAL_SECONDS, 7), (INTERVAL_SECONDS, 7)]


async def test_marks_are_new_once(database: Database) -> None:
    marks = [("deadline:job:1", NOW), ("deadline:job:2", NOW)]
    assert await database.write(partial(recording.first_time, marks)) == {"deadline:job:1", "deadline:job:2"}
    more = [*marks, ("deadline:job:3", NOW)]
    assert await database.write(partial(recording.first_time, more)) == {"deadline:job:3"}


async def test_a_claim_keeps_others_away_until_it_expires(database: Database) -> None:
    await record(database, [held()])
    take = partial(store.claim, NOW, after(NOW, 60), 10, [])
    assert len(await database.write(take)) == 1
    assert await database.write(take) == []
    assert await database.write(partial(store.claim, after(NOW, 60), after(NOW, 120), 10, ["runbook:move"])) == []
    assert len(await database.write(partial(store.claim, after(NOW, 60), after(NOW, 120), 10, ["runbook:other"]))) == 1


async def test_what_ended_long_ago_is_forgotten_and_what_waits_is_not(database: Database) -> None:
    await record(database, [held(), held(batch_id=8)])
    (one, _) = await database.write(partial(store.claim, NOW, after(NOW, 60), 10, []))
    ended = type(one)(
        **{name: getattr(one, name) for name in one.__struct_fields__} | {"status": DELIVERED, "ended_at": NOW}
    )
    await database.write(partial(store.done, ended))
    await database.write(partial(store.forget, after(NOW, 10**6), 100))
    assert len(await rows(database)) == 1
    assert await record(database, [held()], after(NOW, 1)) == 1, "the cause is forgotten too"

"""Who is there: what is said of those who are not, and how much is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.ledgers.sql.workers import SqlWorkers
from lucius.ports.observer import Observer
from lucius.ports.workers import WorkerKind
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock
from lucius.usecases.sightings import ABSENT_SECONDS, KEPT_MAX, KEPT_SECONDS, Sightings

SERVICE, WORKER = WorkerKind.SERVICE, WorkerKind.WORKER


@pytest.fixture
async def store() -> AsyncIterator[SqlWorkers]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        yield SqlWorkers(database)


async def test_absence_is_said_in_a_sentence(store: SqlWorkers, clock: ManualClock) -> None:
    sightings = Sightings(store, clock, Observer())
    assert sightings.absent_service("ocr") == "no service `ocr` has asked for work yet"
    assert sightings.absent_worker("depot") == "no worker `depot` has asked for work yet"
    sightings.saw(SERVICE, "ocr", "a", in_work=2)
    sightings.saw(SERVICE, "ocr", "b")
    clock.advance(ABSENT_SECONDS - 1)
    assert sightings.absent_service("ocr") is None
    sightings.saw(SERVICE, "ocr", "a", in_work=2)
    clock.advance(ABSENT_SECONDS)
    assert sightings.absent_service("ocr") == (
        "no service `ocr` has asked for work since 2026-05-28T20:27:09.000Z (it had 2 in work then)"
    )
    assert sightings.absent_worker("ocr") is not None


async def test_processes_agree_on_who_was_seen(store: SqlWorkers, clock: ManualClock) -> None:
    here, there = Sightings(store, clock, Observer()), Sightings(store, clock, Observer())
    here.saw(WORKER, "depot", "a", version="1")
    await here.flush()
    await there.flush()
    assert there.absent_worker("depot") is None
    clock.advance(5)
    there.saw(WORKER, "depot", "a", version="2", in_work=1)
    await there.flush()
    await here.flush()
    (one,) = here.all()
    assert (one.version, one.in_work, one.last_seen_at - one.first_seen_at) == ("2", 1, 5_000)


async def test_what_was_seen_survives_a_store_that_is_away(store: SqlWorkers, clock: ManualClock) -> None:
    class Away(SqlWorkers):
        async def newest(self, limit: int) -> list:  # type: ignore[type-arg]
            raise OSError("away")

    sightings = Sightings(Away(store._database), clock, Observer())
    sightings.saw(SERVICE, "ocr", "a")
    with pytest.raises(OSError, match="away"):
        await sightings.flush()
    assert sightings.absent_service("ocr") is None
    sightings._store = store
    await sightings.flush()
    assert len(await store.newest(10)) == 1


async def test_only_so_many_are_remembered(store: SqlWorkers, clock: ManualClock) -> None:
    sightings = Sightings(store, clock, Observer())
    for number in range(KEPT_MAX + 5):
        clock.advance(0.001)
        sightings.saw(SERVICE, "ocr", f"instance-{number}")
    assert len(sightings.all()) == KEPT_MAX
    await sightings.flush()
    clock.advance(KEPT_SECONDS + 1)
    await sightings.forget()
    await sightings.flush()
    assert sightings.all() == []

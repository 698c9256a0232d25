"""A ledger that was restored from a backup: the workflow writes over it, and settles what the backup brought back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from lucius.buses.sql import JournaledBus
from lucius.domain.decide import decide
from lucius.domain.directive import message_id
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import Job
from lucius.engines.directives import directive_ref
from lucius.engines.temporal.activities import JobActivities
from lucius.engines.temporal.messages import Projection
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Message, Subscription
from lucius.ports.observer import Observer
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver, published
from lucius.testing.samples import ManualClock

BACKOFF_SECONDS = 100.0


def compose(job: Job, index: int) -> Message:
    step = job.steps[index]
    name = message_id(job.job_id, step.spec.step_id, step.attempt_no)
    return Message(id=name, topic=job.spec.routing.topic, body=b"{}", properties={})


@pytest.fixture
async def bus(sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[JournaledBus]:
    async with JournaledBus(sqlite_database, clock) as bus:
        yield bus


async def test_directives_that_a_backup_brought_back_are_settled(
    sqlite_database: SqliteDatabase, bus: JournaledBus, clock: ManualClock
) -> None:
    ledger = SqlLedger(sqlite_database, bus)
    job = await LedgerDriver(ledger, clock).create(steps=["ocr"])
    topic = job.spec.routing.topic
    await bus.declare([Subscription(topic=topic, name="ocr")])
    await bus.publish([compose(job, 0)])
    clock.claim_seconds = 0.0
    ahead = decide(job, published(job), clock.now(), clock).job
    for seconds in (30.0, BACKOFF_SECONDS):
        clock.advance(seconds)
        before = replace(ahead, revision=job.revision + 10)
        ahead = decide(ahead, DeadlinePassed(), clock.now(), clock).job
    assert ahead.current_step.attempt_no == 2

    hands = JobActivities(ledger, bus, clock, Observer(), compose)
    after = replace(ahead, revision=before.revision)
    await hands.record_attempt_lease(Projection(before=before, after=after, events=()))

    taken = await bus.receive([topic], "ocr", 10, 5.0, 0.0)
    assert [delivery.ref for delivery in taken] == [directive_ref(ahead, 0, 2)]

"""A worker whose ledger's clock is behind that of Temporal's server: it never says that a thing was done too early."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from lucius.buses.sql import JournaledBus
from lucius.domain.decide import decide
from lucius.domain.job import Job
from lucius.domain.time import after
from lucius.engines.temporal.activities import JobActivities
from lucius.engines.temporal.messages import Projection
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Message, Subscription
from lucius.ports.ledger import Change, Committed
from lucius.ports.observer import Observer
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import ManualClock, accepted

BEHIND_SECONDS = 20.0


def compose(job: Job, index: int) -> Message:
    return Message(id=f"{job.job_id}-{job.steps[index].attempt_no}", topic="lane", body=b"{}", properties={})


async def started(ledger: SqlLedger, clock: ManualClock) -> Job:
    """A job with an attempt that is not published yet, as the API leaves it."""
    clock.claim_seconds = 0.0
    job = decide(None, accepted(clock), clock.now(), clock).job
    assert await ledger.commit([Change(before=None, after=job)]) == [Committed()]
    return replace(job, revision=1)


@pytest.fixture
async def ledger(sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[SqlLedger]:
    async with JournaledBus(sqlite_database, clock) as bus:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        yield SqlLedger(sqlite_database, bus)


@pytest.fixture
def hands(ledger: SqlLedger, clock: ManualClock) -> JobActivities:
    assert isinstance(ledger._bus, JournaledBus)
    return JobActivities(ledger, ledger._bus, clock, Observer(), compose)


async def test_ack_deadline_is_counted_from_the_workflows_time_where_that_is_later(
    ledger: SqlLedger, hands: JobActivities, clock: ManualClock
) -> None:
    job = await started(ledger, clock)
    server_time = after(clock.now(), BEHIND_SECONDS)
    assert (await hands.publish_to_bus(replace(job, updated_at=server_time))).published_at == server_time
    (held,) = (await ledger.load([job.job_id])).values()
    assert held.current_step.due_at == after(server_time, job.current_step.spec.policy.ack_timeout_seconds)


async def test_attempt_that_the_workflow_makes_is_published_at_its_time_where_that_is_later(
    ledger: SqlLedger, hands: JobActivities, clock: ManualClock
) -> None:
    job = await started(ledger, clock)
    moved = replace(job, updated_at=after(clock.now(), BEHIND_SECONDS))
    recorded = await hands.project(Projection(before=job, after=moved, events=()))
    assert recorded.published_at == moved.updated_at

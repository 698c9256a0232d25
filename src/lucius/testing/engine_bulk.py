"""Engine suite, part six: bulk operations, whatever drives the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lucius.domain.bulk_operation import BulkAction, BulkFilter, BulkOperation, BulkStatus, ItemStatus
from lucius.domain.job import JobStatus
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.ports.observer import Observer
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness
from lucius.usecases.bulk_operations import Bulk, BulkWish
from lucius.usecases.bulk_runner import BulkRunner
from lucius.usecases.operate import Operations
from lucius.usecases.query import Queries


class _Party:
    """Operations on the jobs of a harness, and the runner that carries them out."""

    def __init__(self, harness: EngineHarness, store: SqlBulkOperations) -> None:
        engine, ledger, clock = harness.engine, harness.ledger, harness.clock
        self.store = store
        self.bulk = Bulk(store, ledger, clock, Observer())
        operations = Operations(engine, Queries(ledger, engine), ledger, clock, Observer(), lambda job: ())
        self.runner = BulkRunner(store, ledger, operations, clock, Observer())

    async def create(self, action: BulkAction, canary: int = 0) -> str:
        wish = BulkWish(action=action, filter=BulkFilter(), reason="a test", rate_per_second=1_000.0, canary=canary)
        return (await self.bulk.create(wish, "tester", None))[0].operation_id

    async def until(self, operation_id: str, status: BulkStatus) -> BulkOperation:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await self.runner.round()
                operation = await self.bulk.get(operation_id, None)
                if operation.status is status and (status is not BulkStatus.CANARY or operation.counts.started):
                    return operation
                await asyncio.sleep(0.02)


@asynccontextmanager
async def _party(harness: EngineHarness) -> AsyncIterator[_Party]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        yield _Party(harness, SqlBulkOperations(database))


class EngineBulk:
    async def test_jobs_are_paused_resumed_and_cancelled_together(self, harness: EngineHarness) -> None:
        await harness.start()
        job_ids = [await harness.submit(steps=["ocr"], policy=harness.cancel_policy) for _ in range(3)]
        for job_id in job_ids:
            await harness.until(job_id, JobStatus.IN_PROGRESS)
        async with _party(harness) as party:
            for action, status in (
                (BulkAction.PAUSE, JobStatus.PAUSED),
                (BulkAction.RESUME, JobStatus.IN_PROGRESS),
                (BulkAction.CANCEL, JobStatus.CANCELLED),
            ):
                ended = await party.until(await party.create(action), BulkStatus.COMPLETED)
                assert (ended.counts.succeeded, ended.counts.total) == (3, 3)
                for job_id in job_ids:
                    await harness.until(job_id, status)

    async def test_failed_jobs_are_redriven_once_after_a_canary(self, harness: EngineHarness) -> None:
        await harness.start()
        job_ids = {await harness.submit(steps=["ocr"]) for _ in range(3)}
        for _ in job_ids:
            await harness.fail(await harness.take(), retryable=False)
        for job_id in job_ids:
            await harness.until(job_id, JobStatus.FAILED_FINAL)
        async with _party(harness) as party:
            operation_id = await party.create(BulkAction.REDRIVE, canary=1)
            await party.until(operation_id, BulkStatus.CANARY)
            await harness.succeed(await harness.take())
            await party.until(operation_id, BulkStatus.FINISHING)
            for _ in range(2):
                await harness.succeed(await harness.take())
            ended = await party.until(operation_id, BulkStatus.COMPLETED)
            assert (ended.counts.succeeded, ended.counts.total) == (3, 3)
            items = await party.store.items(operation_id, 10, None, ItemStatus.SUCCEEDED)
            assert {item.job_id for item in items} == job_ids
            assert len({item.new_job_id for item in items}) == 3
            assert (await party.bulk.preview(BulkAction.REDRIVE, BulkFilter())).count == 0

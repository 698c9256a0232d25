"""Copying jobs from one ledger to another: what is read from the copy is what the source has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.azurite import Azurite
from tests.long_form import IS_LONG
from tests.tables_ledger import opened_ledger

from lucius.cli.failures import EXIT_WITH_FAILURES
from lucius.cli.main import cli
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import Job
from lucius.domain.time import Instant, after
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.ledger import Closing, Duplicate, JobFilter, Ledger
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver, published
from lucius.testing.samples import START, ManualClock
from lucius.usecases.copy_ledger import Copied, copy_jobs


async def _fill(driver: LedgerDriver) -> None:
    """A job in each of the states in which jobs rest, and open ones."""
    ledger, clock = driver.ledger, driver.clock
    await driver.succeed(await driver.create(key="succeeded"))
    failed = await driver.fail(await driver.create(key="redriven"))
    await driver.create(key="redriven", claims=False, redrive_of=failed.job_id)
    dismissed = await driver.fail(await driver.create(key="dismissed"))
    await ledger.dismiss(Closing(job_id=dismissed.job_id, at=clock.now(), by="ann", reason="known"))
    await driver.cancel(await driver.create(key="cancelled", tenant_id="globex"))
    retried = await driver.create(key="retried")
    retried = await driver.tell(retried, published(retried))
    clock.advance(10**4)  # No ACK came: the next attempt.
    await driver.tell(retried, DeadlinePassed())


async def _everything(ledger: Ledger) -> dict[str, Any]:
    jobs = [job for job in await ledger.jobs(JobFilter(), 100, None) if isinstance(job, Job)]
    ids = [job.job_id for job in jobs]
    dead = await ledger.jobs(JobFilter(dead_letter=True), 100, None)
    return {
        "jobs": jobs,
        "events": {job_id: await ledger.events(job_id, 0, 1_000) for job_id in ids},
        "attempts": {job_id: await ledger.attempts(job_id) for job_id in ids},
        "closings": await ledger.closings(ids),
        "inflight": await ledger.inflight(),
        "dead letters": [job.job_id for job in dead],
    }


@pytest.mark.parametrize("layout", ["ledger", "table"] if IS_LONG else ["table"])
async def test_jobs_are_the_same_in_azure_tables_and_back(
    sqlite_database: SqliteDatabase, azurite: Azurite, layout: str
) -> None:
    async with SqlLedger(sqlite_database) as source, MemoryLedger() as back:
        driver = LedgerDriver(source, ManualClock())
        await _fill(driver)
        wanted = await _everything(source)
        assert len(wanted["jobs"]) == 6
        async with opened_ledger(azurite, layout) as target:
            assert await copy_jobs(source, target) == Copied(6, 0, ())
            assert await _everything(target) == wanted
            assert await copy_jobs(source, target) == Copied(0, 6, ())
            again = driver.creation(key="succeeded")
            assert isinstance((await target.commit([again]))[0], Duplicate)
            assert await copy_jobs(target, back) == Copied(6, 0, ())
        assert await _everything(back) == wanted


async def test_a_copy_that_ended_before_a_dismissal_is_completed_by_the_next() -> None:
    async with MemoryLedger() as source, MemoryLedger() as target:
        driver = LedgerDriver(source, ManualClock())
        failed = await driver.fail(await driver.create())
        assert await copy_jobs(source, target) == Copied(1, 0, ())
        closing = Closing(job_id=failed.job_id, at=driver.clock.now(), by="ann", reason="known")
        await source.dismiss(closing)
        assert await copy_jobs(source, target) == Copied(0, 1, ())
        assert await target.closings([failed.job_id]) == {failed.job_id: closing}


async def _with_job(path: Path, now: Instant) -> Job:
    path.parent.mkdir()
    async with SqliteDatabase(path) as database:
        await upgrade(database)
        async with SqlLedger(database) as ledger:
            return await LedgerDriver(ledger, ManualClock(now)).create(key="same")


def test_jobs_that_are_refused_are_named_and_fail_the_command(tmp_path: Path) -> None:
    refused = asyncio.run(_with_job(tmp_path / "old" / "lucius.db", START))
    there = asyncio.run(_with_job(tmp_path / "new" / "lucius.db", after(START, 1)))
    words = ["db", "copy", f"sqlite:///{tmp_path}/old/lucius.db", "--data", str(tmp_path / "new")]
    ended = CliRunner().invoke(cli, words)
    assert ended.stdout == (
        "0 jobs copied; 0 were there already. 1 were not copied.\n"
        f"not copied: {refused.job_id}: the target has another job for the same command: {there.job_id}\n"
    )
    assert ended.exit_code == EXIT_WITH_FAILURES

"""Jobs that were redriven before schema version 13 are off the dead letters after the upgrade to it."""

from __future__ import annotations

import pytest

from lucius.ledgers.sql import SqlLedger
from lucius.ports.ledger import JobFilter
from lucius.sql.database import Database, Run, Script
from lucius.sql.ledger_tables import DEAD_LETTER_CLOSINGS
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


async def test_upgrade_takes_redriven_jobs_off_the_dead_letters(database: Database, clock: ManualClock) -> None:
    def made_again() -> Script[None]:
        """As the upgrade makes it, in a database whose jobs are from before."""
        yield Run("DROP TABLE dead_letter_closings", [()])
        for statement in DEAD_LETTER_CLOSINGS:
            yield Run(statement, [()])

    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        left = await driver.fail(await driver.create())
        redriven = await driver.fail(await driver.create())
        again = [await driver.create(redrive_of=redriven.job_id) for _ in range(2)]
        await database.write(made_again)
        assert [job.job_id for job in await ledger.jobs(JobFilter(dead_letter=True), 10, None)] == [left.job_id]
        closings = await ledger.closings([left.job_id, redriven.job_id])
        assert {job_id: one.redriven_as for job_id, one in closings.items()} == {redriven.job_id: again[0].job_id}

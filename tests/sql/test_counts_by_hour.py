"""What was counted by minute before schema version 22 is counted by hour after the upgrade to it."""

from __future__ import annotations

import pytest

from lucius.ledgers.sql import SqlLedger
from lucius.sql.database import Database, Fetch, Row, Run, Script
from lucius.sql.figure_tables import COUNTS_OF_PAST_HOURS
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


async def test_upgrade_counts_past_hours(database: Database, clock: ManualClock) -> None:
    def counted() -> Script[list[Row]]:
        return (yield Fetch("SELECT minute, tenant_id, outcome, jobs FROM job_counts ORDER BY 1, 2, 3"))

    def made_again() -> Script[None]:
        """As the upgrade makes them, in a database whose jobs are from before."""
        yield Run("DELETE FROM job_counts WHERE minute < 0", [()])
        yield Run(COUNTS_OF_PAST_HOURS, [()])

    async with SqlLedger(database) as ledger:
        driver = LedgerDriver(ledger, clock)
        for _ in range(3):
            await driver.succeed(await driver.create())
            clock.advance(40 * 60)
        await ledger.count_refused(clock.now(), {"acme": 2})
        before = await database.read(counted)
        await database.write(made_again)
        assert await database.read(counted) == before
        assert {row[0] < 0 for row in before} == {True, False}

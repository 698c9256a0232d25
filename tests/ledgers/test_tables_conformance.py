"""The ledger on Azure Tables passes the ledger suite, in both layouts, on Azurite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.long_form import IS_LONG
from tests.tables_ledger import opened_ledger

from lucius.azure.tables import Put
from lucius.domain.attempt import DispatchStatus
from lucius.ledgers.tables import TablesLedger
from lucius.ledgers.tables.slots import scope_key
from lucius.ports.ledger import Change, Committed, Ledger
from lucius.testing.ledger_suite import LedgerSuite


class TablesSuite(LedgerSuite):
    async def break_count(self, ledger: Ledger, scope: str, jobs: int) -> None:
        assert isinstance(ledger, TablesLedger)
        place = ledger.store.layout.slots()
        await ledger.store.write(place, [Put(scope_key(scope), {"jobs": jobs})])

    async def lose_timer(self, ledger: Ledger, job_id: str) -> None:
        job = (await ledger.load([job_id]))[job_id]
        await _rewrite(ledger, Change(before=job, after=replace(job, wake_at=None)))

    async def set_outbox(self, ledger: Ledger, job_id: str, step_index: int, attempt_no: int, status: str) -> None:
        job = (await ledger.load([job_id]))[job_id]
        steps, step = list(job.steps), job.steps[step_index]
        assert step.attempt is not None
        assert step.attempt.attempt_no == attempt_no
        steps[step_index] = replace(step, attempt=replace(step.attempt, dispatch=DispatchStatus(status)))
        await _rewrite(ledger, Change(before=job, after=replace(job, steps=tuple(steps))))


async def _rewrite(ledger: Ledger, change: Change) -> None:
    assert await ledger.commit([change]) == [Committed()]


class TestLedgerLayout(TablesSuite):
    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "ledger") as ledger:
            yield ledger


class TestTableLayout(TablesSuite):
    """In the short form the crash tests and the engine suite run on this layout."""

    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "table") as ledger:
            yield ledger

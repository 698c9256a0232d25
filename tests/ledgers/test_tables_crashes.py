"""A crash at any write of a scenario on Azure Tables leaves nothing that repair and pruning do not put right.

The process is played by a ledger whose requests end, from the n-th write on, before they are sent: nothing that runs
afterwards can clean up. Then another ledger is opened on the same tables, as after a restart. Texts are so large that
they are in blobs, whose writes and deletions are counted too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.long_form import IS_LONG
from tests.tables_ledger import new_prefix, open_ledger

from lucius.azure.blob import BlobAccount
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import Job, JobStatus
from lucius.domain.time import Instant, after
from lucius.domain.waiting import wait_cause
from lucius.ledgers.tables import TablesLedger
from lucius.ports.ledger import Closing, Committed, Duplicate, JobFilter, Repairs, Webhook
from lucius.testing.invariants import check_ledger
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import CLAIM_SECONDS, START, ManualClock, global_limit, tenant_limit

LIMITS = (tenant_limit(100), global_limit(100))
LATER_SECONDS = 120.0
OF_ALL_JOBS = ("SCOPE:", "MINUTE:", "HOUR:")
HINTS_THAT_GO = ("JOB:", "TENANT:", "TYPE:", "CORRELATION:", "KEY:", "ENDED:", "VOID:", "WEBHOOK:")
LARGE = Raw(b'{"text":"' + b"x" * 40_000 + b'"}')
WRITES_MAX = 500


class Crash(Exception):
    """The process is gone."""


class CrashSwitch:
    """Lets so many writes of rows and blobs pass, and then no request at all."""

    def __init__(self, ledger: TablesLedger, writes_max: int) -> None:
        self.writes = 0
        self._writes_max = writes_max
        ledger.store.account.observers.append(lambda method, url, body: self._look(method != "GET"))
        for name, is_write in {"write": True, "delete": True, "read": False, "names": False}.items():
            self._watch(ledger.store.blobs, name, is_write)

    def _watch(self, blobs: BlobAccount, name: str, is_write: bool) -> None:
        call = getattr(blobs, name)

        async def watched(*args: Any, **options: Any) -> Any:
            self._look(is_write)
            return await call(*args, **options)

        setattr(blobs, name, watched)

    def _look(self, is_write: bool) -> None:
        if self.writes >= self._writes_max and (is_write or self.writes > self._writes_max):
            self.writes = self._writes_max + 1
            raise Crash
        self.writes += is_write


async def _scenario(ledger: TablesLedger, clock: ManualClock, prunes: list[Instant]) -> None:
    """Jobs that succeed, fail, are redriven, dismissed, cancelled and pruned."""
    driver = LedgerDriver(ledger, clock)
    first = await driver.create(key="first", limits=LIMITS, correlation_id="order-1", input_ref=LARGE)
    first = await driver.tell(first, published(first))
    first = await driver.tell(first, ack(first), result(first, artifacts=LARGE))
    webhook = Webhook(job_id=first.job_id, url="https://client.example", tenant_id="acme", next_at=START)
    await driver.succeed(first, webhook)
    await ledger.claim_webhooks([first.job_id], START, after(START, 60))
    await ledger.webhook_done(replace(webhook, attempts=1, next_at=0), delivered=True)
    failed = await driver.fail(await driver.create(key="failed", limits=LIMITS))
    again = await driver.create(key="failed", claims=False, redrive_of=failed.job_id, limits=LIMITS)
    dismissed = await driver.fail(await driver.create(key="dismissed", limits=LIMITS))
    await ledger.dismiss(Closing(job_id=dismissed.job_id, at=clock.now(), by="ann", reason="known"))
    await driver.cancel(again)
    await driver.create(key="open", limits=LIMITS)
    clock.advance(1)
    prunes.append(clock.now())
    assert await ledger.prune(clock.now(), 1) == 1
    prunes.clear()


async def _check(ledger: TablesLedger) -> None:
    jobs = await check_ledger(ledger)
    open_jobs = [job for job in jobs if not job.is_terminal]
    assert await ledger.count_wait_causes(None) == Counter(wait_cause(job) for job in open_jobs)
    far = after(START, 10**8)
    assert set(await ledger.due(far, 100)) == {job.job_id for job in open_jobs}
    for status in JobStatus:
        listed = await ledger.jobs(JobFilter(status=status.value), 100, None)
        assert [job.job_id for job in listed] == [job.job_id for job in jobs if job.status is status], status
    redriven = {job.spec.redrive_of for job in jobs if job.spec.redrive_of is not None}
    dead = {job.job_id for job in await ledger.jobs(JobFilter(dead_letter=True), 100, None)}
    assert not dead & redriven
    keys = Counter(job.spec.idempotency_key for job in jobs if job.spec.redrive_of is None)
    assert set(keys.values()) <= {1}


async def _go_on(ledger: TablesLedger, clock: ManualClock) -> None:
    """Every command can be sent again, and every open job can end."""
    driver = LedgerDriver(ledger, clock)
    known = {job.spec.idempotency_key for job in await _listed(ledger) if job.spec.redrive_of is None}
    for key in ("first", "failed", "dismissed", "open"):
        outcome = await driver.commit(driver.creation(key=key, limits=LIMITS))
        assert isinstance(outcome, Duplicate if key in known else Committed), (key, outcome)
    for job in await _listed(ledger):
        if job.is_terminal:
            continue
        if job.current_step.attempt is None:
            job = await driver.tell(job, DeadlinePassed())
        await driver.cancel(job)
    assert await ledger.inflight() == {}
    assert await ledger.due(after(START, 10**8), 100) == []


async def _prune_everything(ledger: TablesLedger, clock: ManualClock) -> None:
    """Neither a blob nor a row of any job is left, but for hints of changes that were never written."""
    far = after(START, 10**8)
    for webhook in await ledger.webhooks_due(far, "", 10, 10):
        await ledger.webhook_done(replace(webhook, next_at=0), delivered=True)
    clock.advance(LATER_SECONDS)
    while await ledger.prune(clock.now(), 100):
        pass
    assert await _listed(ledger) == []
    assert await ledger.webhooks_due(far, "", 10, 10) == []
    store = ledger.store
    assert await store.blobs.names(store.container, "", 10) == []
    names = [store.prefix + name for name in store.layout.tables]
    found = [row for name in names async for row in store.account._service.get_table_client(name).list_entities()]
    rows = [row["RowKey"] for row in found if not row["PartitionKey"].startswith("INDEX:")]
    assert [key for key in rows if not key.startswith(OF_ALL_JOBS)] == []
    assert [row["RowKey"] for row in found if row["RowKey"].startswith(HINTS_THAT_GO)] == []


async def _listed(ledger: TablesLedger) -> list[Job]:
    return [job for job in await ledger.jobs(JobFilter(), 100, None) if isinstance(job, Job)]


async def _crash_at(azurite: Azurite, layout: str, write: int) -> bool:
    """Whether the scenario has that many writes."""
    prefix, clock = new_prefix(), ManualClock()
    prunes: list[Instant] = []
    async with open_ledger(azurite.connection, layout, prefix) as survivor:
        await survivor.create_tables()
        survivor._claims._wait_seconds = 0.05
        async with open_ledger(azurite.connection, layout, prefix) as victim:
            switch = CrashSwitch(victim, write)
            try:
                await _scenario(victim, clock, prunes)
                is_over = True
            except Crash:
                is_over = False
        for cutoff in prunes:
            await survivor.prune(cutoff, 1)  # What was begun is found again, and finished.
        clock.advance(LATER_SECONDS)
        await survivor.repair(clock.now(), CLAIM_SECONDS)
        clock.advance(LATER_SECONDS)
        await survivor.repair(clock.now(), CLAIM_SECONDS)
        assert await survivor.repair(clock.now(), CLAIM_SECONDS) == Repairs(), f"after write {write}"
        try:
            await _check(survivor)
            await _go_on(survivor, clock)
            await _prune_everything(survivor, clock)
        except AssertionError as error:
            raise AssertionError(f"after a crash at write {write + 1}: {error}") from error
        for name in survivor.store.table_names():
            await survivor.store.account.delete_table(name)
    assert switch.writes <= write + 1
    return not is_over


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("layout", ["ledger", "table"])
async def test_crash_at_any_write_is_repaired(azurite: Azurite, layout: str) -> None:
    step = 1 if IS_LONG else 37
    write = 0 if IS_LONG else 1
    while await _crash_at(azurite, layout, write):
        write += step
        assert write < WRITES_MAX
    assert write > 30

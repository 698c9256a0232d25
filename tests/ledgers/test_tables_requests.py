"""What the ledger on Azure Tables asks of Azure: nothing is found by a scan, and a job costs few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.engines.test_engine_conformance import SETTINGS
from tests.long_form import IS_LONG, sized
from tests.tables_ledger import opened_ledger

from lucius.buses.memory import MemoryBus
from lucius.domain.attempt import Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.errors import CallerError
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import JobStatus
from lucius.domain.search import SearchValue
from lucius.domain.time import after
from lucius.engines.outbox.engine import OutboxEngine
from lucius.ledgers.tables import TablesLedger, lists
from lucius.ledgers.tables.layouts import SHARDS
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Change, JobFilter, Ledger
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.ledger_driver import LedgerDriver, result, standing
from lucius.testing.samples import START, STEP_IDS, ManualClock, ShiftedClock, global_limit, mode_limit, tenant_limit

JOBS, CALL = sized(100, 10_000), 100
PAGE = 10
TOGETHER_MAX, APART_MAX = 20, 30


def _counting(ledger: TablesLedger) -> list[str]:
    sent: list[str] = []
    ledger.store.account.observers.append(lambda method, url, body: sent.append(f"{method} {url}"))
    return sent


def _quiet_engine(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
    """One that does nothing by itself."""
    settings = replace(
        SETTINGS, outbox_retry_interval=600.0, sweep_interval=600.0, repair_interval=600.0, upkeep_interval=600.0,
        claim_seconds=60.0,
    )  # fmt: skip
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    return OutboxEngine(ledger, bus, clock, signer, CallbackUrls.under("http://127.0.0.1"), Observer(), settings)


async def _nothing(engine: Engine) -> None:
    return None


async def _run_job(harness: EngineHarness, key: str, together: bool) -> str:
    limits = (tenant_limit(10), mode_limit(10), global_limit(10))
    job_id = await harness.submit(key=key, limits=limits)
    for service in STEP_IDS:
        work = await harness.take(service)
        done = Resulted(*work.about, verdict=Verdict.SUCCEEDED)
        if together:
            await asyncio.gather(*(harness.engine.tell(job_id, None, fact) for fact in (Acked(*work.about), done)))
        else:
            await harness.ack(work)
            await harness.succeed(work)
    return job_id


@pytest.mark.parametrize(("together", "maximum"), [(True, TOGETHER_MAX), (False, APART_MAX)])
async def test_a_job_of_three_steps_costs_few_requests(azurite: Azurite, together: bool, maximum: int) -> None:
    """Reads are counted, a transaction is one; the limits are on."""
    clock = ShiftedClock()
    async with opened_ledger(azurite, "ledger") as ledger, MemoryBus(clock) as bus:
        async with EngineHarness(ledger, bus, clock, _quiet_engine, _nothing) as harness:
            await harness.start()
            await _run_job(harness, "first", together)  # After it, the counts are known.
            sent = _counting(ledger)
            job_id = await _run_job(harness, "second", together)
            requests = list(sent)
            assert (await harness.job(job_id)).status is JobStatus.SUCCEEDED
        print(f"\n{len(requests)} requests of a job, ACK and RESULT {'together' if together else 'apart'}")
        assert len(requests) <= maximum, "\n".join(requests)


async def _fill(ledger: TablesLedger, clock: ManualClock) -> LedgerDriver:
    """Jobs of many tenants, most of which have ended; every hundredth is open."""
    driver = LedgerDriver(ledger, clock)
    for first in range(0, JOBS, CALL):
        created: list[Change] = []
        for place in range(first, first + CALL):
            value = SearchValue("customer", str(place % 500))
            created.append(
                driver.creation(
                    key=f"key {place}", tenant_id=f"tenant {place % 20}", steps=["ocr"], searchable=(value,),
                    correlation_id=f"order {place}",
                )
            )  # fmt: skip
        await ledger.commit(created)
        jobs = [standing(change) for change in created]
        await ledger.commit([driver.change(job, result(job)) for place, job in enumerate(jobs) if place % 50])
        clock.advance(1)
    return driver


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("layout", ["ledger", "table"] if IS_LONG else ["ledger"])
async def test_no_operation_scans(azurite: Azurite, layout: str) -> None:
    clock = ManualClock()
    async with opened_ledger(azurite, layout) as ledger:
        driver = await _fill(ledger, clock)
        one = await driver.create(key="one", tenant_id="acme", steps=["ocr"])
        asked = JobFilter(tenants=("tenant 1",), status=JobStatus.SUCCEEDED.value)
        sharded, page = SHARDS, SHARDS + 2 * PAGE
        far = after(clock.now(), 10**7)
        calls: list[tuple[str, int, Callable[[], Awaitable[Any]]]] = [
            ("load", 1, lambda: ledger.load([one.job_id])),
            ("statuses", 1, lambda: ledger.statuses([one.job_id])),
            ("find_claim", 2, lambda: ledger.find_claim(b"unknown")),
            ("events", 2, lambda: ledger.events(one.job_id, 0, 100)),
            ("attempts", 2, lambda: ledger.attempts(one.job_id)),
            ("due, none", sharded, lambda: ledger.due(START, PAGE)),
            ("due", page + 40, lambda: ledger.due(far, PAGE)),
            ("undispatched, none", sharded, lambda: ledger.undispatched(START - 1, PAGE)),
            ("undispatched", page + 40, lambda: ledger.undispatched(far, PAGE)),
            ("outbox", page + 50, lambda: ledger.outbox(PAGE)),
            ("held_lines", sharded, lambda: ledger.held_lines(PAGE)),
            ("unacknowledged", page + 40, lambda: ledger.unacknowledged("outbox", PAGE, None)),
            ("undelivered", page + 40, lambda: ledger.undelivered("outbox", PAGE, None)),
            ("jobs", page, lambda: ledger.jobs(JobFilter(), PAGE, None)),
            ("jobs of a tenant and a status", page, lambda: ledger.jobs(asked, PAGE, None)),
            ("jobs by correlation id", page, lambda: ledger.jobs(JobFilter(correlation_id="order 7"), PAGE, None)),
            (
                "jobs by value",
                page + 10,
                lambda: ledger.jobs(JobFilter(search=SearchValue("customer", "7")), PAGE, None),
            ),
            ("jobs by key", 60, lambda: ledger.jobs(JobFilter(idempotency_key="key 7"), PAGE, None)),
            ("dead letters", sharded, lambda: ledger.jobs(JobFilter(dead_letter=True), PAGE, None)),
            ("failures", sharded, lambda: ledger.failures(JobFilter(), 100, PAGE)),
            ("inflight", 1, ledger.inflight),
            ("counts", 4, lambda: ledger.counts(START, None)),
            ("wait causes", 8 * sharded, lambda: ledger.count_wait_causes(None)),
            ("webhooks due", sharded, lambda: ledger.webhooks_due(clock.now(), "", PAGE, PAGE)),
            ("prune", 2 * sharded + 4 + 16 * PAGE, lambda: ledger.prune(clock.now(), PAGE)),
        ]
        sent = _counting(ledger)
        counted: dict[str, tuple[int, int]] = {}
        for name, maximum, call in calls:
            sent.clear()
            await call()
            counted[name] = (len(sent), maximum)
        print(
            f"\nrequests with {JOBS} jobs, layout {layout}: { {name: count for name, (count, _) in counted.items()} }"
        )
        assert not {name: one for name, one in counted.items() if one[0] > one[1]}


async def test_a_filter_that_would_need_a_scan_is_refused_by_name(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(lists, "EXAMINED_MAX", 20)
    async with opened_ledger(azurite, "ledger") as ledger:
        driver = LedgerDriver(ledger, clock)
        await ledger.commit([driver.creation(key=f"key {place}") for place in range(60)])
        rare = JobFilter(tenants=("acme",), request_type="RARE", created_from=START)
        with pytest.raises(CallerError, match="FILTER_UNSUPPORTED") as raised:
            await ledger.jobs(rare, 2, None)
        assert "request_type" in raised.value.detail
        assert "tenants" not in raised.value.detail
        assert len(await ledger.jobs(JobFilter(tenants=("acme",)), 60, None)) == 60

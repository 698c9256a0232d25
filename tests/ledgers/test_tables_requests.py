"""What a job costs on Azure Tables, and filters that would need a scan; scans: `tests/api/test_tables_scans_api.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.engines.test_engine_conformance import SETTINGS
from tests.memory_tables import MemoryAccount, MemoryTable, NoBlobs
from tests.tables_cost import REQUESTS_MAX, Meter
from tests.tables_ledger import opened_ledger

from lucius.buses.memory import MemoryBus
from lucius.domain.attempt import Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.errors import CallerError
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import JobStatus
from lucius.engines.outbox.engine import OutboxEngine
from lucius.ledgers.tables import LAYOUTS, TablesLedger, lists
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobFilter, Ledger
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import START, STEP_IDS, ManualClock, ShiftedClock, global_limit, mode_limit, tenant_limit

DOCS = Path(__file__).parents[2] / "docs"


class JobCost(NamedTuple):
    requests: int
    operations: int
    """What Azure bills: of a transaction, its rows."""


TOGETHER, APART = JobCost(12, 76), JobCost(18, 116)
"""Goals: 20 requests with ACK and RESULT together, 30 apart."""


class Sent(NamedTuple):
    request: str
    operations: int


def _counting(ledger: TablesLedger) -> list[Sent]:
    sent: list[Sent] = []

    def note(method: str, url: str, body: Any) -> None:
        text = body.decode() if isinstance(body, bytes) else str(body or "")
        sent.append(Sent(f"{method} {url}", text.count(" HTTP/1.1") if "$batch" in url else 1))

    ledger.store.account.observers.append(note)
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


@pytest.mark.parametrize(("together", "expected"), [(True, TOGETHER), (False, APART)])
async def test_a_job_of_three_steps_costs_as_much_as_the_documentation_says(
    azurite: Azurite, together: bool, expected: JobCost
) -> None:
    """Reads are counted, a transaction is one request; the limits are on."""
    clock = ShiftedClock()
    async with opened_ledger(azurite, "ledger") as ledger, MemoryBus(clock) as bus:
        async with EngineHarness(ledger, bus, clock, _quiet_engine, _nothing) as harness:
            await harness.start()
            await _run_job(harness, "first", together)  # After it, the counts are known.
            sent = _counting(ledger)
            job_id = await _run_job(harness, "second", together)
            cost = list(sent)
            assert (await harness.job(job_id)).status is JobStatus.SUCCEEDED
        assert JobCost(len(cost), sum(one.operations for one in cost)) == expected, "\n".join(map(str, cost))


def test_what_a_job_costs_is_the_same_on_every_page() -> None:
    requests = f"{TOGETHER.requests} requests with ACK and RESULT together, {APART.requests} apart"
    operations = f"{TOGETHER.operations} and {APART.operations} operations"
    for page in ("reference/azure-tables.md", "how-to/azure.md", "decisions/0052-ledger-on-azure-tables.md"):
        text = (DOCS / page).read_text()
        assert (requests in text, operations in text) == (True, True), page


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_key_is_found_among_many_tenants_with_few_requests(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tables in memory. Each tenant may use the same key; a redrive has no claim on its job's."""
    account, blobs, clock = MemoryAccount(), NoBlobs(), ManualClock()
    async with TablesLedger(account, blobs, LAYOUTS[layout]) as ledger:  # type: ignore[arg-type]
        await ledger.create_tables()
        driver = LedgerDriver(ledger, clock)
        changes = [driver.creation(key="same", tenant_id=f"tenant-{place}") for place in range(500)]
        changes += [driver.creation(key="rare", tenant_id="tenant-7")]
        await ledger.commit(changes)
        rare, newest = changes[-1].after.job_id, [change.after.job_id for change in changes[-2:-12:-1]]
        failed = await driver.fail((await ledger.load([rare]))[rare])
        await driver.create(key="rare", tenant_id="tenant-7", claims=False, redrive_of=failed.job_id)
        meter = Meter(monkeypatch, MemoryTable)
        for key, tenants, expected in (
            ("rare", None, [rare]),
            ("rare", ("tenant-7",), [rare]),
            ("rare", ("tenant-8",), []),
            ("same", None, newest),
            ("same", tuple(f"tenant-{place}" for place in range(500)), newest),
            ("none", None, []),
        ):
            meter.requests = 0
            found = await ledger.jobs(JobFilter(idempotency_key=key, tenants=tenants), 10, None)
            assert [job.job_id for job in found] == expected
            assert meter.requests <= REQUESTS_MAX, key
            if expected:
                [last] = await ledger.jobs(JobFilter(idempotency_key=key), 1, expected[-2] if expected[1:] else None)
                assert last.job_id == expected[-1]


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

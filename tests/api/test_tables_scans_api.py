"""Nothing on Azure Tables is found by a scan: with many jobs in the tables, every call of the ledger's port, of the
stores beside it and of the HTTP API costs as little as with few."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import CALLBACK_KEYS, IDS, KEY, Api, new_client
from tests.azurite import Azurite
from tests.long_form import IS_LONG, sized
from tests.memory_tables import MemoryAccount, NoBlobs
from tests.tables_cost import (
    A_CHANGE,
    A_FIGURE,
    A_PAGE,
    CALL,
    OPEN,
    PAGE,
    ROWS_OF_OPEN_MAX,
    Call,
    Cost,
    Meter,
    acts_of_somebody,
    audit_calls,
    bulk_calls,
    console_calls,
    fill,
    ledger_calls,
    methods,
    named,
    worker_calls,
)
from tests.tables_ledger import open_ledger, opened_ledger

from lucius.api.notifications import NOTIFICATION_OPERATIONS
from lucius.api.operations import OPERATIONS
from lucius.api.runbook_operations import RUNBOOK_OPERATIONS
from lucius.bootstrap import open_app
from lucius.bootstrap.operator_stores import tables_stores
from lucius.clocks import SystemClock
from lucius.domain.job import Job
from lucius.domain.time import after
from lucius.ledgers.tables import LAYOUTS, TablesLedger
from lucius.ledgers.tables.layouts import SHARDS
from lucius.ports.audit import AuditSource
from lucius.ports.bulk_operations import BulkOperations
from lucius.ports.console_tokens import ConsoleTokens
from lucius.ports.console_views import ConsoleViews
from lucius.ports.lane_samples import LaneSamples
from lucius.ports.ledger import Ledger, Webhook
from lucius.ports.workers import Workers
from lucius.registries.files import SHIPPED
from lucius.settings import Settings
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock, ShiftedClock
from lucius.usecases.figures import DURATIONS_JOBS_MAX

FEW = Cost(6, 2 * PAGE)
"""Also where the tables are not asked at all: the process looks for workers now and then."""
DURATIONS = Cost(2 * SHARDS + FEW.requests, 2 * DURATIONS_JOBS_MAX + ROWS_OF_OPEN_MAX)
"""The steps of the newest jobs are measured from the index, for each of the protocol's two request types; its open jobs
are counted."""
SENDS_ALL = Cost(20 * OPEN, 20 * OPEN)
"""Directives of all open jobs, and then while these are still being sent."""
AGO_SECONDS = 300.0
JOBS = sized(1_000, 10_000)


@asynccontextmanager
async def _opened(ledger: TablesLedger, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """An API process with this ledger, which sweeps nothing."""
    monkeypatch.setattr("lucius.bootstrap.stores.open_tables_ledger", lambda settings, identity: ledger)
    settings = Settings(
        data=str(folder), api_key=KEY, callback_keys=CALLBACK_KEYS, bus="memory", list_seconds_max=120.0,
        ledger=f"aztables:{ledger.store.layout.name}", storage_connection="unused",
    )  # fmt: skip
    clock = ShiftedClock()
    async with open_app(settings, reconciles=False, clock=clock) as context, new_client(context, KEY) as client:
        yield Api(context, client, clock)


async def _api_calls(api: Api, failed: Job) -> list[Call]:
    """Of every operation that reads or writes the ledger, in an order in which each succeeds."""
    command = api.envelope_of_three(idempotency_key="over HTTP")
    job_id = await api.accepted(api.envelope_of_three(idempotency_key="before"))
    old = failed.job_id
    made: dict[str, Any] = {}
    filter_ = {"tenant_id": "tenant-1", "status": "FAILED_FINAL"}
    draft = {"yaml": (SHIPPED / "protocols" / "ocr.yaml").read_text(), "payloads": PAGE}

    def call(name: str, most: Cost, method: str, path: str, body: Any = None) -> Call:
        async def ask() -> None:
            wanted = None if method == "GET" else body or {}
            answer = await api.client.request(method, path.format(**made), json=wanted)
            assert answer.is_success, (name, answer.text)
            if name == "createOperation":
                made["operation"] = answer.json()["operationId"]

        return Call(name, most, ask)

    async def called_back(kind: str) -> None:
        answer: httpx.Response = await getattr(api, kind)(made["directive"])
        assert answer.is_success, answer.text

    async def pull() -> None:
        made["directive"] = await api.take()

    async def again() -> None:
        """The result, once more."""
        directive = made["directive"]
        fields = {**{name: directive[name] for name in IDS}, "status": "SUCCEEDED"}
        one = {"type": "RESULT", "callback_token": directive["callback_token"], **fields}
        answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": [one]})
        assert answer.is_success, answer.text

    def callback(kind: str) -> Call:
        return Call(f"{kind}Callback", A_CHANGE, lambda: called_back(kind))

    return [
        call("submitCommand", A_CHANGE, "POST", "/v1/commands", command),
        call("validateCommand", FEW, "POST", "/v1/commands:validate", command),
        call("submitCommands", A_CHANGE, "POST", "/v1/commands:batch", {"commands": [command]}),
        call("listJobs", A_PAGE, "GET", f"/v1/jobs?limit={PAGE}"),
        call("listJobs of a tenant", A_PAGE, "GET", f"/v1/jobs?tenant_id=tenant-1&limit={PAGE}"),
        call("listJobs in a state", A_PAGE, "GET", f"/v1/jobs?status=SUCCEEDED&limit={PAGE}"),
        call("listJobs by correlation id", A_PAGE, "GET", f"/v1/jobs?correlation_id=order 7&limit={PAGE}"),
        call("getJob", FEW, "GET", f"/v1/jobs/{old}"),
        call("getCommand", FEW, "GET", f"/v1/jobs/{old}/command"),
        call("getSteps", FEW, "GET", f"/v1/jobs/{old}/steps"),
        call("getEvents", FEW, "GET", f"/v1/jobs/{old}/events"),
        Call("pullDirectives", A_CHANGE, pull),
        callback("ack"),
        callback("heartbeat"),
        callback("result"),
        Call("callbackBatch", A_CHANGE, again),
        call("pauseJob", A_CHANGE, "POST", f"/v1/jobs/{job_id}:pause"),
        call("resumeJob", A_CHANGE, "POST", f"/v1/jobs/{job_id}:resume"),
        call("cancelJob", A_CHANGE, "POST", f"/v1/jobs/{job_id}:cancel"),
        call("listDeadLetters", A_PAGE, "GET", f"/v1/admin/dead-letters?limit={PAGE}"),
        call("dismissDeadLetter", A_CHANGE, "POST", f"/v1/admin/dead-letters/{old}:dismiss", {"reason": "known"}),
        call("redriveJob", A_CHANGE, "POST", f"/v1/jobs/{old}:redrive"),
        call("listProtocols", FEW, "GET", "/v1/protocols"),
        call("getProtocol", FEW, "GET", "/v1/protocols/OCR"),
        call("getProtocolFigures", DURATIONS, "GET", "/v1/protocols/OCR_EMBEDDING_SIS/figures"),
        call("previewProtocol", A_FIGURE, "POST", "/v1/admin/protocols:preview", draft),
        call("pruneJobs", A_FIGURE, "POST", "/v1/admin/prune", {"older_than_seconds": 86_400 * 3_650}),
        call("retryOutbox", SENDS_ALL, "POST", "/v1/admin/outbox/retry"),
        call("listOutbox", SENDS_ALL, "GET", f"/v1/admin/outbox?limit={PAGE}"),
        call("listLanes", A_FIGURE, "GET", "/v1/admin/lanes"),
        call("listTenants", A_FIGURE, "GET", "/v1/admin/tenants"),
        call("listWorkers", FEW, "GET", "/v1/admin/workers"),
        call("listLaneHistory", FEW, "GET", "/v1/admin/lane-history"),
        call("listAudit", FEW, "GET", f"/v1/admin/audit?limit={PAGE}"),
        call("getOverview", A_FIGURE, "GET", "/v1/overview"),
        call("listFailures", A_FIGURE, "GET", "/v1/failures"),
        call("previewOperation", A_FIGURE, "POST", "/v1/operations:preview", {"action": "redrive", "filter": filter_}),
        call(
            "createOperation", A_FIGURE, "POST", "/v1/operations",
            {"action": "redrive", "filter": filter_, "reason": "mended"},
        ),
        call("listOperations", FEW, "GET", f"/v1/operations?limit={PAGE}"),
        call("getOperation", FEW, "GET", "/v1/operations/{operation}"),
        call("listOutcomes", FEW, "GET", "/v1/operations/{operation}/outcomes"),
        call("pauseOperation", FEW, "POST", "/v1/operations/{operation}:pause", {"reason": "wait"}),
        call("resumeOperation", FEW, "POST", "/v1/operations/{operation}:resume", {"reason": "go on"}),
        call("abandonOperation", FEW, "POST", "/v1/operations/{operation}:abandon", {"reason": "enough"}),
        call("createConsoleLink", FEW, "POST", "/v1/console-links"),
        call("healthz", FEW, "GET", "/healthz"),
        call("readyz", FEW, "GET", "/readyz"),
    ]  # fmt: skip


async def _with_webhook(driver: LedgerDriver) -> Job:
    job = await driver.create(key="ended", tenant_id="acme", steps=["ocr"])
    now = driver.clock.now()
    webhook = Webhook(job_id=job.job_id, url="https://client.example", tenant_id="acme", next_at=now)
    return await driver.succeed(job, webhook)


async def _check(
    ledger: TablesLedger, other: TablesLedger, jobs: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`other` is the ledger of another process over the same tables."""
    meter = Meter(monkeypatch, type(ledger.store.operators))
    clock = ManualClock(after(SystemClock().now(), -AGO_SECONDS))
    driver = LedgerDriver(ledger, clock)
    failed = await fill(ledger, driver, jobs)
    ended = await _with_webhook(driver)
    one = await driver.create(key="one", tenant_id="acme", steps=["ocr"])
    calls = ledger_calls(ledger, driver, one, ended, failed)
    assert named(calls) == methods(Ledger)
    assert await meter.too_dear(calls) == {}

    stores, now = tables_stores(ledger), clock.now()
    await ledger.acts.note(acts_of_somebody(now))
    of_console = console_calls(stores.console_tokens, stores.console_views, stores.lane_samples, now)
    for calls, ports in (
        (bulk_calls(stores.bulk, clock), (BulkOperations,)),
        (audit_calls(stores.audit[0]), (AuditSource,)),
        (worker_calls(stores.workers, now), (Workers,)),
        (of_console, (ConsoleTokens, ConsoleViews, LaneSamples)),
    ):
        assert named(calls) == methods(*ports)
        assert await meter.too_dear(calls) == {}

    async with _opened(other, folder, monkeypatch) as api:
        calls = await _api_calls(api, failed[-1])
        elsewhere = {one.name for one in (*RUNBOOK_OPERATIONS, *NOTIFICATION_OPERATIONS)} | {"getArchivedJob"}
        assert named(calls) == {one.name for one in OPERATIONS} - elsewhere
        assert await meter.too_dear(calls) == {}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_nothing_is_found_by_a_scan(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, because Azurite itself looks through a whole partition at each write."""
    account: Any = MemoryAccount()
    blobs: Any = NoBlobs()
    one, other = (TablesLedger(account, blobs, LAYOUTS[layout]) for _ in range(2))
    async with one:
        await one.create_tables()
        await _check(one, other, JOBS, tmp_path, monkeypatch)


if IS_LONG:

    @pytest.mark.parametrize("layout", LAYOUTS)
    async def test_azurite_is_asked_as_little(
        azurite: Azurite, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened_ledger(azurite, layout) as ledger:
            other = open_ledger(azurite.connection, layout, ledger.store.prefix)
            await _check(ledger, other, CALL, tmp_path, monkeypatch)

"""Runbooks in a database of their own, and runbooks that are off, seen through the API, readiness and the console."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from tests.api.conftest import KEY
from tests.api.runbook_client import PLAIN, QUICK, WORKER, RunbookCaller, succeed

from lucius.api.app import create_front
from lucius.bootstrap import open_app
from lucius.console import console_routes
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Fetch, Row, Script

WHY = "runbooks are off, because LUCIUS_RUNBOOKS_DATABASE=off"


@pytest.mark.parametrize("ledger_settings", ["memory", "postgres"], indirect=True)
async def test_a_batch_lives_in_a_database_of_runbooks_alone(
    ledger_settings: dict[str, str], open_api: Any, tmp_path: Path
) -> None:
    file = tmp_path / "runbooks.db"
    api = await open_api(**QUICK, **ledger_settings, runbooks_database=f"sqlite:///{file}")
    caller = RunbookCaller(api)
    await caller.publish(PLAIN)
    batch = await caller.create("ann", "bob", runbook="plain")
    await caller.work_until(batch, "completed", succeed)
    job_id = await api.accepted()
    await api.operate(job_id, "cancel", {"reason": "a test"})
    acts = (await api.client.get("/v1/admin/audit")).json()["items"]
    assert [(act["kind"], act["action"]) for act in acts] == [
        ("job", "cancel"), ("batch", "batch-detected"), ("runbook", "runbook-published")
    ]  # fmt: skip
    assert 'lucius_runbook_steps_total{status="succeeded"} 4' in (await api.look("/metrics")).text
    context = api.context
    assert await context.runbooks.turns.database.read(lambda: _count("batches")) == 1
    assert await context.runbooks.turns.database.read(lambda: _count("jobs")) == 0


async def test_off_is_said_by_the_api_readiness_the_log_and_the_console(
    open_api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lucius.runbooks"):
        api = await open_api(runbooks_database="off")
    assert [record.getMessage() for record in caplog.records if record.name == "lucius.runbooks"] == [WHY]
    for method, path, body in (
        ("GET", "/v1/runbooks", None),
        ("POST", "/v1/runbooks", {"yaml": PLAIN}),
        ("GET", "/v1/batches", None),
        ("GET", "/v1/batches/1", None),
        ("POST", "/v1/worker-jobs:pull", {"workerId": WORKER}),
        ("POST", "/v1/worker-jobs:renew", {"jobIds": ["1"]}),
        ("POST", "/v1/worker-results", {"results": [{"jobId": "1", "status": "Success"}]}),
    ):
        answer = await api.client.request(method, path, json=body)
        assert api.assert_problem(answer, 409, "RUNBOOKS_OFF")["detail"] == WHY
    assert (await api.client.post("/v1/runbooks:validate", json={"yaml": PLAIN})).status_code == 200
    _, status, checks = await api.readiness()
    assert (status, checks["runbooks"]["ok"], checks["runbooks"]["detail"]) == ("ok", True, WHY)
    assert "scheduler" not in checks
    # Jobs are not affected.
    job_id = await api.accepted()
    await api.work()
    assert (await api.ended(job_id))["status"] == "SUCCEEDED"
    assert (await api.client.get("/v1/admin/dead-letters")).status_code == 200
    assert (await api.look("/metrics")).status_code == 200
    transport = httpx.ASGITransport(app=create_front(api.context, console_routes(api.context)))
    async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test") as browser:
        await browser.post("/console/sign-in", data={"key": KEY})
        page = await browser.get("/console/batches")
        assert (page.status_code, WHY in page.text) == (409, True)
        assert (await browser.get("/console/dead-letters")).status_code == 200


async def test_a_database_that_cannot_be_used_is_named(open_api: Any, tmp_path: Path, postgres_url: str) -> None:
    for wrong in ("mysql://host/db", "sqlite:relative.db", "on"):
        with pytest.raises(SettingsError, match="LUCIUS_RUNBOOKS_DATABASE must be empty"):
            await open_api(runbooks_database=wrong)
    data = tmp_path / "data"
    with pytest.raises(SettingsError, match="names the ledger's own database"):
        await open_api(runbooks_database=f"sqlite:///{data}/../data/lucius.db")
    with pytest.raises(SettingsError, match="names the ledger's own database"):
        await open_api(ledger=postgres_url, runbooks_database=postgres_url)


async def test_a_database_is_upgraded_only_where_that_is_wanted(tmp_path: Path, postgres_url: str) -> None:
    settings = Settings(data=str(tmp_path), ledger="memory", bus="memory", api_key=KEY)
    own = replace(settings, runbooks_database=f"sqlite:///{tmp_path}/runbooks.db")
    with pytest.raises(schema.SchemaError):
        async with open_app(own, upgrades=False):
            pass
    for chosen in (own, replace(settings, runbooks_database=postgres_url)):
        async with open_app(chosen) as context:
            assert await schema.current_version(context.runbooks.turns.database) == schema.VERSION


def _count(table: str) -> Script[int]:
    rows: list[Row] = yield Fetch(f"SELECT count(*) FROM {table}")
    return int(rows[0][0])

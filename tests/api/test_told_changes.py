"""What changes through the API is told to whoever follows it, by its name and to those alone who see its tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.api.runbook_client import DEADLINE_SECONDS, PLAIN, QUICK, RunbookCaller
from tests.api.test_bulk_operations_api import created, steer
from tests.api.test_dead_letters_api import dismissed, failed
from tests.api.test_retention_api import DAY, ended, prune

NAMES = ("jobs", "operations", "runbooks", "batches", "workers", "audit")
SOURCE = """\
name: from source
data_source: {type: csv, connection: LUCIUS_SOURCE_TOLD, primary_key: Upn, batch_time_column: Day}
phases: [{name: one, offset: T-0, steps: [{name: a, worker_id: exchange, function: A, params: {}}]}]
"""


async def told_of(api: Any, act: Awaitable[Any]) -> set[str]:
    changes = api.context.changes
    before = {name: changes.last((name,)) for name in NAMES}
    await act
    return {name for name in NAMES if changes.last((name,)) != before[name]}


async def test_acts_on_jobs_workers_and_the_ledger_are_told(open_api: Any) -> None:
    api = await open_api()
    lost = await failed(api, tenant_id="globex")
    assert "jobs" in await told_of(api, dismissed(api, lost, {"reason": "x"}))
    body = {"service": "ocr", "max": 1, "wait_seconds": 0}
    pull = api.client.post("/v1/directives:pull", json=body, headers={"Lucius-Instance": "a"})
    assert "workers" in await told_of(api, pull)
    await ended(api, idempotency_key="old")
    api.clock.shift_seconds = 2 * DAY
    assert {"jobs", "audit"} <= await told_of(api, prune(api, DAY))


async def test_acts_on_runbooks_are_told(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK))
    api, post = caller.api, caller.client.post
    assert "runbooks" in await told_of(api, caller.publish(PLAIN))
    for act in ("stop", "start", "rehearse", "retire"):
        body = {"count": 1} if act == "rehearse" else {"reason": "x"}
        assert await told_of(api, post(f"/v1/runbooks/plain:{act}", json=body)) == {"runbooks"}, act


async def test_reading_of_a_source_is_told(open_api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing has changed but when it was read."""
    (tmp_path / "members.csv").write_text("Upn,Day\n")
    monkeypatch.setenv("LUCIUS_SOURCE_TOLD", str(tmp_path / "members.csv"))
    caller = RunbookCaller(await open_api(**QUICK, source_interval=0.05, source_still_seconds=0.0))
    await caller.publish(SOURCE)
    changes, told = caller.api.context.changes, 0
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(3):
            while changes.last(("runbooks",)) == told:
                await asyncio.sleep(0.01)
            told = changes.last(("runbooks",))


async def test_an_operation_is_told_to_those_who_see_its_tenants(open_api: Any) -> None:
    api = await open_api(operations_interval=0.02)
    for number in range(3):
        await api.accepted(tenant_id="acme", idempotency_key=str(number))
    changes, name = api.context.changes, frozenset({"operations"})
    with (
        changes.following(name, lambda tenant_id: tenant_id == "acme") as acme,
        changes.following(name, lambda tenant_id: tenant_id == "globex") as globex,
    ):
        operation = await created(api, "pause", filter={"tenant_id": "acme"}, rate_per_second=1)
        assert await acme.next(1.0) == ["operations"]
        await steer(api, operation, "abandon", reason="enough")
        assert await acme.next(1.0) == ["operations"]
        everything = await created(api, "pause", filter={}, rate_per_second=1)
        await steer(api, everything, "abandon", reason="enough")
        assert await globex.next(0.5) == []

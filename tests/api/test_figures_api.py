"""Figures of tenants, lanes, protocols and workers over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lucius.usecases import figures


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "KEPT_SECONDS", 0.0)


async def got(api: Any, path: str, **query: str) -> Any:
    answer = await api.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_tenants_have_what_became_of_their_commands(open_api: Any) -> None:
    api = await open_api()
    first = (await api.submit(tenant_id="acme")).json()["jobId"]
    await api.submit(tenant_id="globex")
    await api.context.ledger.count_refused(api.context.clock.now(), {"acme": 4})
    shown = {one["tenant_id"]: one for one in (await got(api, "/v1/admin/tenants"))["items"]}
    acme = shown["acme"]
    assert (acme["accepted"], acme["refused"], acme["ended"], acme["failed"], acme["inflight"]) == (1, 4, 0, 0, 1)
    assert acme["oldest_waiting_jobId"] == first
    assert acme["oldest_waiting_at"][:10] == (await got(api, f"/v1/jobs/{first}"))["created_at"][:10]
    assert shown["globex"]["refused"] == 0
    api.assert_problem(await api.client.get("/v1/admin/tenants?window=year"), 422, "ENVELOPE_INVALID")


async def test_refusals_for_a_limit_are_counted_and_written(open_api: Any) -> None:
    api = await open_api()
    observer = api.context.observer
    for code in ("TENANT_SATURATED", "RATE_LIMITED", "PAYLOAD_INVALID"):
        observer.command_refused(code, "acme")
    observer.command_refused("RATE_LIMITED", None)
    for _ in range(100):
        shown = {one["tenant_id"]: one for one in (await got(api, "/v1/admin/tenants"))["items"]}
        if shown.get("acme", {}).get("refused") == 2:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(shown)


async def test_lanes_name_the_tenants_that_share_them(open_api: Any) -> None:
    api = await open_api()
    for tenant in ("acme", "acme", "globex"):
        await api.submit(tenant_id=tenant)
    lanes = (await got(api, "/v1/admin/lanes"))["items"]
    named = {one["tenant_id"]: one["open_jobs"] for lane in lanes for one in lane["tenants"]}
    assert named == {"acme": 2, "globex": 1}
    assert sum(lane["tenant_count"] for lane in lanes) == 2


async def test_protocol_has_open_jobs_by_version_and_durations(open_api: Any) -> None:
    api = await open_api()
    await api.submit()
    shown = await got(api, "/v1/protocols/OCR/figures")
    assert shown["versions"] == [{"version": 1, "is_current": True, "open_jobs": 1}]
    assert (shown["cut_off"], shown["steps"]) == (False, [])
    protocol = await got(api, "/v1/protocols/OCR")
    assert protocol["steps"][0]["policy"]["max_attempts"] == 3
    assert protocol["job_deadline_seconds"] == 604_800.0
    api.assert_problem(await api.client.get("/v1/protocols/NOPE/figures"), 404, "NOT_FOUND")

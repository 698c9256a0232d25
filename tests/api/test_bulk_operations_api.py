"""Bulk operations over HTTP, on every ledger."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.domain.fields import IDEMPOTENCY_KEY_CHARS_MAX

SETTINGS: dict[str, Any] = {"operations_interval": 0.02}


@pytest.fixture
async def api(open_api: Any, ledger_settings: dict[str, str]) -> Any:
    return await open_api(**ledger_settings, **SETTINGS)


async def create(api: Any, action: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"action": action, "filter": {}, "reason": "a test", "rate_per_second": 1000} | fields
    answer: httpx.Response = await api.client.post("/v1/operations", json=body, headers=headers or {})
    return answer


async def created(api: Any, action: str, **fields: Any) -> str:
    answer = await create(api, action, **fields)
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/v1/operations/{answer.json()['operationId']}"
    return str(answer.json()["operationId"])


async def get(api: Any, operation_id: str) -> dict[str, Any]:
    answer = await api.client.get(f"/v1/operations/{operation_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def until(api: Any, operation_id: str, *statuses: str, **counts: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            found = await get(api, operation_id)
            if found["status"] in statuses and all(found[name] == count for name, count in counts.items()):
                return found
            await asyncio.sleep(0.02)


async def outcomes(api: Any, operation_id: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = await api.client.get(f"/v1/operations/{operation_id}/outcomes", params=parameters)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def steer(api: Any, operation_id: str, verb: str, **body: str) -> httpx.Response:
    answer: httpx.Response = await api.client.post(f"/v1/operations/{operation_id}:{verb}", json=body)
    return answer


async def preview(api: Any, action: str, **filter_: str) -> dict[str, Any]:
    answer = await api.client.post("/v1/operations:preview", json={"action": action, "filter": filter_})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_jobs_are_paused_resumed_and_cancelled_together(api: Any) -> None:
    jobs = sorted([await api.accepted() for _ in range(5)])  # Ids of one millisecond are in no order.
    other = await api.accepted(tenant_id="globex")
    seen = await preview(api, "pause", tenant_id="ACME")
    assert seen["count"] == 5
    assert [job["jobId"] for job in seen["sample"]] == jobs
    for action, status in (("pause", "PAUSED"), ("resume", "IN_PROGRESS"), ("cancel", "CANCELLED")):
        one = await until(api, await created(api, action, filter={"tenant_id": "acme"}), "COMPLETED")
        assert (one["jobs"], one["succeeded"], one["failed"], one["skipped"]) == (5, 5, 0, 0)
        assert one["tenants"] == ["acme"]
        items = await outcomes(api, one["operationId"])
        assert [item["jobId"] for item in items] == jobs
        for job_id in jobs:
            assert (await api.job(job_id))["status"] == status
    assert (await api.job(other))["status"] != "CANCELLED"
    trail = [event for event in await api.events(jobs[0]) if event.get("idempotency_key")]
    assert [event["type"] for event in trail] == ["PAUSED", "RESUMED", "CANCEL_ASKED"]
    assert {event["by"] for event in trail} == {"key:api-key"}
    assert trail[-1]["reason"] == "a test"
    assert trail[-1]["idempotency_key"] == f"operation:{one['operationId']}:{jobs[0]}"


async def test_failed_jobs_are_redriven_after_a_canary(api: Any) -> None:
    jobs = [await api.accepted() for _ in range(4)]
    for _ in jobs:
        await api.fail(error={"code": "BROKEN", "message": "it broke at 12:03"})
    signature = (await api.job(jobs[0]))["error_signature"]
    assert signature == "OCR/1/ocr/BROKEN: it broke at *"
    listed = await api.client.get("/v1/jobs", params={"error_signature": signature})
    assert len(listed.json()["items"]) == 4
    assert (await preview(api, "redrive", error_signature=signature))["count"] == 4
    assert (await preview(api, "redrive", error_signature="another"))["count"] == 0
    first = await created(api, "redrive", filter={"error_signature": signature}, canary=1)
    await until(api, first, "CANARY", started=1)
    await api.fail(error={"code": "BROKEN", "message": "it broke at 12:04"})
    stopped = await until(api, first, "STOPPED", failed=1, pending=3)
    assert [event["type"] for event in stopped["events"]] == ["CREATED", "FAILED"]
    assert (await steer(api, first, "abandon", reason="not fixed yet")).status_code == 202
    # The job that was redriven is represented by the one that came of it: still four.
    second = await created(api, "redrive", filter={"error_signature": signature}, canary=1)
    await until(api, second, "CANARY", started=1)
    await api.work()
    await until(api, second, "FINISHING", started=3, succeeded=1)
    for _ in range(3):
        await api.work()
    done = await until(api, second, "COMPLETED", succeeded=4)
    assert [event["type"] for event in done["events"]] == ["CREATED", "CANARY_PASSED", "ENDED"]
    items = await outcomes(api, second)
    for item in items:
        assert (await api.job(item["new_jobId"]))["redrive_of"] == item["jobId"]
    assert len({item["new_jobId"] for item in items}) == 4
    assert await api.count() == 9
    assert (await preview(api, "redrive"))["count"] == 0


async def test_preview_of_a_redrive_is_what_the_operation_acts_on(api: Any) -> None:
    """Of those that were dismissed, whoever was redriven all the same is left out, as are those that were redriven."""
    plain, dismissed, redriven, both = [await api.accepted(idempotency_key=str(number)) for number in range(4)]
    for _ in range(4):
        await api.fail()
    for job_id in (dismissed, both):
        address = f"/v1/admin/dead-letters/{job_id}:dismiss"
        assert (await api.client.post(address, json={"reason": "known"})).status_code == 200
    for job_id in (redriven, both):
        assert (await api.client.post(f"/v1/jobs/{job_id}:redrive")).status_code == 202
    seen = await preview(api, "redrive")
    assert (seen["count"], [job["jobId"] for job in seen["sample"]]) == (2, sorted([plain, dismissed]))
    assert (await preview(api, "redrive", status="CANCELLED"))["count"] == 0
    operation = await created(api, "redrive", filter={})
    await until(api, operation, "FINISHING", started=2)
    assert {item["jobId"] for item in await outcomes(api, operation)} == {plain, dismissed}


async def test_operation_stops_at_its_threshold_and_goes_on_when_resumed(api: Any) -> None:
    for _ in range(6):
        await api.accepted()
        await api.fail()
    one = await created(
        api, "redrive", filter={"status": "FAILED_FINAL"}, max_failures=0, canary=1, canary_max_failures=1
    )
    await until(api, one, "CANARY", started=1)
    await api.fail()
    stopped = await until(api, one, "STOPPED", failed=1, pending=5)
    assert "failures are counted anew" in stopped["sentence"]
    api.assert_problem(await steer(api, one, "pause"), 409, "CONFLICT")
    resumed = (await steer(api, one, "resume", reason="known")).json()
    assert [event["by"] for event in resumed["events"] if event["reason"] == "known"] == ["key:api-key"]
    await until(api, one, "FINISHING", started=5)
    for _ in range(5):
        await api.work()
    await until(api, one, "COMPLETED", succeeded=5, failed=1)
    api.assert_problem(await steer(api, one, "abandon"), 409, "CONFLICT")


async def test_limits_are_waited_for_and_are_no_failures(open_api: Any, ledger_settings: dict[str, str]) -> None:
    api = await open_api(**ledger_settings, **SETTINGS, max_inflight_per_tenant=2)
    for _ in range(5):
        await api.accepted()
        await api.fail()
    one = await created(api, "redrive", filter={"tenant_id": "acme"}, max_failures=0)
    await until(api, one, "RUNNING", started=2, pending=3)
    async with asyncio.timeout(10):
        while not (waiting := [item for item in await outcomes(api, one, status="PENDING") if item["code"]]):
            await asyncio.sleep(0.02)
    assert waiting[0]["code"] == "TENANT_SATURATED"
    for _ in range(5):
        await api.work()
    await until(api, one, "COMPLETED", succeeded=5, failed=0, skipped=0)


async def test_rate_is_kept(api: Any) -> None:
    for _ in range(8):
        await api.accepted()
    started = asyncio.get_running_loop().time()
    one = await created(api, "pause", rate_per_second=10)
    await until(api, one, "COMPLETED", succeeded=8)
    assert asyncio.get_running_loop().time() - started >= 0.65


async def test_paused_operation_acts_on_nothing(api: Any) -> None:
    jobs = sorted([await api.accepted() for _ in range(3)])
    one = await created(api, "pause", rate_per_second=0.01)
    await until(api, one, "RUNNING", succeeded=1)
    assert (await steer(api, one, "pause", reason="wait")).json()["status"] == "PAUSED"
    api.assert_problem(await steer(api, one, "pause"), 409, "CONFLICT")
    assert [(await api.job(job_id))["status"] == "PAUSED" for job_id in jobs] == [True, False, False]
    assert (await steer(api, one, "resume")).json()["status"] == "RUNNING"
    gone = (await steer(api, one, "abandon", reason="enough")).json()
    assert (gone["status"], gone["events"][-1]["reason"]) == ("ABANDONED", "enough")
    assert gone["pending"] in (1, 2)
    assert gone["ended_at"] is not None


async def test_job_that_changed_in_between_is_skipped(api: Any) -> None:
    first, second = sorted([await api.accepted(), await api.accepted()])
    one = await created(api, "pause", rate_per_second=0.5)
    await until(api, one, "RUNNING", succeeded=1)
    await api.operate(second, "cancel")
    await until(api, one, "COMPLETED", succeeded=1, skipped=1)
    (skipped,) = await outcomes(api, one, status="SKIPPED")
    assert (skipped["jobId"], skipped["code"]) == (second, "JOB_TERMINAL")
    assert (await api.job(first))["status"] == "PAUSED"


async def test_same_key_means_the_same_operation(api: Any) -> None:
    await api.accepted()
    key = {"Idempotency-Key": "once"}
    first = await create(api, "pause", key)
    again = await create(api, "pause", key)
    assert again.json()["operationId"] == first.json()["operationId"]
    assert again.headers["Idempotency-Replayed"] == "true"
    api.assert_problem(await create(api, "pause", key, reason="another"), 422, "IDEMPOTENCY_KEY_REUSED")
    too_long = {"Idempotency-Key": "k" * (IDEMPOTENCY_KEY_CHARS_MAX + 1)}
    api.assert_problem(await create(api, "pause", too_long), 422, "ENVELOPE_INVALID")


async def test_operations_and_outcomes_are_listed_in_pages(api: Any) -> None:
    for _ in range(3):
        await api.accepted()
    made = []
    for action in ("pause", "resume", "cancel"):  # One after another: each selects what the one before it left.
        made.append(await created(api, action))
        await until(api, made[-1], "COMPLETED")
    page = (await api.client.get("/v1/operations", params={"limit": 2})).json()
    rest = (await api.client.get("/v1/operations", params={"limit": 2, "cursor": page["next"]})).json()
    assert [one["operationId"] for one in page["items"] + rest["items"]] == sorted(made)[::-1]
    assert rest["next"] is None
    path = f"/v1/operations/{made[0]}/outcomes"
    page = (await api.client.get(path, params={"limit": 2})).json()
    rest = (await api.client.get(path, params={"limit": 2, "cursor": page["next"]})).json()
    assert (len(page["items"]), len(rest["items"]), rest["next"]) == (2, 1, None)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"action": "delete"}, "/action"),
        ({"filter": {"status": "SUCCEEDED"}}, "/filter/status"),
        ({"filter": {"state": "PAUSED"}}, "/filter"),
        ({"filter": {"created_from": "yesterday"}}, "/filter/created_from"),
        ({"filter": {"request_type": ""}}, "/filter/request_type"),
        ({"reason": "  "}, "/reason"),
        ({"rate_per_second": 0}, "/rate_per_second"),
        ({"canary": -1}, "/canary"),
        ({"max_failures": -1}, "/max_failures"),
    ],
)
async def test_operation_that_makes_no_sense_is_refused(open_api: Any, fields: dict[str, Any], pointer: str) -> None:
    api = await open_api(ledger="memory", bus="memory")
    fields = {"action": "cancel"} | fields
    api.assert_problem(await create(api, **fields), 422, "ENVELOPE_INVALID", pointer)
    assert (await api.client.get("/v1/operations")).json()["items"] == []


async def test_filter_that_matches_too_many_jobs_is_refused(open_api: Any) -> None:
    api = await open_api(ledger="memory", bus="memory", operation_jobs_max=2)
    for _ in range(3):
        await api.accepted()
    problem = api.assert_problem(await create(api, "cancel"), 422, "ENVELOPE_INVALID", "/filter")
    assert "more than 2 jobs" in problem["detail"]


async def test_operation_reaches_no_further_than_its_callers_tenants(open_api: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    entries = [
        {
            "name": name,
            "sha256": sha256(f"lk_{name}_0123456789abcdef".encode()).hexdigest(),
            "tenants": tenants,
            "roles": roles,
        }
        for name, tenants, roles in (
            ("acme", ["acme"], ["operate", "read"]),
            ("globex", ["globex"], ["operate", "read"]),
            ("reader", ["acme"], ["read"]),
        )
    ]
    keys.write_text(json.dumps(entries))
    api = await open_api(**SETTINGS, api_keys_file=str(keys))
    own, foreign = await api.accepted(tenant_id="acme"), await api.accepted(tenant_id="globex")
    acme, globex, reader = (api.with_key(f"lk_{name}_0123456789abcdef") for name in ("acme", "globex", "reader"))
    one = await until(acme, await created(acme, "pause"), "COMPLETED")
    assert (one["jobs"], one["tenants"], one["by"]) == (1, ["acme"], "key:acme")
    assert ((await api.job(own))["status"], (await api.job(foreign))["status"]) == ("PAUSED", "IN_PROGRESS")
    for path in ("", "/outcomes"):
        answer = await globex.client.get(f"/v1/operations/{one['operationId']}{path}")
        api.assert_problem(answer, 404, "NOT_FOUND")
    for verb in ("pause", "resume", "abandon"):
        api.assert_problem(await steer(globex, one["operationId"], verb), 404, "NOT_FOUND")
    assert (await globex.client.get("/v1/operations")).json()["items"] == []
    assert len((await reader.client.get("/v1/operations")).json()["items"]) == 1
    api.assert_problem(await create(reader, "pause"), 403, "FORBIDDEN")
    api.assert_problem(await create(acme, "pause", filter={"tenant_id": "globex"}), 403, "TENANT_FORBIDDEN")
    assert (await preview(globex, "pause"))["count"] == 1


async def test_two_processes_carry_one_operation_on_with_exact_counts(open_api: Any, postgres_url: str) -> None:
    here = await open_api(**SETTINGS, ledger=postgres_url)
    there = await open_api(**SETTINGS, ledger=postgres_url)
    for _ in range(12):
        await here.accepted()
        await here.fail()
    one = await created(here, "redrive", rate_per_second=100)
    await until(there, one, "FINISHING", started=12)
    for _ in range(12):
        await there.work()
    done = await until(here, one, "COMPLETED", succeeded=12)
    assert (done["jobs"], done["failed"], done["skipped"]) == (12, 0, 0)
    assert await here.count() == 24

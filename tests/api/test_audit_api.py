"""What people did, over HTTP, on every ledger."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, RunbookCaller
from tests.api.test_bulk_operations_api import created, steer, until
from tests.api.test_dead_letters_api import dismissed, failed

ACME = "lk_acme_0123456789"
OTHER = "lk_other_0123456789"
APPROVED = """\
name: approved
data_source: {type: manual, primary_key: Upn}
phases:
  - {name: go, offset: T-0, approval: {count: 2}, steps: [{name: a, worker_id: exchange, function: A, params: {}}]}
"""
REASON = "<b>because</b>"


@pytest.fixture
async def api(open_api: Any, ledger_settings: dict[str, str], tmp_path: Path) -> Any:
    keys = [
        {"name": name, "sha256": sha256(key.encode()).hexdigest(), "tenants": tenants, "roles": roles}
        for name, key, tenants, roles in (("acme", ACME, ["acme"], ["read"]), ("other", OTHER, "*", ["operate"]))
    ]
    (tmp_path / "keys.yaml").write_text(json.dumps(keys))
    return await open_api(**ledger_settings, api_keys_file=str(tmp_path / "keys.yaml"), operations_interval=0.02)


async def audit(api: Any, **query: Any) -> list[dict[str, Any]]:
    answer = await api.client.get("/v1/admin/audit", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def acted(api: Any, job_id: str, verb: str, **headers: str) -> Any:
    return await api.client.post(f"/v1/jobs/{job_id}:{verb}", json={"reason": REASON}, headers=headers)


async def test_every_act_is_listed_with_who_what_why_and_when(api: Any) -> None:
    job_id = await api.accepted(tenant_id="acme")
    for verb in ("pause", "resume", "cancel"):
        assert (await acted(api, job_id, verb)).status_code == 202
    lost = await failed(api, tenant_id="globex", idempotency_key="1")
    other = await failed(api, tenant_id="globex", idempotency_key="2")
    await dismissed(api, lost, {"reason": REASON})
    await dismissed(api, lost, {"reason": "somebody else was faster"})
    again = (await acted(api, other, "redrive")).json()["jobId"]
    found = await audit(api)
    assert [(one["action"], one["kind"], one["target"], one["tenant_id"]) for one in found] == [
        ("redrive", "job", other, "globex"),
        ("dismiss", "dead-letter", lost, "globex"),
        ("cancel", "job", job_id, "acme"),
        ("resume", "job", job_id, "acme"),
        ("pause", "job", job_id, "acme"),
    ]
    assert {one["reason"] for one in found} == {REASON}
    assert {one["by"] for one in found} == {"key:api-key"}
    assert found[0]["detail"] == {"redriven_as": again}
    assert [one["at"] for one in found] == sorted((one["at"] for one in found), reverse=True)


async def test_an_operation_is_one_act_whatever_it_does_to_how_many_jobs(api: Any) -> None:
    jobs = [await api.accepted(tenant_id="acme", idempotency_key=str(n)) for n in range(3)]
    operation = await created(api, "cancel", filter={"tenant_id": "acme"}, reason=REASON)
    await until(api, operation, "COMPLETED")
    (entry,) = await audit(api)
    assert (entry["kind"], entry["action"], entry["target"], entry["reason"]) == (
        "operation", "create", operation, REASON,
    )  # fmt: skip
    assert entry["detail"]["action"] == "cancel"
    assert entry["tenant_id"] == "acme"
    problem = api.assert_problem(
        await acted(api, jobs[0], "pause", **{"Idempotency-Key": f"operation:{operation}:{jobs[0]}"}),
        422, "ENVELOPE_INVALID",
    )  # fmt: skip
    assert "reserved" in problem["detail"], "nobody hides an act under an operation"


async def test_steering_an_operation_is_listed(api: Any) -> None:
    for number in range(3):
        await api.accepted(tenant_id="acme", idempotency_key=str(number))
    operation = await created(api, "pause", filter={}, rate_per_second=1)
    assert (await steer(api, operation, "pause", reason="wait")).status_code == 202
    assert (await steer(api, operation, "abandon", reason="enough")).status_code == 202
    found = await audit(api, kind="operation")
    assert [(one["action"], one["reason"]) for one in found] == [
        ("abandon", "enough"), ("pause", "wait"), ("create", "a test"),
    ]  # fmt: skip
    assert {one["tenant_id"] for one in found} == {None}


async def test_acts_on_runbooks_and_batches_are_listed(api: Any) -> None:
    caller = RunbookCaller(api)
    await caller.publish(PLAIN)
    batch = await caller.create("u1", runbook="plain")
    await caller.act(batch, "cancel", {"reason": REASON})
    cancelled, made = await audit(api, kind="batch")
    assert (made["action"], cancelled["action"]) == ("batch-detected", "batch-cancelled")
    assert (cancelled["target"], cancelled["reason"]) == (str(batch), REASON)
    assert cancelled["detail"]["runbook"] == "plain"
    found = await audit(api, kind="runbook")
    assert [(one["action"], one["target"], one["detail"]["version"]) for one in found] == [
        ("runbook-published", "plain", 1)
    ]


async def test_approvals_are_listed(api: Any) -> None:
    caller = RunbookCaller(api)
    await caller.publish(APPROVED)
    batch = await caller.create("u1", runbook="approved", advance="manual")
    for act in ("approve", "refuse"):
        headers, body = {"Authorization": f"Bearer {OTHER}"}, {"reason": f"{act} it"}
        answer = await api.client.post(f"/v1/batches/{batch}/phases/go:{act}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
    found = await audit(api, by="key:other")
    assert [(one["action"], one["target"], one["reason"]) for one in found] == [
        ("phase-refused", str(batch), "refuse it"), ("phase-approved", str(batch), "approve it"),
    ]  # fmt: skip


async def test_filters_pages_and_tenants(api: Any) -> None:
    acme, globex = [await api.accepted(tenant_id=one) for one in ("acme", "globex")]
    for job_id in (acme, globex):
        for verb in ("pause", "resume"):
            await acted(api, job_id, verb)
    everything = await audit(api)
    assert len(everything) == 4
    assert await audit(api, tenant_id="globex") == everything[:2]
    assert await audit(api, target=acme) == everything[2:]
    assert await audit(api, action="pause") == [everything[1], everything[3]]
    assert await audit(api, by="key:api-key", kind="job") == everything
    assert await audit(api, by="key:nobody") == []
    assert await audit(api, to="2026-01-01T00:00:00Z") == []
    first = (await api.client.get("/v1/admin/audit", params={"limit": 3})).json()
    second = (await api.client.get("/v1/admin/audit", params={"limit": 3, "cursor": first["next"]})).json()
    assert (first["items"] + second["items"], second["next"]) == (everything, None)
    async with api.with_key(ACME).client as client:
        assert (await client.get("/v1/admin/audit")).json()["items"] == everything[2:]
        assert (await client.get("/v1/admin/audit", params={"tenant_id": "globex"})).json()["items"] == []
        assert (await client.get("/v1/admin/audit", params={"target": globex})).json()["items"] == []


@pytest.mark.parametrize("query", [{"kind": "x"}, {"cursor": "x"}, {"from": "x"}, {"nothing": "x"}, {"by": ""}])
async def test_bad_queries_are_refused(api: Any, query: dict[str, str]) -> None:
    answer = await api.client.get("/v1/admin/audit", params=query)
    api.assert_problem(answer, 422, "ENVELOPE_INVALID", f"?{next(iter(query))}")

"""Batches of commands, limits, rates and modes: each item stands alone, and what is full says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest


async def batch(api: Any, commands: list[Any]) -> list[dict[str, Any]]:
    answer = await api.client.post("/v1/commands:batch", json={"commands": commands})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert len(results) == len(commands)
    return results


async def test_batch_answers_each_item_for_itself(any_api: Any) -> None:
    api = any_api
    good, other = api.envelope(), api.envelope(idempotency_key="k")
    results = await batch(api, [good, api.envelope(payload=3), "no envelope", good, other, other | {"payload": {}}])
    assert [result.get("code", result.get("replayed")) for result in results] == [
        False, "ENVELOPE_INVALID", "ENVELOPE_INVALID", True, False, "IDEMPOTENCY_KEY_REUSED",
    ]  # fmt: skip
    assert results[3]["jobId"] == results[0]["jobId"]
    assert results[1]["errors"] == [
        {"code": "ENVELOPE_INVALID", "pointer": "/payload", "detail": "payload must be a JSON object"}
    ]
    assert await api.count() == 2


async def test_batch_refuses_an_item_larger_than_a_command_may_be_and_takes_the_others(api: Any) -> None:
    large = api.envelope(input_ref={"uri": "https://documents.example/in", "note": "x" * 140_000})
    results = await batch(api, [api.envelope(), large, api.envelope()])
    assert [result.get("code") for result in results] == [None, "BODY_TOO_LARGE", None]
    assert await api.count() == 2


async def test_batch_of_500_becomes_500_jobs(api: Any) -> None:
    results = await batch(api, [api.envelope() for _ in range(500)])
    assert len({result["jobId"] for result in results}) == 500
    assert await api.count() == 500


@pytest.mark.parametrize(
    "body",
    [{"commands": []}, {"commands": [{}] * 501}, {"commands": {}}, {}, {"commands": [{}], "more": 1}, []],
    ids=["empty", "501", "no list", "none", "more", "list"],
)
async def test_batch_of_another_shape_is_refused_whole(api: Any, body: Any) -> None:
    answer = await api.client.post("/v1/commands:batch", json=body)
    api.assert_problem(answer, 422, "ENVELOPE_INVALID")
    assert await api.count() == 0


async def test_batch_beyond_a_limit_takes_what_fits(open_api: Any) -> None:
    api = await open_api(max_inflight_per_tenant=3)
    results = await batch(api, [api.envelope() for _ in range(5)])
    assert sorted(result.get("code", "") for result in results) == ["", "", "", *["TENANT_SATURATED"] * 2]
    assert await api.count() == 3


# --- Limits ----------------------------------------------------------------------------------------------------------


async def test_tenant_limit_holds_for_concurrent_commands(ledger_settings: dict[str, str], open_api: Any) -> None:
    api = await open_api(max_inflight_per_tenant=10, **ledger_settings)
    answers: list[httpx.Response] = await asyncio.gather(*(api.submit() for _ in range(60)))
    assert sum(answer.status_code == 202 for answer in answers) == 10
    for answer in answers:
        if answer.status_code != 202:
            api.assert_problem(answer, 429, "TENANT_SATURATED")
    assert await api.count() == 10
    assert (await api.submit(tenant_id="other")).status_code == 202


async def test_slot_is_free_again_when_its_job_has_ended(open_api: Any) -> None:
    api = await open_api(max_inflight=1)
    envelope = api.envelope()
    await api.accepted(envelope)
    api.assert_problem(await api.submit(tenant_id="other"), 429, "GLOBAL_SATURATED")
    assert (await api.submit(envelope)).json()["replayed"] is True, "a duplicate is answered before limits are checked"
    await api.work()
    assert (await api.submit(tenant_id="other")).status_code == 202


async def test_mode_and_tenant_rules_of_the_registry_hold(open_api: Any, registry_folder: Path) -> None:
    (registry_folder / "globals.yaml").write_text("unknown_tenants_allowed: false\nmax_inflight_per_mode: {BURST: 1}\n")
    tenants = registry_folder / "tenants"
    (tenants / "acme.yaml").write_text("id: Acme\nmode: BURST\n")
    (tenants / "slow.yaml").write_text("id: slow\nburst_allowed: false\nmax_inflight: 1\n")
    (tenants / "strict.yaml").write_text("id: strict\nrefs: {hosts: ['*.strict.example']}\n")
    api = await open_api(registry=str(registry_folder))
    job = await api.job(await api.accepted(doc_id="D-1"))
    assert (job["mode"], job["decision_source"], job["routing_key_used"]) == ("BURST", "TENANT_CONFIG", "acmed-1")
    api.assert_problem(await api.submit(doc_id="D-2"), 429, "MODE_SATURATED")
    assert (await api.submit(mode="SAFE")).status_code == 202, "the request's mode goes before the tenant's"
    api.assert_problem(await api.submit(), 422, "DOC_ID_REQUIRED", "/doc_id")
    api.assert_problem(await api.submit(tenant_id="slow", mode="BURST", doc_id="D"), 403, "MODE_FORBIDDEN", "/mode")
    assert (await api.submit(tenant_id="slow")).status_code == 202
    api.assert_problem(await api.submit(tenant_id="slow"), 429, "TENANT_SATURATED")
    api.assert_problem(await api.submit(tenant_id="strict"), 403, "REF_FORBIDDEN", "/input_ref")
    api.assert_problem(await api.submit(tenant_id="stranger"), 403, "TENANT_FORBIDDEN", "/tenant_id")
    assert await api.count() == 3


async def test_a_setting_shuts_out_tenants_that_the_registry_does_not_name(
    open_api: Any, registry_folder: Path, tmp_path: Path
) -> None:
    (registry_folder / "globals.yaml").write_text("unknown_tenants_allowed: true\n")
    (registry_folder / "tenants" / "acme.yaml").write_text("id: acme\n")
    opened = await open_api(registry=str(registry_folder), data=str(tmp_path / "first"))
    assert (await opened.submit(tenant_id="stranger")).status_code == 202, "off by default"
    known = {"registry": str(registry_folder), "tenants_registered_only": True, "ledger": f"sqlite:///{tmp_path}/l.db"}
    api = await open_api(**known)
    assert (await api.submit(tenant_id="ACME")).status_code == 202
    refused = await api.submit(tenant_id="stranger")
    problem = api.assert_problem(refused, 403, "TENANT_FORBIDDEN", "/tenant_id")
    assert "tenants/" in problem["detail"], "it says what to do"
    checked = await api.client.post("/v1/commands:validate", json=api.envelope(tenant_id="stranger"))
    api.assert_problem(checked, 403, "TENANT_FORBIDDEN", "/tenant_id")
    batch = {"commands": [api.envelope(tenant_id="stranger"), api.envelope()]}
    results = (await api.client.post("/v1/commands:batch", json=batch)).json()["results"]
    assert [one.get("code") for one in results] == ["TENANT_FORBIDDEN", None]


async def test_a_job_of_a_tenant_that_is_shut_out_is_not_redriven(open_api: Any, registry_folder: Path) -> None:
    tenant = registry_folder / "tenants" / "acme.yaml"
    tenant.write_text("id: acme\n")
    settings = {"registry": str(registry_folder), "tenants_registered_only": True, "registry_reload_seconds": 0.02}
    api = await open_api(**settings)
    job_id = await api.accepted()
    await api.fail()
    tenant.unlink()
    async with asyncio.timeout(20):
        while "acme" in api.context.registry.snapshot().tenants:
            await asyncio.sleep(0.01)
    api.assert_problem(await api.operate(job_id, "redrive"), 403, "TENANT_FORBIDDEN")


async def test_request_rate_is_kept_per_tenant(open_api: Any, registry_folder: Path) -> None:
    (registry_folder / "tenants" / "acme.yaml").write_text("id: acme\nrequests_per_second: 0.5\n")
    api = await open_api(registry=str(registry_folder))
    envelope = api.envelope()
    await api.accepted(envelope)
    answer = await api.submit()
    api.assert_problem(answer, 429, "RATE_LIMITED", "/tenant_id")
    assert answer.headers["retry-after"] == "2"
    assert (await api.submit(tenant_id="other")).status_code == 202
    api.assert_problem(await api.submit(payload=3), 422, "ENVELOPE_INVALID")
    assert await api.count() == 2
    api.clock.shift_seconds = 2.1
    assert (await api.submit()).status_code == 202


async def test_duplicate_is_answered_before_the_rate_is_checked(open_api: Any, registry_folder: Path) -> None:
    (registry_folder / "tenants" / "acme.yaml").write_text("id: acme\nrequests_per_second: 0.01\n")
    api = await open_api(registry=str(registry_folder))
    envelope = api.envelope(idempotency_key="k")
    job_id = await api.accepted(envelope)
    again = await api.submit(envelope)
    assert (again.status_code, again.json()["jobId"]) == (202, job_id)
    api.assert_problem(await api.submit(envelope | {"payload": {}}), 422, "IDEMPOTENCY_KEY_REUSED")
    api.assert_problem(await api.submit(), 429, "RATE_LIMITED")
    results = await batch(api, [envelope, api.envelope()])
    assert [result.get("code", result.get("replayed")) for result in results] == [True, "RATE_LIMITED"]


async def test_routing_is_pinned_at_acceptance(api: Any) -> None:
    job_id = await api.accepted(tenant_id=" ACME ", doc_id="Döc-1", mode="BURST")
    job = await api.job(job_id)
    directive = await api.take()
    for shown in (job, directive):
        assert (shown["tenant_id"], shown["mode"], shown["routing_key_used"]) == ("acme", "BURST", "acmedöc-1")
        assert shown["lane"] == job["lane"]
    assert (job["decision_source"], job["doc_id"]) == ("REQUEST", "Döc-1")

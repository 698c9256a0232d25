"""Notifications over HTTP: of jobs that fail or come near their deadline, lists, tests, and who sees them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lucius.ledgers.sql.deadlines import JobDeadlines
from lucius.usecases.job_notices import JobNotices

URL = "http://127.0.0.1:9/hook"
"""Nobody listens there."""
RECIPIENT = {"name": "on-call", "kind": "webhook", "url": URL}
KEYS = {
    "acme": (["acme"], ["read", "operate", "submit"]),
    "rival": (["rival"], ["read", "operate"]),
    "reader": ("*", ["read"]),
}


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


@pytest.fixture
async def told(open_api: Any, registry_folder: Path, tmp_path: Path) -> Any:
    tenant = {"id": "acme", "notifications": {"recipients": [RECIPIENT], "warn_before_seconds": 604_700}}
    (registry_folder / "tenants" / "acme.yaml").write_text(json.dumps(tenant))
    keys = [
        {"name": name, "sha256": hashlib.sha256(key_of(name).encode()).hexdigest(), "tenants": tenants, "roles": roles}
        for name, (tenants, roles) in KEYS.items()
    ]
    (tmp_path / "keys.yaml").write_text(json.dumps(keys))
    return await open_api(registry=str(registry_folder), api_keys_file=str(tmp_path / "keys.yaml"))


async def listed(api: Any, **parameters: Any) -> list[dict[str, Any]]:
    answer = await api.client.get("/v1/notifications", params=parameters)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def test_failed_jobs_are_told_once_and_counted(told: Any) -> None:
    for number in range(3):
        await told.accepted(idempotency_key=str(number))
        await told.fail(error={"code": "BAD_INPUT", "message": "not a PDF"})
    later, first = await listed(told)
    assert (first["cause"], first["tenant_id"], first["count"]) == ("job_failed", "acme", 1)
    assert "BAD_INPUT: not a PDF" in first["text"]
    assert later["count"] == 2
    assert later["due_at"] > first["due_at"]
    page = (await told.client.get("/v1/notifications", params={"limit": 1})).json()
    assert [one["id"] for one in await listed(told, cursor=page["next"])] == [first["id"]]
    assert await listed(told, status="DELIVERED") == []


async def test_a_job_that_succeeds_or_a_tenant_without_recipients_writes_nothing(told: Any) -> None:
    await told.accepted()
    await told.work()
    await told.accepted(tenant_id="rival", idempotency_key="r")
    await told.fail()
    assert await listed(told) == []


async def test_jobs_near_their_deadline_are_told_once(told: Any) -> None:
    context = told.context
    for number in range(2):
        await told.accepted(idempotency_key=str(number))
    deadlines = JobDeadlines(context.notifications.databases[0], context.clock, JobNotices(context.registry))
    await deadlines.look()
    assert await listed(told) == []
    told.clock.shift_seconds = 101
    await asyncio.gather(deadlines.look(), deadlines.look())
    await deadlines.look()
    near = [one for one in await listed(told) if one["cause"] == "deadline_near"]
    assert [one["count"] for one in near] == [2]


async def test_a_test_is_sent_and_shows_why_it_fails(told: Any) -> None:
    answer = await told.client.post("/v1/notifications:test", json={"tenant_id": "Acme", "recipient": "on-call"})
    assert answer.status_code == 202, answer.text
    notification_id = answer.json()["id"]
    async with asyncio.timeout(20):
        while not (shown := (await told.client.get(f"/v1/notifications/{notification_id}")).json())["attempts"]:
            await asyncio.sleep(0.02)
    assert (shown["cause"], shown["status"]) == ("test", "GIVEN_UP")
    assert "private" in shown["last_error"] or "loopback" in shown["last_error"], shown["last_error"]


async def test_unknown_recipients_and_owners_are_refused(told: Any) -> None:
    for body, status, code in (
        ({"tenant_id": "acme", "recipient": "nobody"}, 404, "NOT_FOUND"),
        ({"tenant_id": "nobody", "recipient": "on-call"}, 404, "NOT_FOUND"),
        ({"runbook": "nobody", "recipient": "on-call"}, 404, "NOT_FOUND"),
        ({"recipient": "on-call"}, 422, "ENVELOPE_INVALID"),
        ({"recipient": "on-call", "tenant_id": "a", "runbook": "b"}, 422, "ENVELOPE_INVALID"),
    ):
        answer = await told.client.post("/v1/notifications:test", json=body)
        told.assert_problem(answer, status, code)
    told.assert_problem(await told.client.get("/v1/notifications/abc"), 404, "NOT_FOUND")


async def test_tenants_see_and_test_only_their_own(told: Any) -> None:
    await told.accepted()
    await told.fail()
    (one,) = await listed(told)
    assert [mine["id"] for mine in await listed(told.with_key(key_of("acme")))] == [one["id"]]
    rival = told.with_key(key_of("rival"))
    assert await listed(rival) == []
    assert await listed(rival, tenant_id="acme") == []
    told.assert_problem(await rival.client.get(f"/v1/notifications/{one['id']}"), 404, "NOT_FOUND")
    body = {"tenant_id": "acme", "recipient": "on-call"}
    told.assert_problem(await rival.client.post("/v1/notifications:test", json=body), 403, "TENANT_FORBIDDEN")
    of_runbook = {"runbook": "move", "recipient": "on-call"}
    told.assert_problem(await rival.client.post("/v1/notifications:test", json=of_runbook), 404, "NOT_FOUND")
    reader = told.with_key(key_of("reader"))
    assert len(await listed(reader)) == 1
    told.assert_problem(await reader.client.post("/v1/notifications:test", json=body), 403, "FORBIDDEN")


async def test_a_ledger_that_keeps_no_notifications_says_so(open_api: Any, registry_folder: Path) -> None:
    tenant = {"id": "acme", "notifications": {"recipients": [RECIPIENT]}}
    (registry_folder / "tenants" / "acme.yaml").write_text(json.dumps(tenant))
    api = await open_api(registry=str(registry_folder), ledger="memory", bus="memory")
    _, _, checks = await api.readiness()
    assert "told nothing" in json.dumps(checks["notifications"])
    body = {"tenant_id": "acme", "recipient": "on-call"}
    api.assert_problem(await api.client.post("/v1/notifications:test", json=body), 409, "CONFLICT")

"""Pruning on a running server, retention by age and tenant, and the archive, over HTTP."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lucius.ports.archive import ArchiveUnavailable
from lucius.usecases.archived_jobs import read_for_archive

DAY = 86_400
KEYS = {"acme": (["acme"], ["read"]), "rival": (["rival"], ["read"]), "operator": ("*", ["operate", "read"])}


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


@pytest.fixture
async def kept(open_api: Any, registry_folder: Path, tmp_path: Path) -> Any:
    """An application with an archive; acme keeps jobs for 10 days, the others for 2."""
    (registry_folder / "tenants" / "acme.yaml").write_text(json.dumps({"id": "acme", "retention_days": 10}))
    keys = [
        {"name": name, "sha256": hashlib.sha256(key_of(name).encode()).hexdigest(), "tenants": tenants, "roles": roles}
        for name, (tenants, roles) in KEYS.items()
    ]
    (tmp_path / "keys.yaml").write_text(json.dumps(keys))
    return await open_api(
        registry=str(registry_folder),
        api_keys_file=str(tmp_path / "keys.yaml"),
        archive=(tmp_path / "archive").as_uri(),
        retention_days=2.0,
    )


async def ended(api: Any, **fields: Any) -> str:
    job_id: str = await api.accepted(**fields)
    await api.work()
    await api.ended(job_id)
    return job_id


async def prune(api: Any, seconds: float) -> dict[str, Any]:
    answer = await api.client.post("/v1/admin/prune", json={"older_than_seconds": seconds})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_prune_archives_and_removes_what_is_old_while_the_server_runs(kept: Any) -> None:
    job_id, still_open = await ended(kept, idempotency_key="1"), await kept.accepted(idempotency_key="2")
    shown, events = await kept.job(job_id), await kept.events(job_id)
    assert await prune(kept, DAY) == {"jobs": 0, "archived": 0, "operations": 0, "more": False}
    kept.clock.shift_seconds = 1.5 * DAY
    assert await prune(kept, DAY) == {"jobs": 1, "archived": 1, "operations": 0, "more": False}
    kept.assert_problem(await kept.client.get(f"/v1/jobs/{job_id}"), 404, "JOB_NOT_FOUND")
    assert (await kept.job(still_open))["jobId"] == still_open
    answer = await kept.client.get(f"/v1/archive/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    archived = answer.json()
    assert (archived["jobId"], archived["job"]["status"]) == (job_id, "SUCCEEDED")
    assert archived["job"]["spec"]["created_at"] == shown["created_at"]
    assert [event["type"] for event in archived["events"]] == [event["type"] for event in events]
    assert archived["attempts"]["ocr"][0]["attempt_no"] == 1
    (entry,) = (await kept.client.get("/v1/admin/audit", params={"action": "prune"})).json()["items"]
    assert (entry["kind"], entry["detail"]["jobs"], entry["detail"]["archived"]) == ("ledger", 1, 1)


async def test_retention_follows_the_tenant_and_then_the_setting(kept: Any) -> None:
    of_acme = await ended(kept, idempotency_key="1")
    of_rival = await ended(kept, idempotency_key="2", tenant_id="rival")
    retention = kept.context.retention
    await retention.round()
    assert await kept.count() == 2
    kept.clock.shift_seconds = 3 * DAY
    await retention.round()
    assert [job["jobId"] for job in (await kept.client.get("/v1/jobs")).json()["items"]] == [of_acme]
    kept.clock.shift_seconds = 11 * DAY
    await retention.round()
    assert await kept.count() == 0
    for job_id in (of_acme, of_rival):
        assert (await kept.client.get(f"/v1/archive/jobs/{job_id}")).status_code == 200


async def test_archived_jobs_are_seen_only_by_their_tenant(kept: Any) -> None:
    job_id = await ended(kept)
    kept.clock.shift_seconds = 2 * DAY
    await prune(kept, DAY)
    path = f"/v1/archive/jobs/{job_id}"
    assert (await kept.with_key(key_of("acme")).client.get(path)).status_code == 200
    kept.assert_problem(await kept.with_key(key_of("rival")).client.get(path), 404, "JOB_NOT_FOUND")
    operator = kept.with_key(key_of("operator"))
    assert (await operator.client.get(path)).status_code == 200
    refused = await operator.client.post("/v1/admin/prune", json={"older_than_seconds": 1})
    kept.assert_problem(refused, 403, "FORBIDDEN")


async def test_nothing_is_removed_while_the_archive_is_away(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await ended(kept)
    kept.clock.shift_seconds = 2 * DAY

    async def away(jobs: Any) -> None:
        raise ArchiveUnavailable("the disk is full")

    archive = kept.context.retention.archive
    with monkeypatch.context() as patched:
        patched.setattr(archive, "write", away)
        answer = await kept.client.post("/v1/admin/prune", json={"older_than_seconds": DAY})
        kept.assert_problem(answer, 503, "UNAVAILABLE")
    assert (await kept.job(job_id))["jobId"] == job_id
    assert (await prune(kept, DAY))["jobs"] == 1


async def test_a_job_archived_before_a_crash_is_archived_again_and_found(kept: Any, tmp_path: Path) -> None:
    job_id = await ended(kept)
    kept.clock.shift_seconds = 2 * DAY
    retention, ledger = kept.context.retention, kept.context.ledger
    # The process dies between the archive and the ledger.
    await retention.archive.write(await read_for_archive(ledger, [job_id], kept.clock.now()))
    assert (await prune(kept, DAY))["jobs"] == 1
    assert len(list((tmp_path / "archive").rglob("*.jsonl"))) == 2
    assert (await kept.client.get(f"/v1/archive/jobs/{job_id}")).status_code == 200


async def test_without_an_archive_or_a_retention_nothing_goes_by_itself(api: Any) -> None:
    job_id = await ended(api)
    api.clock.shift_seconds = 1_000 * DAY
    await api.context.retention.round()
    assert (await api.job(job_id))["jobId"] == job_id
    problem = api.assert_problem(await api.client.get(f"/v1/archive/jobs/{job_id}"), 404, "JOB_NOT_FOUND")
    assert "LUCIUS_ARCHIVE" in problem["detail"]
    for seconds in (0, -1, 1e12):
        answer = await api.client.post("/v1/admin/prune", json={"older_than_seconds": seconds})
        api.assert_problem(answer, 422, "ENVELOPE_INVALID")

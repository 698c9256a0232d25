"""Keys that are limited to services and to workers take nothing of others."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import Api
from tests.api.runbook_client import PLAIN, QUICK, WORKER, RunbookCaller, succeed

OTHER = PLAIN.replace("name: plain", "name: other").replace("exchange", "teams")
LIMITS: dict[str, dict[str, Any]] = {
    "unlimited": {},
    "everything": {"services": "*", "worker_ids": "*"},
    "ocr": {"services": ["ocr"]},
    "exchange": {"worker_ids": [WORKER]},
    "teams": {"worker_ids": ["teams"]},
    "both": {"services": ["ocr", "sis"], "worker_ids": [WORKER]},
    "ocr-and-workers": {"services": ["ocr"], "worker_ids": "*"},
}


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


@pytest.fixture
async def api(open_api: Any, tmp_path: Path) -> Api:
    entries = [
        {"name": name, "sha256": sha256(key_of(name).encode()).hexdigest(), "tenants": "*", "roles": ["work"]} | limits
        for name, limits in LIMITS.items()
    ]
    path = tmp_path / "keys.yaml"
    path.write_text(json.dumps(entries))
    opened: Api = await open_api(**QUICK, api_keys_file=str(path))
    return opened


async def take(api: Api, name: str, path: str, body: dict[str, Any]) -> Any:
    async with api.with_key(key_of(name)).client as client:
        return await client.post(path, json=body)


SERVICES = {
    "unlimited": "ocr sis", "everything": "ocr sis", "ocr": "ocr", "exchange": "", "teams": "", "both": "ocr sis",
    "ocr-and-workers": "ocr",
}  # fmt: skip
WORKERS = {
    "unlimited": "exchange teams", "everything": "exchange teams", "ocr": "", "exchange": "exchange", "teams": "teams",
    "both": "exchange", "ocr-and-workers": "exchange teams",
}  # fmt: skip


async def test_a_key_takes_only_what_it_is_limited_to(api: Api) -> None:
    admin = RunbookCaller(api)
    await admin.publish(PLAIN)
    await admin.publish(OTHER)
    for name in LIMITS:
        for service in ("ocr", "sis"):
            answer = await take(api, name, "/v1/directives:pull", {"service": service})
            assert answer.status_code == (200 if service in SERVICES[name].split() else 403), (name, service)
        for worker in ("exchange", "teams"):
            answer = await take(api, name, "/v1/worker-jobs:pull", {"workerId": worker})
            assert answer.status_code == (200 if worker in WORKERS[name].split() else 403), (name, worker)


async def test_the_refusal_says_what_the_key_may_do(api: Api) -> None:
    await RunbookCaller(api).publish(PLAIN)
    refused = await take(api, "ocr", "/v1/directives:pull", {"service": "sis"})
    assert "directives of ocr, but not of sis" in api.assert_problem(refused, 403, "FORBIDDEN", "/service")["detail"]
    refused = await take(api, "ocr", "/v1/worker-jobs:pull", {"workerId": WORKER})
    told = api.assert_problem(refused, 403, "FORBIDDEN", "/workerId")["detail"]
    assert "not take any runbook jobs" in told


async def test_results_and_renewals_are_of_the_keys_own_workers(api: Api) -> None:
    admin = RunbookCaller(api)
    await admin.publish(PLAIN)
    await admin.create("ann", runbook="plain")
    (job,) = await admin.jobs(1)
    ids, tokens = [job["jobId"]], [job["correlationData"]["token"]]

    for body in ({"jobIds": ids, "tokens": tokens}, {"jobIds": ids}, {"workerId": WORKER, "jobIds": ids}):
        refused = await take(api, "teams", "/v1/worker-jobs:renew", body)
        assert "of teams, but not of exchange" in api.assert_problem(refused, 403, "FORBIDDEN")["detail"]
    results = {"results": [succeed(job), {"jobId": "step-99-a1", "status": "Success"}]}
    answers = (await take(api, "teams", "/v1/worker-results", results)).json()["outcomes"]
    assert [one.get("code") or one["outcome"] for one in answers] == ["FORBIDDEN", "UNKNOWN"]
    assert answers[0]["jobId"] == job["jobId"]

    # Whose key is the worker's own needs no token to extend its locks, but one to bring results.
    renewed = await take(api, "exchange", "/v1/worker-jobs:renew", {"jobIds": ids})
    assert renewed.json() == {"renewed": [True]}
    refused = await take(api, "everything", "/v1/worker-jobs:renew", {"jobIds": ids})
    api.assert_problem(refused, 403, "FORBIDDEN", "/tokens")
    bare = {"results": [{"jobId": job["jobId"], "status": "Success"}, succeed(job)]}
    answers = (await take(api, "exchange", "/v1/worker-results", bare)).json()["outcomes"]
    assert [one.get("code") or one["outcome"] for one in answers] == ["UNAUTHENTICATED", "APPLIED"]

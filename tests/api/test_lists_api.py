"""Lists over HTTP: callers take turns, and large jobs make a page shorter."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lucius.domain.job import Job
from lucius.ports.ledger import JobFilter
from lucius.usecases.query import PAGE_BYTES_MAX, SLICE_JOBS

OTHER_KEY = "lk_of_somebody_else_0123456789"
LISTS = ("/v1/jobs", "/v1/admin/dead-letters", "/v1/admin/outbox", "/v1/batches")


@pytest.fixture
def other_key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys.yaml"
    digest = hashlib.sha256(OTHER_KEY.encode()).hexdigest()
    path.write_text(f'- name: other\n  sha256: "{digest}"\n  tenants: "*"\n  roles: [admin]\n')
    path.chmod(0o600)
    return str(path)


async def test_lists_of_one_caller_wait_for_each_other_and_not_others_for_them(
    open_api: Any, other_key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await open_api(api_keys_file=other_key_file, list_seconds_max=0.3)
    other = api.with_key(OTHER_KEY)
    jobs, began, go_on = api.context.ledger.jobs, asyncio.Event(), asyncio.Event()

    async def slow(filter_: JobFilter, limit: int, before_id: str | None) -> list[Job]:
        if not began.is_set():
            began.set()
            await go_on.wait()
        found: list[Job] = await jobs(filter_, limit, before_id)
        return found

    monkeypatch.setattr(api.context.ledger, "jobs", slow)
    held = asyncio.create_task(api.client.get("/v1/jobs"))
    await began.wait()
    for path in LISTS:
        problem = api.assert_problem(await api.client.get(path), 429, "LISTS_SATURATED")
        assert "none became free within 0.3 s" in problem["detail"]
        assert (await other.client.get(path)).status_code == 200
    assert (await api.client.get("/v1/protocols")).status_code == 200, "not everything is a list"
    waiting = asyncio.create_task(api.client.get("/v1/jobs"))
    await asyncio.sleep(0)
    go_on.set()
    assert [(await task).status_code for task in (held, waiting)] == [200, 200]


async def test_page_of_large_jobs_ends_early_and_is_gone_on_from(open_api: Any) -> None:
    api = await open_api()
    size = 60_000
    count = PAGE_BYTES_MAX // size + 2 * SLICE_JOBS
    envelopes = [api.envelope(payload={"language": "en"}, correlation_id=str(place)) for place in range(count)]
    results = []
    for first in range(0, count, 100):
        answer = await api.client.post("/v1/commands:batch", json={"commands": envelopes[first : first + 100]})
        results += answer.json()["results"]
    await _give_artifacts(api, size)
    pages, cursor = [], ""
    while cursor is not None:
        answer = await api.client.get(f"/v1/jobs?limit=500{cursor and f'&cursor={cursor}'}")
        assert len(answer.content) < PAGE_BYTES_MAX + 2 * SLICE_JOBS * size
        pages.append(answer.json()["items"])
        cursor = answer.json()["next"]
    assert [len(page) for page in pages[:1]] < [count], "everything fitted into one page"
    seen = [job["jobId"] for page in pages for job in page]
    assert seen == sorted((one["jobId"] for one in results), reverse=True)


async def _give_artifacts(api: Any, size: int) -> None:
    from lucius.ledgers.sql import statements
    from lucius.sql.database import Fetch, Run, Script
    from lucius.sql.ledger_views import STATE

    def script() -> Script[None]:
        artifacts = '{"text":"' + "x" * size + '"}'
        found = yield Fetch("SELECT job_id, document FROM job_states")
        for job_id, text in found:
            document = json.loads(text)
            steps = document[STATE.index("steps")]
            for step in steps:
                step[-1] = True
            yield Run("UPDATE job_states SET document = $2 WHERE job_id = $1", [(job_id, json.dumps(document))])
            rows = [(job_id, index, artifacts, "null") for index in range(len(steps))]
            yield Run(statements.WRITE_OUTPUT, rows)

    await api.context.runbooks.turns.database.write(script)

"""Who asks for work, over HTTP: the list, and what jobs, lanes, batches and members say while nobody does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller, succeed

from lucius.ports.workers import WorkerKind
from lucius.usecases.lanes import SAMPLE_SECONDS

TOLD = {"Lucius-Instance": "scanner-1", "Lucius-Version": "2.1", "Lucius-In-Work": "3"}


async def pull(
    api: Any, headers: dict[str, str] | None = None, service: str = "ocr", wait_seconds: float = 0
) -> list[dict[str, Any]]:
    body = {"service": service, "max": 2, "wait_seconds": wait_seconds}
    answer = await api.client.post("/v1/directives:pull", json=body, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["directives"])


async def workers(api: Any) -> list[dict[str, Any]]:
    answer = await api.client.get("/v1/admin/workers")
    assert answer.status_code == 200, answer.text
    assert answer.json()["next"] is None
    return list(answer.json()["items"])


async def test_instances_are_listed_with_what_they_tell(any_api: Any) -> None:
    api = any_api
    assert await workers(api) == []
    await api.accepted()
    assert len(await pull(api, TOLD, wait_seconds=10)) == 1
    await pull(api, service="sis")
    await pull(api, {"Lucius-Instance": "x" * 500, "Lucius-In-Work": "-1"}, service="sis")
    found = await workers(api)
    assert [(one["kind"], one["name"], one["instance"], one["version"], one["in_work"]) for one in found] == [
        ("service", "ocr", "scanner-1", "2.1", 4),
        ("service", "sis", "key:api-key", None, None),
        ("service", "sis", "x" * 128, None, None),
    ]
    assert all(one["present"] and one["first_seen_at"] <= one["last_seen_at"] for one in found)


async def test_pull_of_nothing_only_shows_that_an_instance_is_there(open_api: Any) -> None:
    """As services and workers do whose work comes from a broker."""
    api = await open_api(**QUICK)
    await RunbookCaller(api).publish(PLAIN)
    await api.accepted()
    for path, named in (("directives", {"service": "ocr"}), ("worker-jobs", {"workerId": "exchange"})):
        answer = await api.client.post(f"/v1/{path}:pull", json={**named, "max": 0}, headers=TOLD)
        assert (answer.status_code, list(answer.json().values())) == (200, [[]])
        stranger = await api.client.post(f"/v1/{path}:pull", json=dict.fromkeys(named, "stranger") | {"max": 0})
        api.assert_problem(stranger, 422, "ENVELOPE_INVALID")
    # What is told once is known until something else is told.
    api.context.sightings.saw(WorkerKind.SERVICE, "ocr", "scanner-1")
    assert [(one["name"], one["version"], one["in_work"]) for one in await workers(api)] == [
        ("ocr", "2.1", 3),
        ("exchange", "2.1", 3),
    ]
    assert len(await api.pull()) == 1, "the directive is still there"


async def test_job_and_lane_say_that_nobody_asks(open_api: Any) -> None:
    api = await open_api()
    job_id = await api.accepted()
    waiting = (await api.job(job_id))["waiting_on"]
    assert waiting["what"] == "ACK"
    assert waiting["sentence"].startswith(
        "No service `ocr` has asked for work yet: attempt 1 of step ocr waits on lane"
    )
    (listed,) = (await api.client.get("/v1/jobs")).json()["items"]
    assert listed["waiting_on"]["sentence"] == waiting["sentence"]
    lanes = (await api.client.get("/v1/admin/lanes")).json()["items"]
    notes = [one["note"] for lane in lanes for one in lane["subscriptions"] if one["note"]]
    assert notes == ["no service `ocr` has asked for work yet"]
    (ocr,) = [one for lane in lanes for one in lane["subscriptions"] if one["ready"]]
    counts = ("service", "ready", "locked", "redelivered", "unsent", "held", "oldest_unsent_at", "consumers")
    assert [ocr[name] for name in counts] == ["ocr", 1, 0, 0, 0, 0, None, 0]
    await api.work()
    await asyncio.sleep(SAMPLE_SECONDS)
    lanes = (await api.client.get("/v1/admin/lanes")).json()["items"]
    assert {one["consumers"] for lane in lanes for one in lane["subscriptions"] if one["service"] == "ocr"} == {1}
    (seen,) = await workers(api)
    second = await api.accepted()
    assert "has not yet picked up" in (await api.job(second))["waiting_on"]["sentence"]
    api.clock.shift_seconds = 31.0
    since = f"No service `ocr` has asked for work since {seen['last_seen_at']}"
    async with asyncio.timeout(10):
        while not (await api.job(second))["waiting_on"]["sentence"].startswith(since):
            await asyncio.sleep(0.02)
    assert [one["present"] for one in await workers(api)] == [False]


async def test_two_processes_agree_on_who_was_seen(open_api: Any, postgres_url: str) -> None:
    here, there = await open_api(ledger=postgres_url), await open_api(ledger=postgres_url)
    await pull(here, TOLD)
    async with asyncio.timeout(20):
        while not (found := await workers(there)):
            await asyncio.sleep(0.1)
    assert [(one["instance"], one["present"]) for one in found] == [("scanner-1", True)]


async def test_pull_that_waits_counts_as_asking_all_the_while(open_api: Any) -> None:
    api = await open_api()
    waiting = asyncio.create_task(api.pull("ocr", wait_seconds=3))
    async with asyncio.timeout(10):
        while not await workers(api):
            await asyncio.sleep(0.01)
    (first,) = await workers(api)
    async with asyncio.timeout(10):
        while (await workers(api))[0]["last_seen_at"] == first["last_seen_at"]:
            await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_batch_and_member_say_that_no_worker_asks(open_api: Any) -> None:
    api = await open_api(**QUICK)
    caller = RunbookCaller(api)
    await caller.publish(PLAIN)
    batch = await caller.create("ann", runbook="plain")
    nobody = "no worker `exchange` has asked for work yet"
    found = await caller.until(batch, lambda one: "with a worker" in " ".join(one["waiting_for"]))
    assert found["waiting_for"] == [f"phase only is at step 1 of 2 (a): 1 step is with a worker; {nobody}"]
    (ann,) = await caller.members(batch)
    assert ann["waiting_for"].startswith(f"step a: {nobody}, times out at 2")
    (job,) = await caller.jobs(1)
    (ann,) = await caller.members(batch)
    assert ann["waiting_for"].startswith("step a is with worker exchange since 2")
    assert (await caller.batch(batch))["waiting_for"] == ["phase only is at step 1 of 2 (a): 1 step is with a worker"]
    (seen,) = await workers(api)
    assert (seen["kind"], seen["name"], seen["in_work"]) == ("worker", "exchange", None)
    api.clock.shift_seconds = 40.0
    (ann,) = await caller.members(batch)
    since = f"no worker `exchange` has asked for work since {seen['last_seen_at']}"
    assert ann["waiting_for"].startswith(f"step a: {since}")
    assert since in (await caller.batch(batch))["waiting_for"][0]
    body = {"workerId": "exchange", "jobIds": [job["jobId"]], "tokens": [job["correlationData"]["token"]]}
    assert (await api.client.post("/v1/worker-jobs:renew", json=body)).status_code == 200
    assert since not in (await caller.batch(batch))["waiting_for"][0]
    await caller.results(succeed(job))

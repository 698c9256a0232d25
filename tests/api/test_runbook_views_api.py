"""What people see of batches: pages, what each waits for, and the export."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller, fail, succeed

LATER = "2031-05-01T12:00:00Z"


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    return RunbookCaller(await open_api(**QUICK))


@pytest.fixture
async def anywhere(ledger_settings: dict[str, str], open_api: Any) -> RunbookCaller:
    """The same, on each ledger: the statements must hold on all of them."""
    return RunbookCaller(await open_api(**QUICK, **ledger_settings))


async def pages(caller: RunbookCaller, path: str, **parameters: Any) -> list[list[Any]]:
    """Every page, until there is no next one."""
    found = []
    cursor = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        answer = await caller.get(path, **parameters, **more)
        found.append(answer["items"])
        cursor = answer["next"]
        if cursor is None:
            return found
        assert len(found) < 50


async def test_batches_are_listed_newest_first_in_pages(anywhere: RunbookCaller) -> None:
    await anywhere.publish(PLAIN)
    await anywhere.publish(PLAIN.replace("name: plain", "name: other"))
    made = [await anywhere.create("ann", runbook="plain", start=LATER) for _ in range(3)]
    other = await anywhere.create("ann", runbook="other", start=LATER)
    await anywhere.act(made[0], "cancel")
    found = await pages(anywhere, "/v1/batches", limit=2)
    assert [[one["batch_id"] for one in page] for page in found] == [[other, made[2]], [made[1], made[0]]]
    assert [one["batch_id"] for one in (await anywhere.get("/v1/batches", runbook="other"))["items"]] == [other]
    failed = (await anywhere.get("/v1/batches", status="failed"))["items"]
    assert [one["batch_id"] for one in failed] == [made[0]]
    both = (await anywhere.get("/v1/batches", status="active", runbook="plain", limit=2))["items"]
    assert [one["batch_id"] for one in both] == [made[2], made[1]]
    (line,) = (await anywhere.get("/v1/batches", runbook="other"))["items"]
    assert line["start"] == "2031-05-01T12:00:00.000Z"
    assert line["phases"] == {"pending": 1, "dispatched": 0, "completed": 0, "failed": 0, "skipped": 0}


WRONG_PARAMETERS = [
    ("/v1/batches", {"cursor": "x"}),
    ("/v1/batches", {"cursor": "0"}),
    ("/v1/batches", {"limit": "0"}),
    ("/v1/batches", {"limit": "501"}),
    ("/v1/batches", {"status": "gone"}),
    ("/v1/batches", {"more": "1"}),
    ("/v1/batches/1/members", {"status": "gone"}),
    ("/v1/batches/1/members", {"cursor": "1e3"}),
    ("/v1/batches/1/events", {"limit": "-1"}),
    ("/v1/batches/1", {"x": "1"}),
    ("/v1/batches/1/export", {"x": "1"}),
    ("/v1/batches/1/export", {"status": "gone"}),
    ("/v1/batches/1/grid", {"since": "-1"}),
    ("/v1/batches/1/grid", {"since": "x"}),
    ("/v1/batches/1/grid", {"more": "1"}),
]


async def test_wrong_parameters_are_refused(caller: RunbookCaller) -> None:
    for path, parameters in WRONG_PARAMETERS:
        answer = await caller.client.get(path, params=parameters)
        caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID")


async def test_members_are_shown_in_pages_and_by_key(anywhere: RunbookCaller) -> None:
    await anywhere.publish(PLAIN)
    keys = [f"user-{number}" for number in range(5)]
    batch = await anywhere.create(*keys, runbook="plain", start=LATER)
    found = await pages(anywhere, f"/v1/batches/{batch}/members", limit=2)
    assert [len(page) for page in found] == [2, 2, 1]
    assert [one["member"] for page in found for one in page] == keys
    (one,) = await anywhere.members(batch, key="user-3")
    assert one["member"] == "user-3"
    assert one["waiting_for"] == "phase only is due at 2031-05-01T12:00:00.000Z"
    assert await anywhere.members(batch, key="nobody") == []
    assert await anywhere.members(batch, status="failed") == []


async def test_events_are_paged_newest_first_and_name_actor_and_member(anywhere: RunbookCaller) -> None:
    await anywhere.publish(PLAIN)
    batch = await anywhere.create("ann", "bob", runbook="plain", start=LATER)
    await anywhere.act(batch, "remove", {"members": ["ann"]})
    found = await pages(anywhere, f"/v1/batches/{batch}/events", limit=1)
    ids = [one["id"] for page in found for one in page]
    assert ids == sorted(ids, reverse=True)
    (removed,) = [one for page in found for one in page if one["kind"] == "member-removed"]
    assert (removed["member"], removed["batch_id"]) == ("ann", batch)
    assert removed["actor"] not in ("scheduler", "orchestrator")
    assert removed["detail"]["reason"] == "by hand"
    trail = await anywhere.get("/v1/runbooks/plain/events", limit=500)
    assert {"runbook-published", "batch-detected", "member-removed"} <= {one["kind"] for one in trail["items"]}
    assert len(trail["items"]) == len(ids) + 1
    found = await pages(anywhere, "/v1/runbooks/plain/events", limit=2)
    assert [one["id"] for page in found for one in page] == [one["id"] for one in trail["items"]]


async def test_long_results_are_shown_only_where_one_member_is_asked_for(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    batch = await caller.create("ann", runbook="plain")
    await caller.work(1, lambda job: succeed(job) | {"result": {"text": "x" * 3_000}})
    (ann,) = await caller.members(batch)
    assert "result" not in ann["steps"][0]
    assert ann["steps"][0]["result_chars"] == 3_011
    (ann,) = await caller.members(batch, key="ann")
    assert ann["steps"][0]["result"] == {"text": "x" * 3_000}


# --- What it waits for -----------------------------------------------------------------------------------------------


async def test_a_batch_says_that_it_waits_for_its_init_and_then_its_phase(caller: RunbookCaller) -> None:
    await caller.publish()
    batch = await caller.create("ann", start=LATER)
    (job,) = await caller.jobs(1)
    (sentence,) = (await caller.batch(batch))["waiting_for"]
    assert sentence.startswith("init step check is with worker exchange since 2")
    (ann,) = await caller.members(batch)
    assert ann["waiting_for"] == "its batch's init has not ended"
    await caller.results(succeed(job))
    assert (await caller.batch(batch))["waiting_for"] == ["phase prep is due at 2031-05-01T11:00:00.000Z"]
    await caller.post("/v1/runbooks/move:stop")
    assert (await caller.batch(batch))["waiting_for"] == [
        "phase prep is due at 2031-05-01T11:00:00.000Z", "automation is off for runbook move: start it again",
    ]  # fmt: skip
    (ann,) = await caller.members(batch)
    assert ann["waiting_for"] == "phase prep is due at 2031-05-01T11:00:00.000Z, and automation is off"


async def test_slots_barrier_and_workers_are_named(anywhere: RunbookCaller) -> None:
    await anywhere.publish(PLAIN.replace("phases:", "max_parallel: 2\nphases:"))
    batch = await anywhere.create("ann", "bob", "carl", runbook="plain")
    jobs = await anywhere.jobs(2)
    assert (await anywhere.batch(batch))["waiting_for"] == [
        "phase only is at step 1 of 2 (a): 2 steps are with workers, 1 waits for a free slot (max_parallel 2)"
    ]
    sentences = {one["member"]: one["waiting_for"] for one in await anywhere.members(batch)}
    assert sentences["ann"].startswith("step a is with worker exchange since 2")
    assert ", times out at 2" in sentences["ann"]
    assert sentences["carl"] == "step a waits for a free slot (max_parallel 2)"
    await anywhere.results(*map(succeed, jobs))
    sentences = {one["member"]: one["waiting_for"] for one in await anywhere.members(batch)}
    assert sentences["ann"] == "waits at the barrier: 1 member has not ended step a"


async def test_polls_and_retries_are_named(caller: RunbookCaller) -> None:
    yaml = PLAIN.replace("function: A,", "function: A, poll: {interval: 1h, timeout: 2h},")
    await caller.publish(yaml.replace("phases:", "retry: {max_retries: 2, interval: 1h}\nphases:"))
    batch = await caller.create("ann", "bob", runbook="plain")
    ann, bob = await caller.jobs(2)
    await caller.results(succeed(ann) | {"result": {"complete": False}}, fail(bob, "not\nnow"))
    assert (await caller.batch(batch))["waiting_for"] == [
        "phase only is at step 1 of 2 (a): 1 step polls, 1 waits for a retry"
    ]
    sentences = {one["member"]: one["waiting_for"] for one in await caller.members(batch)}
    assert sentences["ann"].startswith("step a polls again at 2")
    assert ", gives up at 2" in sentences["ann"]
    assert sentences["bob"].startswith("step a retries at 2")
    assert sentences["bob"].endswith(" (1 of 2 used): last error not now")


async def test_removal_waits_for_a_result_in_flight(caller: RunbookCaller) -> None:
    await caller.publish()
    batch = await caller.create("ann", "bob")
    await caller.work(1)
    jobs = await caller.jobs(2)
    await caller.act(batch, "remove", {"members": ["ann"]})
    await caller.until(batch, lambda batch: "removal steps" in " ".join(batch["waiting_for"]))
    (ann,) = await caller.members(batch, key="ann")
    assert ann["waiting_for"] == "removal step forget waits for a result in flight"
    await caller.results(*map(succeed, jobs))
    assert {job["functionName"] for job in await caller.jobs(2)} == {"Forget", "Start"}
    (ann,) = await caller.members(batch, key="ann")
    assert ann["waiting_for"].startswith("removal step forget is with worker exchange since 2")


async def test_a_held_batch_says_so(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN.replace("phases:", "max_failures: 0\nphases:"))
    batch = await caller.create("ann", "bob", runbook="plain")
    jobs = await caller.jobs(2)
    await caller.results(fail(jobs[0]))
    held = (await caller.batch(batch))["waiting_for"]
    assert held[0] == "phase only is at step 1 of 2 (a): 1 step is with a worker"
    assert held[1].startswith("held: 1 of 2 members failed in phase only")


# --- Export ----------------------------------------------------------------------------------------------------------


async def test_export_has_a_line_a_member_and_a_column_a_step(anywhere: RunbookCaller) -> None:
    await anywhere.publish()
    batch = await anywhere.create("ann", "bob", "'-carl")
    await anywhere.work(1)
    await anywhere.work(3)
    await anywhere.work(3, lambda job: fail(job, "=locked") if job["parameters"]["Upn"] == "bob" else succeed(job))
    answer = await anywhere.client.get(f"/v1/batches/{batch}/export")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="batch-{batch}.csv"'
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert rows[0] == ["member", "status", "prep/notify", "prep/start", "cutover/finish", "error"]
    assert rows[1][:4] == ["ann", "active", "succeeded", "succeeded"]
    assert rows[2][:4] == ["bob", "failed", "succeeded", "failed"]
    assert rows[2][-1] == "'=locked", "a spreadsheet must not run it"
    assert rows[3][0] == "'-carl"
    assert len(rows) == 4


async def test_export_reads_page_by_page(caller: RunbookCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.runbooks.service.views.export.PAGE", 2)
    await caller.publish(PLAIN)
    keys = [f"user-{number}" for number in range(4)]
    batch = await caller.create(*keys, runbook="plain", start=LATER)
    answer = await caller.client.get(f"/v1/batches/{batch}/export")
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert rows == [["member", "status", "only/a", "only/b", "error"], *([key, "active", "", "", ""] for key in keys)]


async def test_export_of_two_versions_has_a_column_for_each(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN)
    batch = await caller.create("ann", runbook="plain", start=LATER)
    await caller.publish(PLAIN.replace("offset: T-0", "offset: T-1h"))
    await caller.until(batch, lambda batch: batch["version"] == 2)
    header = (await caller.client.get(f"/v1/batches/{batch}/export")).text.partition("\r\n")[0]
    assert header == '"member","status","only/a (v1)","only/b (v1)","only/a (v2)","only/b (v2)","error"'
    shown = await caller.batch(batch)
    assert [(one["version"], one["status"]) for one in shown["phase_list"]] == [(1, "skipped"), (2, "pending")]

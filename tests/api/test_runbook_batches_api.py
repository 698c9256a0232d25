"""Batches over HTTP alone: a whole life, what operators do in between, and what they are refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.runbook_client import PLAIN, QUICK, WORKER, YAML, RunbookCaller, csv_of, fail, succeed

from lucius.runbooks.core.messages import job_ref


@pytest.fixture
async def caller(open_api: Any) -> RunbookCaller:
    return RunbookCaller(await open_api(**QUICK))


@pytest.fixture
async def plain(caller: RunbookCaller) -> RunbookCaller:
    await caller.publish(PLAIN)
    return caller


async def test_a_batch_lives_from_publication_to_its_end(ledger_settings: dict[str, str], open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK, **ledger_settings))
    assert await caller.publish() == {
        "name": "move",
        "version": 1,
        "published": True,
        "unchecked": None,
        "automation": True,
        "missing_connection": None,
    }
    batch = await caller.create("ann", "bob")
    shown = await caller.batch(batch)
    assert (shown["status"], shown["origin"], shown["advance"]) == ("init_dispatched", "manual", "time")
    assert shown["members"] == {"active": 2, "removed": 0, "failed": 0, "held": 0}
    assert [one["step"] for one in shown["init"]] == ["check"]
    polls: dict[str, int] = {}

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        if job["functionName"] != "Finish":
            return succeed(job)
        key = job["parameters"]["Upn"]
        polls[key] = polls.get(key, 0) + 1
        return succeed(job) | {"result": {"complete": polls[key] > 1}}

    shown = await caller.work_until(batch, "completed", answer)
    assert polls == {"ann": 2, "bob": 2}
    assert shown["phases"] == {"pending": 0, "dispatched": 0, "completed": 2, "failed": 0, "skipped": 0}
    assert shown["waiting_for"] == ["nothing: it has ended"]
    (prep, cutover) = shown["phase_list"]
    assert (prep["phase"], prep["offset"], prep["status"], prep["version"]) == ("prep", "T-1h", "completed", 1)
    assert [(one["step"], one["counts"]["succeeded"]) for one in prep["steps"]] == [("notify", 2), ("start", 2)]
    assert cutover["steps"][0]["counts"]["succeeded"] == 2
    (ann, _) = await caller.members(batch)
    assert [(one["phase"], one["step"], one["status"]) for one in ann["steps"]] == [
        ("prep", "notify", "succeeded"), ("prep", "start", "succeeded"), ("cutover", "finish", "succeeded"),
    ]  # fmt: skip
    assert ann["steps"][0]["result"] == {"guid": "g-ann"}
    assert ann["steps"][2]["attempts"] == 2
    assert ann["waiting_for"] is None
    kinds = [one["kind"] for one in (await caller.get(f"/v1/batches/{batch}/events"))["items"]]
    assert kinds[0] == "batch-ended"
    assert kinds[-1] == "batch-detected"


async def test_output_variables_reach_the_next_step(caller: RunbookCaller) -> None:
    await caller.publish()
    await caller.create("ann")
    (init,) = await caller.work(1)
    (notify,) = await caller.work(1)
    assert (init["functionName"], notify["functionName"]) == ("Check", "Notify")
    (start,) = await caller.jobs(1)
    assert start["parameters"] == {"Upn": "ann", "Guid": "g-ann"}


# --- Acting ----------------------------------------------------------------------------------------------------------


async def test_failed_members_roll_back_and_can_be_retried(caller: RunbookCaller) -> None:
    await caller.publish()
    batch = await caller.create("ann", "bob")

    def bob_fails(job: dict[str, Any]) -> dict[str, Any]:
        is_bob = job["functionName"] == "Start" and job["parameters"]["Upn"] == "bob"
        return fail(job, "the mailbox is locked") if is_bob else succeed(job)

    shown = await caller.work_until(batch, "failed", bob_fails)
    assert shown["error"] == "phases failed: prep, cutover"
    assert shown["members"] == {"active": 2, "removed": 0, "failed": 1, "held": 0}
    (bob,) = await caller.members(batch, status="failed")
    assert bob["failed_at"] is not None
    assert [one["status"] for one in bob["steps"]] == ["succeeded", "rolled_back", "cancelled"]
    assert bob["steps"][1]["error"] == "the mailbox is locked"
    assert bob["followups"] == [
        {"kind": "rollback", "list": "undo", "step": "undo-start", "status": "succeeded", "error": None}
    ]
    assert bob["waiting_for"] == "failed at step start: the mailbox is locked; retry it or remove it"
    answer = await caller.act(batch, "retry", {"members": ["bob"]})
    assert answer["members"] == 1
    shown = await caller.work_until(batch, "completed")
    assert shown["members"]["failed"] == 0


async def test_retry_refuses_members_that_have_not_failed(plain: RunbookCaller) -> None:
    batch = await plain.create("ann", runbook="plain")
    for body in ({"members": ["ann"]}, {"members": ["nobody"]}, {}):
        answer = await plain.client.post(f"/v1/batches/{batch}:retry", json=body)
        plain.api.assert_problem(answer, 409, "CONFLICT")


async def test_too_many_failures_hold_a_batch_until_it_is_resumed(caller: RunbookCaller) -> None:
    await caller.publish(PLAIN.replace("phases:", "max_failures: 0\nmax_parallel: 1\nphases:"))
    batch = await caller.create("ann", "bob", "carl", runbook="plain")
    await caller.work(1, fail)
    shown = await caller.until(batch, lambda batch: batch["held_at"] is not None)
    assert "max_failures" in shown["hold_reason"]
    answer = await caller.act(batch, "resume")
    assert answer["steps"] == 4
    await caller.work_until(batch, "failed")
    statuses = {one["member"]: [step["status"] for step in one["steps"]] for one in await caller.members(batch)}
    assert statuses["bob"] == statuses["carl"] == ["succeeded", "succeeded"]
    answer = await caller.client.post(f"/v1/batches/{batch}:resume")
    caller.api.assert_problem(answer, 409, "CONFLICT")


async def test_a_dead_job_is_listed_with_its_batch_and_sent_again(
    ledger_settings: dict[str, str], open_api: Any
) -> None:
    caller = RunbookCaller(await open_api(**QUICK, **ledger_settings))
    await caller.publish(PLAIN)
    batch = await caller.create("ann", runbook="plain")
    [job] = await caller.jobs(1)
    await caller.api.context.bus.dead_letter([job_ref(WORKER, job["jobId"])], "broken")
    (message,) = (await caller.get("/v1/admin/dead-letters"))["messages"]
    about = message["runbook"]
    assert (about["batch_id"], about["phase"], about["member"], about["step"]) == (batch, "only", "ann", "a")
    assert about["awaited"]
    assert about["can_be_sent"]
    shown = await caller.batch(batch)
    assert [one["messageId"] for one in shown["dead_messages"]] == [job["jobId"]]
    assert any(job["jobId"] in one and "dead letter" in one for one in shown["waiting_for"])
    answer = await caller.client.post(f"/v1/batches/{batch}:send-again", json={"messages": ["nothing-1"]})
    caller.api.assert_problem(answer, 404, "NOT_FOUND")
    answer = await caller.client.post(f"/v1/batches/{batch}:send-again", json={"messages": [""]})
    caller.api.assert_problem(answer, 422, "ENVELOPE_INVALID")
    assert await caller.act(batch, "send-again", {"messages": [job["jobId"]]}) == {
        "batch_id": batch, "sent": [job["jobId"]], "more": False,
    }  # fmt: skip
    assert (await caller.get("/v1/admin/dead-letters"))["messages"] == []
    assert await caller.work(1) == [job]
    await caller.work_until(batch, "completed")
    events = (await caller.get(f"/v1/batches/{batch}/events"))["items"]
    assert "messages-sent-again" in [one["kind"] for one in events]


async def test_cancel_stops_what_has_not_been_sent(plain: RunbookCaller) -> None:
    batch = await plain.create("ann", runbook="plain", start="2031-01-01T00:00:00Z")
    answer = await plain.act(batch, "cancel", {"reason": "not\0 now"})
    assert answer == {"batch_id": batch, "status": "failed"}
    shown = await plain.batch(batch)
    assert shown["phases"]["skipped"] == 1
    assert shown["error"].endswith("not now")
    assert "api-key" in shown["error"] or "cancelled by" in shown["error"]
    for verb in ("cancel", "advance", "resume", "retry"):
        answer = await plain.client.post(f"/v1/batches/{batch}:{verb}", json={})
        plain.api.assert_problem(answer, 409, "CONFLICT")
    answer = await plain.client.post(f"/v1/batches/{batch}:remove", json={"members": ["ann"]})
    plain.api.assert_problem(answer, 409, "CONFLICT")
    answer = await plain.client.post(f"/v1/batches/{batch}:add", json={"csv": csv_of("bob")})
    plain.api.assert_problem(answer, 409, "CONFLICT")


async def test_a_batch_is_advanced_by_hand(plain: RunbookCaller) -> None:
    batch = await plain.create("ann", runbook="plain", advance="manual")
    assert (await plain.batch(batch))["waiting_for"] == ["phase only starts manually: advance the batch"]
    (ann,) = await plain.members(batch)
    assert ann["waiting_for"] == "phase only starts manually: advance the batch"
    assert await plain.act(batch, "advance") == {"batch_id": batch, "phase": "only"}
    answer = await plain.client.post(f"/v1/batches/{batch}:advance", json={})
    plain.api.assert_problem(answer, 409, "CONFLICT")
    await plain.work_until(batch, "completed")


async def test_members_join_and_leave(caller: RunbookCaller) -> None:
    await caller.publish(YAML.replace("offset: T-0", "offset: T+1d"))
    batch = await caller.create("ann", "bob")
    await caller.work(1)
    await caller.until(batch, lambda batch: bool(batch["phases"]["dispatched"]))
    assert await caller.act(batch, "add", {"csv": csv_of("carl")}) == {"batch_id": batch, "members": 1}
    assert await caller.act(batch, "remove", {"members": ["bob"]}) == {"batch_id": batch, "removed": 1}
    answer = await caller.client.post(f"/v1/batches/{batch}:remove", json={"members": ["bob"]})
    caller.api.assert_problem(answer, 404, "NOT_FOUND")
    seen: list[str] = []

    def note(job: dict[str, Any]) -> dict[str, Any]:
        seen.append(f"{job['functionName']} {job['parameters']['Upn']}")
        return succeed(job)

    while not {"Start ann", "Start carl", "Forget bob"} <= set(seen):
        jobs = await caller.jobs(1)
        await caller.results(*(note(job) for job in jobs))
    assert "Start bob" not in seen
    shown = await caller.until(batch, lambda batch: bool(batch["phases"]["completed"]))
    assert shown["members"] == {"active": 2, "removed": 1, "failed": 0, "held": 0}
    (bob,) = await caller.members(batch, status="removed")
    assert bob["removed_at"] is not None
    assert bob["followups"][0]["kind"] == "removal"
    assert [one["member"] for one in await caller.members(batch, status="active")] == ["ann", "carl"]


# --- Refusals --------------------------------------------------------------------------------------------------------


WRONG_BATCHES = [
    ({"runbook": "none", "csv": "Upn\na\n"}, 404, "NOT_FOUND", ""),
    ({"runbook": "-none", "csv": "Upn\na\n"}, 422, "ENVELOPE_INVALID", "/runbook"),
    ({"runbook": "plain", "csv": ""}, 422, "MEMBERS_INVALID", "/csv"),
    ({"runbook": "plain", "csv": "Upn\n"}, 422, "MEMBERS_INVALID", "/csv"),
    ({"runbook": "plain", "csv": "Mail\na\n"}, 422, "MEMBERS_INVALID", "/csv"),
    ({"runbook": "plain", "csv": "Upn\na\na\n"}, 422, "MEMBERS_INVALID", "/csv"),
    ({"runbook": "plain", "csv": "Upn\n=cmd()\n"}, 422, "MEMBERS_INVALID", "/csv"),
    ({"runbook": "plain", "csv": "Upn\na\n", "start": "tomorrow"}, 422, "ENVELOPE_INVALID", "/start"),
    ({"runbook": "plain", "csv": "Upn\na\n", "start": "2030-01-01T00:00:00"}, 422, "ENVELOPE_INVALID", "/start"),
    ({"runbook": "plain", "csv": "Upn\na\n", "start": "9999-12-31T00:00:00Z"}, 422, "ENVELOPE_INVALID", "/start"),
    ({"runbook": "plain", "csv": "Upn\na\n", "start": "0001-01-01T00:00:00Z"}, 422, "ENVELOPE_INVALID", "/start"),
    ({"runbook": "plain", "csv": "Upn\na\n", "start": "1970-01-01T00:00:00+23:59"}, 422, "ENVELOPE_INVALID", "/start"),
    ({"runbook": "plain", "csv": "Upn\na\n", "advance": "never"}, 422, "ENVELOPE_INVALID", "/advance"),
    ({"runbook": "plain", "csv": "Upn\na\n", "more": 1}, 422, "ENVELOPE_INVALID", ""),
    ({"runbook": "plain"}, 422, "ENVELOPE_INVALID", ""),
]


async def test_a_batch_that_cannot_be_made_is_refused(plain: RunbookCaller) -> None:
    for body, status, code, pointer in WRONG_BATCHES:
        answer = await plain.client.post("/v1/batches", json=body)
        plain.api.assert_problem(answer, status, code, pointer)
        assert (await plain.get("/v1/batches"))["items"] == []


async def test_a_csv_beyond_its_limit_is_refused(open_api: Any) -> None:
    caller = RunbookCaller(await open_api(**QUICK, members_bytes_max=100))
    await caller.publish(PLAIN)
    body = {"runbook": "plain", "csv": "Upn\n" + "x" * 100}
    answer = await caller.client.post("/v1/batches", json=body)
    caller.api.assert_problem(answer, 413, "BODY_TOO_LARGE", "/csv")
    body["csv"] = "x" * 200_000
    answer = await caller.client.post("/v1/batches", json=body)
    caller.api.assert_problem(answer, 413, "BODY_TOO_LARGE")


NO_BATCHES = ["7", "0", "x", "-1", "9" * 30, "1.0", "١"]


async def test_a_batch_that_is_not_there_is_not_found(plain: RunbookCaller) -> None:
    for batch in NO_BATCHES:
        for path in ("", "/members", "/grid", "/events", "/export"):
            answer = await plain.client.get(f"/v1/batches/{batch}{path}")
            plain.api.assert_problem(answer, 404, "NOT_FOUND")
        bodies = {"add": {"csv": csv_of("a")}, "remove": {"members": ["a"]}}
        for verb in ("advance", "cancel", "resume", "retry", "remove", "add"):
            answer = await plain.client.post(f"/v1/batches/{batch}:{verb}", json=bodies.get(verb, {}))
            plain.api.assert_problem(answer, 404, "NOT_FOUND")


WRONG_ACTS = [
    ("advance", {"more": 1}, ""),
    ("cancel", {"reason": "x" * 501}, "/reason"),
    ("cancel", {"why": "x"}, ""),
    ("retry", {"members": []}, "/members"),
    ("retry", {"members": ["a", ""]}, "/members/1"),
    ("remove", {}, ""),
    ("remove", {"members": ["a\0"]}, "/members/0"),
    ("remove", {"members": ["a"] * 5_001}, "/members"),
    ("add", {}, ""),
]


async def test_acts_with_a_wrong_body_are_refused(plain: RunbookCaller) -> None:
    batch = await plain.create("ann", runbook="plain", advance="manual")
    for verb, body, pointer in WRONG_ACTS:
        answer = await plain.client.post(f"/v1/batches/{batch}:{verb}", json=body)
        plain.api.assert_problem(answer, 422, "ENVELOPE_INVALID", pointer)

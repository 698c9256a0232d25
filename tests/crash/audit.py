"""What must be true of a ledger after any number of crashes, read as an outsider reads it: over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.crash.client import Client
from tests.crash.worker import FATAL, CallbackReply, Worker

TERMINAL = {"SUCCEEDED", "FAILED_FINAL", "CANCELLED"}
STEPS = ["ocr", "embedding", "sis"]


async def until_all_ended(client: Client, worker: Worker, count: int, timeout_seconds: float = 60.0) -> None:
    """Wait until so many jobs are there and none is open."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            worker.check()
            jobs = await client.pages("/v1/jobs", "items")
            if len(jobs) >= count and all(job["status"] in TERMINAL for job in jobs):
                return
            await asyncio.sleep(0.2)


async def until_drained(client: Client, worker: Worker, timeout_seconds: float = 30.0) -> None:
    """Wait until no lane holds a message: each was answered by somebody, and so settled."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            worker.check()
            lanes = (await client.read("/v1/admin/lanes"))["items"]
            if not any(one["ready"] + one["locked"] for lane in lanes for one in lane["subscriptions"]):
                return
            await asyncio.sleep(0.1)


async def until_repaired(client: Client, timeout_seconds: float) -> None:
    """Wait until nothing is in flight any more."""
    async with asyncio.timeout(timeout_seconds):
        while (await client.read("/v1/admin/tenants"))["inflight"]:
            await asyncio.sleep(0.2)


async def audit(
    client: Client, worker: Worker, accepted: Mapping[str, set[str]], max_attempts: int
) -> list[dict[str, Any]]:
    """Everything at once. `accepted` is, per idempotency key, every job id that a 202 has named for it."""
    for key, job_ids in accepted.items():
        assert len(job_ids) == 1, f"command {key} became the jobs {job_ids}"
    jobs = await client.pages("/v1/jobs", "items")
    assert {job["jobId"] for job in jobs} == {job_id for job_ids in accepted.values() for job_id in job_ids}
    assert len(jobs) == len(accepted), "one accepted command, one job"
    by_job: dict[str, list[CallbackReply]] = {}
    for reply in worker.replies:
        by_job.setdefault(reply.job_id, []).append(reply)
    leases: Counter[str] = Counter()
    for job in jobs:
        steps = (await client.read(f"/v1/jobs/{job['jobId']}/steps"))["steps"]
        events = await client.pages(f"/v1/jobs/{job['jobId']}/events", "events")
        leases.update(attempt["lease_id"] for step in steps for attempt in step["attempts"])
        check_events(job, events)
        check_steps(job, steps, events, max_attempts)
        check_end(job, steps, events, worker.ended_for_good)
        check_book(job, events, by_job.get(job["jobId"], []))
    assert not [lease for lease, count in leases.items() if count > 1], "a lease is never used twice"
    await check_nothing_left(client)
    return jobs


def check_events(job: dict[str, Any], events: list[dict[str, Any]]) -> None:
    name = job["jobId"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), f"{name}: the trail has gaps"
    assert events[0]["type"] == "ACCEPTED", name
    assert events[-1]["job_status"] == job["status"], f"{name}: the trail ends elsewhere"
    ended = [event["seq"] for event in events if event["job_status"] in TERMINAL]
    last = {event["job_status"] for event in events[ended[0] - 1 :]}
    assert last == {job["status"]}, f"{name}: a terminal state changed: {last}"
    applied = Counter((event["stepId"], event["attempt_no"]) for event in events if _is_applied_result(event))
    assert not [one for one, count in applied.items() if count > 1], f"{name}: an attempt had two accepted results"


def check_steps(
    job: dict[str, Any], steps: list[dict[str, Any]], events: list[dict[str, Any]], max_attempts: int
) -> None:
    name = job["jobId"]
    assert [step["stepId"] for step in steps] == STEPS, name
    for step in steps:
        step_id, attempts = step["stepId"], step["attempts"]
        reply = f"{name} {step_id}"
        numbers = [attempt["attempt_no"] for attempt in attempts]
        assert numbers == list(range(1, len(numbers) + 1)), f"{reply}: attempts {numbers}"
        assert step["attempt_no"] == len(numbers), reply
        created = [event["attempt_no"] for event in events if event["type"] == "ATTEMPT_CREATED" and _is(event, step)]
        assert created == numbers, f"{reply}: the trail has other attempts: {created}"
        limited = [event for event in events if event.get("rate_limited") and _is(event, step)]
        assert len(numbers) - len(limited) <= max_attempts, f"{reply}: {len(numbers)} attempts"
        assert all(attempt["ended_at"] for attempt in attempts), f"{reply}: an attempt outlives its job"
        assert all(attempt["outbox_status"] != "PENDING" for attempt in attempts), f"{reply}: an unsent row"
        results = [event for event in events if _is_applied_result(event) and _is(event, step)]
        successes = [event for event in results if event["verdict"] == "SUCCEEDED"]
        assert len(successes) == (step["status"] == "SUCCEEDED"), f"{reply}: {step['status']} by {successes}"


def check_end(
    job: dict[str, Any], steps: list[dict[str, Any]], events: list[dict[str, Any]], ended_for_good: Iterable[str]
) -> None:
    name, status = job["jobId"], job["status"]
    statuses = [step["status"] for step in steps]
    if status == "SUCCEEDED":
        assert statuses == ["SUCCEEDED"] * len(STEPS), f"{name}: {statuses}"
        return
    assert status == "FAILED_FINAL", f"{name} is {status}"
    assert name in set(ended_for_good), f"{name} failed, though nobody said so: {job['error']} {events[-3:]}"
    assert job["error"]["code"] == FATAL, f"{name}: {job['error']}"
    assert statuses.count("FAILED_FINAL") == 1, f"{name}: {statuses}"


def check_book(job: dict[str, Any], events: list[dict[str, Any]], reply: list[CallbackReply]) -> None:
    """Every answer that the worker got is in the trail, once for each kind: repeats leave no further event."""
    # What Temporal answers goes by the ledger, what is recorded by the job as its workflow finds it a moment later: a
    # duplicate may be stale by then. It must be there all the same.
    fields = 3 if job["engine"] == "temporal" else 4
    heard = {
        (event["type"], event["stepId"], event.get("of_attempt_no", event["attempt_no"]), event.get("outcome"))[:fields]
        for event in events
    }
    answered = {
        (one.kind, one.step_id, one.attempt_no, one.outcome)[:fields]
        for one in reply
        # The trail has one heartbeat a tenth of progress.
        if one.kind != "HEARTBEAT" or one.outcome not in {"APPLIED", "RECEIVED"}
    }
    missing = answered - heard
    assert not missing, f"{job['jobId']}: answered, and yet not in the ledger: {missing}"
    verdicts = {
        (event["stepId"], event["attempt_no"]): event["verdict"] for event in events if _is_applied_result(event)
    }
    for one in reply:
        if one.kind == "RESULT" and one.outcome in {"APPLIED", "DUPLICATE"}:
            kept = verdicts.get((one.step_id, one.attempt_no))
            assert kept == one.verdict, f"{job['jobId']}: {one}, but the ledger has {kept}"
    for one in reply:
        if (one.kind, one.outcome, one.verdict) == ("RESULT", "APPLIED", "SUCCEEDED"):
            step = next(step for step in job["steps"] if step["stepId"] == one.step_id)
            assert step["status"] == "SUCCEEDED", f"{job['jobId']}: {one}, but the step is {step['status']}"
            assert step["artifacts"] == {"n": 1}, f"{job['jobId']}: the artifacts of {one} are lost"


async def check_nothing_left(client: Client) -> None:
    """No slot, no unsent row, no message that was given up on."""
    tenants = await client.read("/v1/admin/tenants")
    assert tenants["inflight"] == 0, tenants
    assert [one for one in tenants["items"] if one["inflight"]] == []
    assert (await client.read("/v1/admin/outbox"))["items"] == []
    messages = (await client.read("/v1/admin/dead-letters"))["messages"]
    assert messages == [], messages


def _is(event: dict[str, Any], step: dict[str, Any]) -> bool:
    return bool(event["stepId"] == step["stepId"])


def _is_applied_result(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "RESULT" and event.get("outcome") == "APPLIED")

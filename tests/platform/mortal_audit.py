"""What must be true of jobs whose services were killed, read over HTTP and in the journal of side effects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.audit import TERMINAL, check_events, check_nothing_left
from tests.crash.client import Client

CALLS_MAX = 16
LOOK_SECONDS = 0.3


@dataclass
class Found:
    """Figures of one audit."""

    jobs: Counter[str] = field(default_factory=Counter)
    """How many ended in which state."""
    attempts: int = 0
    winners: set[str] = field(default_factory=set)
    """The attempts that succeeded, as the journal names them."""
    failures: dict[str, str] = field(default_factory=dict)
    """The attempts that did not, each with the code of its failure."""
    answers: Counter[str] = field(default_factory=Counter)
    """RESULTs by what they were answered."""
    attempt_no_max: int = 0


async def until_ended(client: Client, seconds_max: float) -> None:
    """Wait until no job is in flight and no lane holds a message."""
    async with asyncio.timeout(seconds_max):
        while (await client.read("/v1/admin/tenants"))["inflight"]:
            await asyncio.sleep(LOOK_SECONDS)
        while _waiting((await client.read("/v1/admin/lanes"))["items"]):
            await asyncio.sleep(LOOK_SECONDS)


async def audit(client: Client, job_ids: Sequence[str], journal: Sequence[str]) -> Found:
    """Everything at once. Raises for the first thing that is not as it must be."""
    jobs = {job["jobId"]: job for job in await client.pages("/v1/jobs", "items")}
    assert len(set(job_ids)) == len(job_ids)
    assert set(jobs) == set(job_ids), f"accepted, or there, but not both: {set(jobs) ^ set(job_ids)}"
    doubled = [line for line, count in Counter(journal).items() if count > 1]
    assert not doubled, f"side effects of one attempt, begun twice: {doubled}"
    effects = set(journal)
    found = Found()
    room = asyncio.Semaphore(CALLS_MAX)
    leases: Counter[str] = Counter()

    async def look(job: dict[str, Any]) -> None:
        async with room:
            path = f"/v1/jobs/{job['jobId']}"
            steps = (await client.read(f"{path}/steps"))["steps"]
            events = await client.pages(f"{path}/events", "events")
        assert job["status"] in TERMINAL, f"{job['jobId']} is {job['status']}"
        found.jobs[job["status"]] += 1
        check_events(job, events)
        for step in steps:
            leases.update(attempt["lease_id"] for attempt in step["attempts"])
            _count(found, job["jobId"], step)
            _check_step(job["jobId"], step, events, found, effects)
        found.answers.update(event["outcome"] for event in events if event["type"] == "RESULT")

    await asyncio.gather(*(look(job) for job in jobs.values()))
    assert not [lease for lease, count in leases.items() if count > 1], "a lease is never used twice"
    unknown = {line.split(" ")[3] for line in effects} - set(leases)
    assert not unknown, f"side effects of leases that the ledger does not know: {unknown}"
    await check_nothing_left(client)
    return found


def _check_step(
    job_id: str, step: dict[str, Any], events: list[dict[str, Any]], found: Found, effects: set[str]
) -> None:
    label = f"{job_id} {step['stepId']}"
    applied = [
        event
        for event in events
        if (event["type"], event["stepId"], event.get("outcome")) == ("RESULT", step["stepId"], "APPLIED")
    ]
    by_attempt = Counter(event["attempt_no"] for event in applied)
    assert not [no for no, count in by_attempt.items() if count > 1], f"{label}: two accepted RESULTs for an attempt"
    successes = [event["attempt_no"] for event in applied if event["verdict"] == "SUCCEEDED"]
    assert len(successes) == (step["status"] == "SUCCEEDED"), f"{label}: {step['status']}, successes {successes}"
    if step["status"] == "SUCCEEDED":
        winner = next(one for one in step["attempts"] if one["attempt_no"] == successes[0])
        key = _key(job_id, step, winner)
        found.winners.add(key)
        assert key in effects, f"{label}: succeeded, but its side effect is not in the journal"
        assert step["artifacts"]["of"] == key, f"{label}: the artifacts are those of another attempt"


def _count(found: Found, job_id: str, step: dict[str, Any]) -> None:
    found.attempts += len(step["attempts"])
    found.attempt_no_max = max(found.attempt_no_max, len(step["attempts"]))
    for attempt in step["attempts"]:
        if attempt["error"]:
            found.failures[_key(job_id, step, attempt)] = attempt["error"]["code"]


def _key(job_id: str, step: dict[str, Any], attempt: dict[str, Any]) -> str:
    return f"{job_id} {step['stepId']} {attempt['attempt_no']} {attempt['lease_id']}"


def _waiting(lanes: list[dict[str, Any]]) -> int:
    return sum(one["ready"] + one["locked"] for lane in lanes for one in lane["subscriptions"])

"""Two API processes over one PostgreSQL ledger decide as one: idempotency and limits hold exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.cluster.conftest import StartRole
from tests.crash.client import Answer, Client, envelope

COMMANDS = 1_000
LIMIT = 100
QUIET = {"LUCIUS_LOG_LEVEL": "WARNING"}


async def _all_at_once(client: Client, ports: Sequence[int], commands: Sequence[dict[str, Any]]) -> list[Answer]:
    """Every command at the same moment, by turns to each server."""
    return await asyncio.gather(
        *(
            client.once("POST", "/v1/commands", command, port=ports[place % len(ports)])
            for place, command in enumerate(commands)
        )
    )


async def test_equal_commands_at_the_same_moment_on_two_apis_become_one_job(start_role: StartRole) -> None:
    ports = [start_role("api", **QUIET).port or 0 for _ in range(2)]
    async with Client(ports, random.Random(1)) as client:
        # A key of the client's own, and one that is the command's hash: both decide.
        for key in ("same", None):
            answers = await _all_at_once(client, ports, [envelope(key, tenant_id=f"tenant-{key}")] * COMMANDS)
            assert Counter(answer.status for answer in answers) == {202: COMMANDS}
            assert len({answer.body["jobId"] for answer in answers}) == 1
            replayed = Counter(answer.headers.get("Idempotency-Replayed") for answer in answers)
            assert replayed == {None: 1, "true": COMMANDS - 1}
        jobs = await client.pages("/v1/jobs", "items")
        assert len(jobs) == 2
        assert (await client.read("/v1/admin/tenants"))["inflight"] == 2


async def test_different_commands_against_a_limit_on_two_apis_leave_exactly_the_limit(start_role: StartRole) -> None:
    settings = {**QUIET, "LUCIUS_MAX_INFLIGHT_PER_TENANT": str(LIMIT)}
    ports = [start_role("api", **settings).port or 0 for _ in range(2)]
    async with Client(ports, random.Random(2)) as client:
        answers = await _all_at_once(client, ports, [envelope(f"job-{place}") for place in range(COMMANDS)])
        assert Counter(answer.status for answer in answers) == {202: LIMIT, 429: COMMANDS - LIMIT}
        refused = [answer for answer in answers if answer.status == 429]
        assert {answer.body["code"] for answer in refused} == {"TENANT_SATURATED"}
        assert all(float(answer.headers["Retry-After"]) > 0 for answer in refused)
        await _check_in_flight(client, LIMIT)
        jobs = await client.pages("/v1/jobs", "items")
        assert {job["jobId"] for job in jobs} == {a.body["jobId"] for a in answers if a.status == 202}

        # Slots come back one for one: by jobs that finish, on either server, and by jobs that are cancelled.
        await _finish(client, ports, 20)
        await _check_in_flight(client, LIMIT - 20)
        cancelled = await _cancel(client, 30)
        await _check_in_flight(client, LIMIT - 20 - len(cancelled))
        room = 20 + len(cancelled)
        answers = await _all_at_once(client, ports, [envelope(f"more-{place}") for place in range(4 * room)])
        assert Counter(answer.status for answer in answers) == {202: room, 429: 3 * room}
        await _check_in_flight(client, LIMIT)


async def _check_in_flight(client: Client, count: int) -> None:
    jobs = await client.pages("/v1/jobs", "items")
    assert sum(job["completed_at"] is None for job in jobs) == count
    tenants = await client.read("/v1/admin/tenants")
    assert tenants["inflight"] == count
    assert [one["inflight"] for one in tenants["items"]] == [count]


async def _finish(client: Client, ports: Sequence[int], count: int) -> None:
    """Bring so many jobs to their end, each callback to another server than the one before."""
    ended = 0
    for service in ("ocr", "embedding", "sis"):
        left = count
        while left:
            pull = {"service": service, "max": left, "wait_seconds": 5}
            directives = (await client.ask("POST", "/v1/directives:pull", pull)).body["directives"]
            assert directives, f"nothing to do for {service}"
            for place, directive in enumerate(directives):
                answer = await _result(client, directive, ports[place % len(ports)])
                assert (answer.status, answer.body["outcome"]) == (200, "APPLIED")
                ended += service == "sis"
            left -= len(directives)
    assert ended == count


async def _result(client: Client, directive: dict[str, Any], port: int) -> Answer:
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    token = directive["callback_token"]
    body = {**ids, "status": "SUCCEEDED"}
    return await client.once("POST", "/v1/callbacks/result", body, port=port, Lucius_Callback_Token=token)


async def _cancel(client: Client, count: int) -> list[str]:
    """Cancel jobs, all at the same moment. Those whose directive nobody holds end at once, others by their result."""
    open_jobs = [job["jobId"] for job in await client.pages("/v1/jobs", "items") if job["completed_at"] is None]
    chosen = open_jobs[:count]
    answers = await asyncio.gather(*(client.once("POST", f"/v1/jobs/{job_id}:cancel") for job_id in chosen))
    assert {answer.status for answer in answers} == {202}
    asked = zip(chosen, answers, strict=True)
    waiting = {job_id for job_id, answer in asked if answer.body["status"] != "CANCELLED"}
    while waiting:
        pull = {"service": "ocr", "max": 100, "wait_seconds": 5}
        directives = (await client.ask("POST", "/v1/directives:pull", pull)).body["directives"]
        assert directives, f"no directive of {waiting}"
        for directive in directives:
            if directive["jobId"] in waiting:
                await _result(client, directive, 0)
                waiting.discard(directive["jobId"])
    statuses = [(await client.read(f"/v1/jobs/{job_id}"))["status"] for job_id in chosen]
    assert statuses == ["CANCELLED"] * count
    return chosen

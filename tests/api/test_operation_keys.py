"""`Idempotency-Key` on operations: one that was applied is told from one that was not, and is never applied twice."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lucius.domain.fields import IDEMPOTENCY_KEY_CHARS_MAX

RUNNING, PAUSED, CANCELLED = ("DISPATCHING", "IN_PROGRESS"), ("PAUSED",), ("CANCELLED",)


async def operate(api: Any, job_id: str, verb: str, key: str) -> httpx.Response:
    answer: httpx.Response = await api.client.post(f"/v1/jobs/{job_id}:{verb}", headers={"Idempotency-Key": key})
    return answer


def assert_taken(answer: httpx.Response, job_id: str, statuses: tuple[str, ...], replayed: bool) -> None:
    assert answer.status_code == 202, answer.text
    assert answer.json()["jobId"] == job_id
    assert answer.json()["status"] in statuses
    assert answer.json()["replayed"] is replayed
    assert answer.headers.get("Idempotency-Replayed") == ("true" if replayed else None)


async def test_operation_is_applied_once_for_its_key(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted(api.envelope_of_three())
    assert_taken(await operate(api, job_id, "pause", "first"), job_id, PAUSED, False)
    assert_taken(await operate(api, job_id, "pause", "first"), job_id, PAUSED, True)
    assert_taken(await operate(api, job_id, "resume", "second"), job_id, RUNNING, False)
    assert_taken(await operate(api, job_id, "resume", "second"), job_id, RUNNING, True)
    assert_taken(await operate(api, job_id, "pause", "first"), job_id, RUNNING, True)
    assert_taken(await operate(api, job_id, "pause", "third"), job_id, PAUSED, False)
    assert_taken(await operate(api, job_id, "cancel", "fourth"), job_id, CANCELLED, False)
    assert_taken(await operate(api, job_id, "cancel", "fourth"), job_id, CANCELLED, True)
    api.assert_problem(await operate(api, job_id, "cancel", "fifth"), 409, "JOB_TERMINAL")
    keys = [event["idempotency_key"] for event in await api.events(job_id) if "by" in event]
    assert keys == ["first", "second", "third", "fourth"]


async def test_redrive_makes_one_job_for_its_key(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    await operate(api, job_id, "cancel", "end it")
    first = await operate(api, job_id, "redrive", "again")
    new = first.json()["jobId"]
    assert_taken(first, new, RUNNING, False)
    second = await operate(api, job_id, "redrive", "again")
    assert_taken(second, new, RUNNING, True)
    assert second.headers["Location"] == f"/v1/jobs/{new}"
    api.assert_problem(await operate(api, job_id, "redrive", "once more"), 409, "CONFLICT")
    await operate(api, new, "cancel", "again")
    other = await operate(api, job_id, "redrive", "once more")
    assert other.json()["jobId"] != new
    assert (await operate(api, job_id, "redrive", "again")).json()["jobId"] == new
    assert await api.count() == 3


@pytest.mark.parametrize("verb", ["resume", "cancel", "redrive"])
async def test_key_of_another_operation_is_refused(api: Any, verb: str) -> None:
    job_id = await api.accepted()
    await operate(api, job_id, "pause", "taken")
    if verb == "redrive":
        await api.operate(job_id, "cancel")
    api.assert_problem(await operate(api, job_id, verb, "taken"), 422, "IDEMPOTENCY_KEY_REUSED")
    other = await api.accepted()
    assert_taken(await operate(api, other, "cancel", "taken"), other, CANCELLED, False)


@pytest.mark.parametrize("key", ["", "x" * (IDEMPOTENCY_KEY_CHARS_MAX + 1), "a\tb"])
async def test_key_that_cannot_be_one_is_refused(api: Any, key: str) -> None:
    job_id = await api.accepted()
    api.assert_problem(await operate(api, job_id, "pause", key), 422, "ENVELOPE_INVALID")
    assert (await api.job(job_id))["status"] == "IN_PROGRESS"


async def test_operation_without_a_key_is_as_before(api: Any) -> None:
    job_id = await api.accepted()
    assert (await api.operate(job_id, "pause")).json() == {"jobId": job_id, "status": "PAUSED"}
    (paused,) = [event for event in await api.events(job_id) if event["type"] == "PAUSED"]
    assert "idempotency_key" not in paused


async def test_key_is_found_in_a_long_trail(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.usecases.operation_keys.PAGE_SIZE", 2)
    job_id = await api.accepted()
    for number in range(4):
        assert_taken(await operate(api, job_id, "pause", f"pause {number}"), job_id, PAUSED, False)
        assert_taken(await operate(api, job_id, "resume", f"resume {number}"), job_id, RUNNING, False)
    for number in range(4):
        assert_taken(await operate(api, job_id, "pause", f"pause {number}"), job_id, RUNNING, True)

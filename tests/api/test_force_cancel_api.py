"""A step that hangs is seen, and its job can be ended at once, over HTTP."""

from __future__ import annotations

from typing import Any

FORCE = {"force": True, "reason": "the service hangs"}


async def test_hung_step_is_seen_although_it_sends_heartbeats(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    directive = await api.take()
    await api.ack(directive)
    await api.heartbeat(directive, progress=0.2, note="page 1")
    progressed = (await api.job(job_id))["waiting_on"]["progress_at"]
    assert progressed
    api.clock.shift_seconds = 60
    await api.heartbeat(directive, progress=0.2, note="page 1")
    job = await api.job(job_id)
    waiting, step = job["waiting_on"], job["steps"][0]
    assert (waiting["what"], waiting["since"]) == ("RESULT", step["started_at"]), (
        "since it began, not since a heartbeat"
    )
    assert (waiting["progress_at"], step["progress_at"]) == (progressed, progressed)
    assert f"its last progress was at {progressed}" in waiting["sentence"]


async def test_forced_cancel_ends_a_job_whose_service_hangs(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted(api.envelope_of_three())
    directive = await api.take()
    await api.ack(directive)
    assert (await api.operate(job_id, "cancel")).json()["status"] == "CANCELLING"
    answer = await api.operate(job_id, "cancel", FORCE)
    assert (answer.status_code, answer.json()) == (202, {"jobId": job_id, "status": "CANCELLED"})
    forced = next(event for event in await api.events(job_id) if event["type"] == "CANCEL_FORCED")
    assert (forced["by"], forced["reason"]) == ("key:api-key", "the service hangs")
    api.assert_problem(await api.heartbeat(directive), 409, "JOB_TERMINAL")
    assert (await api.result(directive)).json()["outcome"] == "LATE"
    assert (await api.job(job_id))["status"] == "CANCELLED"
    api.assert_problem(await api.operate(job_id, "cancel", FORCE), 409, "JOB_TERMINAL")
    assert (await api.operate(job_id, "redrive")).status_code == 202


async def test_forced_cancel_says_why(api: Any) -> None:
    job_id = await api.accepted()
    for body in ({"force": True}, {"force": True, "reason": " "}):
        api.assert_problem(await api.operate(job_id, "cancel", body), 422, "ENVELOPE_INVALID", "/reason")
    assert (await api.job(job_id))["status"] == "IN_PROGRESS"


async def test_forced_cancel_is_applied_once_with_a_key(api: Any) -> None:
    job_id = await api.accepted()
    await api.take()
    path, headers = f"/v1/jobs/{job_id}:cancel", {"Idempotency-Key": "k"}
    first = await api.client.post(path, json=FORCE, headers=headers)
    again = await api.client.post(path, json=FORCE, headers=headers)
    assert [(one.status_code, one.json()["replayed"]) for one in (first, again)] == [(202, False), (202, True)]
    api.assert_problem(await api.client.post(path, headers=headers), 422, "IDEMPOTENCY_KEY_REUSED")

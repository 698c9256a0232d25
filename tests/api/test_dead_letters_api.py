"""Failed commands submitted again, and dead letters that are redriven or dismissed, over HTTP."""

from __future__ import annotations

from typing import Any

REASON = {"reason": "the client has withdrawn it"}


async def failed(api: Any, **fields: Any) -> str:
    job_id: str = await api.accepted(**fields)
    await api.fail(error={"code": "BAD_INPUT", "message": "not a PDF"})
    assert (await api.ended(job_id))["status"] == "FAILED_FINAL"
    return job_id


async def listed(api: Any, **parameters: str) -> list[str]:
    answer = await api.client.get("/v1/admin/dead-letters", params=parameters)
    assert answer.status_code == 200, answer.text
    return [job["jobId"] for job in answer.json()["items"]]


async def dismissed(api: Any, job_id: str, body: Any = None) -> Any:
    return await api.client.post(f"/v1/admin/dead-letters/{job_id}:dismiss", json=body or REASON)


async def test_failed_command_submitted_again_is_told_as_the_old_job_and_how_it_ended(any_api: Any) -> None:
    api = any_api
    envelope = api.envelope()
    job_id = await failed(api, envelope=envelope)
    answer = await api.submit(envelope)
    told = answer.json()
    assert (answer.status_code, told["jobId"], told["status"], told["replayed"]) == (202, job_id, "FAILED_FINAL", True)
    assert told["error"] == {"code": "BAD_INPUT", "message": "not a PDF"}
    assert told["completed_at"] == (await api.job(job_id))["completed_at"]
    assert told["detail"].startswith("This is not a new job: the same command was accepted before")
    assert f"it ended FAILED_FINAL at {told['completed_at']} with BAD_INPUT: not a PDF" in told["detail"]
    batch = (await api.client.post("/v1/commands:batch", json={"commands": [envelope, envelope]})).json()["results"]
    assert batch == [told, told]


async def test_repeated_command_whose_job_goes_on_has_nothing_to_tell(api: Any) -> None:
    envelope = api.envelope()
    await api.accepted(envelope)
    assert set((await api.submit(envelope)).json()) == {"jobId", "status", "replayed"}


async def test_redriven_job_leaves_the_dead_letters(any_api: Any) -> None:
    api = any_api
    first, second = await failed(api, doc_id="1", idempotency_key="1"), await failed(api, idempotency_key="2")
    assert await listed(api) == [second, first]
    again = (await api.operate(first, "redrive")).json()["jobId"]
    assert await listed(api) == [second]
    assert (await api.job(first))["status"] == "FAILED_FINAL"
    problem = api.assert_problem(await dismissed(api, first), 409, "CONFLICT")
    assert again in problem["detail"]


async def test_dismissed_job_leaves_the_dead_letters_with_who_and_why(any_api: Any) -> None:
    api = any_api
    job_id = await failed(api)
    before = await api.job(job_id)
    answer = await dismissed(api, job_id)
    assert answer.status_code == 200, answer.text
    dismissal = answer.json()
    assert (dismissal["jobId"], dismissal["dismissed_by"]) == (job_id, "key:api-key")
    assert dismissal["reason"] == "the client has withdrawn it"
    assert (await dismissed(api, job_id, {"reason": "another"})).json() == dismissal, "the first one counts"
    assert await listed(api) == []
    assert await listed(api, dismissed="true") == [job_id]
    page = (await api.client.get("/v1/admin/dead-letters", params={"dismissed": "true"})).json()
    assert page["dismissals"] == [dismissal]
    assert await api.job(job_id) == before, "the job that has ended is not rewritten"
    assert (await api.operate(job_id, "redrive")).status_code == 202


async def test_dismissing_needs_a_reason_and_a_dead_letter(api: Any) -> None:
    open_job = await api.accepted()
    api.assert_problem(await dismissed(api, open_job), 409, "CONFLICT")
    unknown = "018f6b1e-7c00-7000-8000-0123456789ab"
    api.assert_problem(await dismissed(api, unknown), 404, "JOB_NOT_FOUND")
    api.assert_problem(await dismissed(api, open_job, {"reason": " "}), 422, "ENVELOPE_INVALID", "/reason")

"""Looking at jobs and operating on them, over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lucius.ports.bus import BusUnavailable

NOBODY = "018f6b1e-7c00-7000-8000-0123456789ab"


# --- Reading ---------------------------------------------------------------------------------------------------------


async def test_job_shows_everything_its_readers_rely_on(api: Any) -> None:
    job = await api.job(await api.accepted(api.envelope_of_three(correlation_id="c-1")))
    assert {
        "jobId", "tenant_id", "request_type", "protocol_id", "status", "current_step_id", "progress", "waiting_on",
        "created_at", "updated_at", "completed_at", "error", "steps",
    } <= set(job)  # fmt: skip
    assert (job["request_type"], job["current_step_id"], job["correlation_id"]) == ("OCR_EMBEDDING_SIS", "ocr", "c-1")
    known = {"stepId", "step_type", "service", "status", "attempt_no", "lease_id", "lane", "routing_key_used"}
    assert all(known <= set(step) for step in job["steps"])


async def test_steps_show_every_attempt(api: Any) -> None:
    job_id = await api.accepted()
    await api.fail(failure_class="RETRYABLE", error={"code": "OOM", "message": "out of memory"})
    await api.work()
    (step,) = (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["steps"]
    assert [(a["attempt_no"], a["status"]) for a in step["attempts"]] == [(1, "FAILED_RETRY"), (2, "SUCCEEDED")]
    assert step["attempts"][0]["error"] == {"code": "OOM", "message": "out of memory"}
    assert len({a["lease_id"] for a in step["attempts"]}) == 2
    assert all(a["started_at"] and a["ended_at"] for a in step["attempts"])


async def test_events_tell_the_whole_story_page_by_page(api: Any) -> None:
    job_id = await api.accepted()
    await api.work()
    story = await api.events(job_id)
    assert [event["type"] for event in story] == [
        "ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED", "ACK", "RESULT", "JOB_SUCCEEDED",
    ]  # fmt: skip
    assert [event["seq"] for event in story] == list(range(1, 7))
    found, cursor = [], "0"
    while cursor:
        page = (await api.client.get(f"/v1/jobs/{job_id}/events", params={"limit": 2, "cursor": cursor})).json()
        found += page["events"]
        cursor = page["next"]
    assert found == story


async def test_lists_filter(api: Any) -> None:
    first = await api.accepted(tenant_id="acme")
    await api.work()
    between = (datetime.now(UTC) + timedelta(milliseconds=2)).isoformat().replace("+00:00", "Z")
    await asyncio.sleep(0.01)
    second = await api.accepted(tenant_id="Other", request_type="SIS", payload={"prompt_set": ["?"]})

    async def found(**parameters: str) -> list[str]:
        answer = await api.client.get("/v1/jobs", params=parameters)
        assert answer.status_code == 200, answer.text
        return [job["jobId"] for job in answer.json()["items"]]

    assert await found() == [second, first], "newest first"
    assert await found(tenant_id="ACME") == [first]
    assert await found(tenant_id="other", status="IN_PROGRESS") == [second]
    assert await found(status="SUCCEEDED") == [first]
    assert await found(request_type="SIS") == [second]
    assert await found(created_from=between) == [second]
    assert await found(created_to=between) == [first]
    assert await found(created_from=between, tenant_id="acme") == []
    assert await found(tenant_id="nobody") == []
    assert await found(status="SUCCEEDED,IN_PROGRESS") == [second, first]
    assert await found(status="SUCCEEDED,PAUSED", tenant_id="acme") == [first]
    assert await found(job_id_prefix=first[:23].upper()) == [first]
    assert await found(job_id_prefix="0", status="SUCCEEDED,CANCELLED") == [first]
    for wrong in ({"status": "SUCCEEDED,"}, {"status": "succeeded"}, {"job_id_prefix": "0g"}, {"job_id_prefix": "0-"}):
        api.assert_problem(
            await api.client.get("/v1/jobs", params=wrong), 422, "ENVELOPE_INVALID", f"?{next(iter(wrong))}"
        )


async def test_the_command_of_a_job_makes_a_job_like_it(api: Any) -> None:
    wanted = api.envelope_of_three(correlation_id="c-1", idempotency_key="k-1")
    command = (await api.client.get(f"/v1/jobs/{await api.accepted(wanted)}/command")).json()
    assert command == {
        name: value for name, value in wanted.items() if name not in ("correlation_id", "idempotency_key", "mode")
    }
    again = await api.accepted(command)
    assert (await api.client.get(f"/v1/jobs/{again}/command")).json() == command


async def test_pages_are_stable_while_jobs_come_in(any_api: Any) -> None:
    api = any_api
    known = [await api.accepted() for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = (await api.client.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [job["jobId"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
        await api.accepted()
    assert seen == sorted(known, reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=ten", "limit=-1", "limit=1.0", "limit=٣", "limit=1&limit=2", "status=LOST",
        "status=", "cursor=abc", "cursor=", "created_from=yesterday", "created_from=2026-01-01T00:00:00",
        "tenant_id=", "created_to=10000-01-01T00:00:00Z", "tenant_id=%00", "colour=red",
        "request_type=" + "x" * 300,
        "tenant_id=" + "x" * 129,
    ],
)  # fmt: skip
async def test_wrong_query_is_refused_by_name(api: Any, query: str) -> None:
    problem = api.assert_problem(await api.client.get(f"/v1/jobs?{query}"), 422, "ENVELOPE_INVALID")
    assert problem["errors"][0]["pointer"] == "?" + query.partition("=")[0]


@pytest.mark.parametrize("job_id", [NOBODY, "x", NOBODY.upper(), "%00", "..", "a%2Fb", "%F0%9F%98%80", NOBODY + "0"])
@pytest.mark.parametrize("path", ["", "/steps", "/events", ":cancel", ":pause", ":resume", ":redrive"])
async def test_unknown_job_is_not_found(api: Any, job_id: str, path: str) -> None:
    method = "POST" if path.startswith(":") else "GET"
    answer = await api.client.request(method, f"/v1/jobs/{job_id}{path}")
    assert answer.status_code == 404
    assert answer.json()["code"] in ("JOB_NOT_FOUND", "NOT_FOUND")


async def test_wait_seconds_answers_when_the_job_ends(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    waiting = asyncio.create_task(api.job(job_id, wait_seconds=30))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await api.work()
    assert (await waiting)["status"] == "SUCCEEDED"
    assert (await api.job(await api.accepted(), wait_seconds=0.05))["status"] == "IN_PROGRESS"
    for wrong in ("-1", "61", "nan", "inf", "soon", ""):
        answer = await api.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": wrong})
        api.assert_problem(answer, 422, "ENVELOPE_INVALID", "?wait_seconds")


# --- What a job waits for --------------------------------------------------------------------------------------------


async def test_waiting_on_says_what_in_every_state(api: Any) -> None:
    async def waits(job_id: str) -> tuple[str, str]:
        told = (await api.job(job_id))["waiting_on"]
        assert told["sentence"].endswith(".")
        assert told["since"]
        return told["what"], told["sentence"]

    moment = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    what, sentence = await waits(await api.accepted(not_before=moment))
    assert (what, sentence.startswith("Step ocr has not started")) == ("START", True)

    job_id = await api.accepted()
    what, sentence = await waits(job_id)
    assert what == "ACK"
    assert sentence.startswith("No service `ocr` has asked for work yet: attempt 1 of step ocr")
    directive = await api.take()
    await api.ack(directive)
    await api.heartbeat(directive, progress=0.3)
    what, sentence = await waits(job_id)
    assert (what, "Service ocr is working on attempt 1 of step ocr (30% done)" in sentence) == ("RESULT", True)

    await api.operate(job_id, "pause")
    assert (await waits(job_id))[1].startswith("Paused; service ocr is working")
    await api.result(directive, "FAILED", failure_class="RATE_LIMITED", retry_after=600)
    assert (await waits(job_id))[0] == "RESUME"
    await api.operate(job_id, "resume")
    what, sentence = await waits(job_id)
    assert (what, sentence.startswith("Step ocr will be tried again at ")) == ("RETRY", True)

    api.clock.shift_seconds = 601
    directive = await api.take()
    await api.operate(job_id, "cancel")
    assert (await waits(job_id))[1].startswith("Being cancelled; service ocr may have taken attempt 2 of step ocr")
    await api.result(directive)
    assert (await api.job(job_id))["waiting_on"] is None


async def test_waiting_on_names_a_bus_out_of_reach(open_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await open_api(bus="memory", circuit_open_seconds=0.05, outbox_retry_interval=0.02)

    async def broken(messages: object) -> None:
        raise BusUnavailable("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(api.context.bus, "publish", broken)
        job_id = await api.accepted()
        while (await api.readiness())[2]["dispatcher"]["ok"]:
            await asyncio.sleep(0.01)
        assert (await api.readiness())[:2] == (200, "degraded"), "commands are taken all the same"
        assert (await api.job(job_id))["waiting_on"]["what"] == "BUS"
        rows = (await api.client.get("/v1/admin/outbox")).json()["items"]
        assert [(row["jobId"], row["stepId"], row["outbox_status"]) for row in rows] == [(job_id, "ocr", "PENDING")]
    await api.client.post("/v1/admin/outbox/retry")
    directive = await api.work()
    assert directive["attempt_no"] == 1, "no attempt is used up while the bus is out of reach"


# --- Operating -------------------------------------------------------------------------------------------------------


async def test_cancel_before_the_start_ends_the_job_at_once(api: Any) -> None:
    moment = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    job_id = await api.accepted(not_before=moment)
    answer = await api.operate(job_id, "cancel", {"reason": "sent by mistake"})
    assert (answer.status_code, answer.json()) == (202, {"jobId": job_id, "status": "CANCELLED"})
    asked = next(event for event in await api.events(job_id) if event["type"] == "CANCEL_ASKED")
    assert (asked["by"], asked["reason"]) == ("key:api-key", "sent by mistake")
    api.assert_problem(await api.operate(job_id, "cancel"), 409, "JOB_TERMINAL")


async def test_cancel_of_a_directive_that_nobody_pulled_ends_the_job_at_once(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    while (await api.job(job_id))["steps"][0]["status"] != "INITIATED":
        await asyncio.sleep(0.01)
    answer = await api.operate(job_id, "cancel")
    assert (answer.status_code, answer.json()) == (202, {"jobId": job_id, "status": "CANCELLED"})
    assert await api.pull(wait_seconds=0) == []
    assert [event["type"] for event in await api.events(job_id)][-3:] == [
        "CANCEL_ASKED", "DIRECTIVE_WITHDRAWN", "JOB_CANCELLED",
    ]  # fmt: skip


async def test_cancel_again_is_taken_and_pause_then_is_not(api: Any) -> None:
    job_id = await api.accepted()
    await api.take()
    for _ in range(2):
        answer = await api.operate(job_id, "cancel")
        assert (answer.status_code, answer.json()["status"]) == (202, "CANCELLING")
    api.assert_problem(await api.operate(job_id, "pause"), 409, "CONFLICT")
    api.assert_problem(await api.operate(job_id, "resume"), 409, "CONFLICT")
    api.assert_problem(await api.operate(job_id, "redrive"), 409, "CONFLICT")


async def test_pause_holds_the_next_step_until_resume(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted(api.envelope_of_three())
    assert (await api.operate(job_id, "pause")).json()["status"] == "PAUSED"
    await api.work("ocr")
    assert await api.pull("embedding", wait_seconds=0.05) == []
    assert (await api.job(job_id))["status"] == "PAUSED"
    assert (await api.operate(job_id, "pause")).status_code == 202
    assert (await api.operate(job_id, "resume")).json()["status"] == "IN_PROGRESS"
    await api.work("embedding")
    await api.work("sis")
    assert (await api.job(job_id))["status"] == "SUCCEEDED"


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "redrive"])
async def test_nothing_can_be_done_to_a_job_that_succeeded(api: Any, verb: str) -> None:
    job_id = await api.accepted()
    await api.work()
    api.assert_problem(await api.operate(job_id, verb), 409, "CONFLICT" if verb == "redrive" else "JOB_TERMINAL")


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "redrive"])
async def test_wrong_body_is_refused(api: Any, verb: str) -> None:
    job_id = await api.accepted()
    api.assert_problem(await api.operate(job_id, verb, {"reason": 5}), 422, "ENVELOPE_INVALID", "/reason")
    api.assert_problem(await api.operate(job_id, verb, {"why": "x"}), 422, "ENVELOPE_INVALID")
    path = f"/v1/jobs/{job_id}:{verb}"
    api.assert_problem(await api.post_raw(b"{", path), 400, "MALFORMED_JSON")
    api.assert_problem(await api.post_raw(b'{"reason": "\xff"}', path), 400, "MALFORMED_JSON")
    bytes_max = 5_000 if verb != "redrive" else api.context.settings.body_bytes_max
    api.assert_problem(await api.post_raw(b" " * (bytes_max + 1), path), 413, "BODY_TOO_LARGE")
    api.assert_problem(await api.client.post(path, content=b"reason=1"), 415, "UNSUPPORTED_MEDIA_TYPE")
    assert (await api.job(job_id))["status"] == "IN_PROGRESS"


# --- Redrive ---------------------------------------------------------------------------------------------------------


async def test_redrive_starts_a_linked_job_at_the_first_unfinished_step(any_api: Any) -> None:
    api = any_api
    old = await api.accepted(api.envelope_of_three(mode="BURST", doc_id="D"))
    await api.work("ocr", artifacts={"pages": 3})
    await api.fail("embedding")
    answer = await api.operate(old, "redrive")
    assert answer.status_code == 202
    new = answer.json()["jobId"]
    assert (answer.json()["redrive_of"], answer.headers["location"]) == (old, f"/v1/jobs/{new}")
    problem = api.assert_problem(await api.operate(old, "redrive"), 409, "CONFLICT")
    assert new in problem["detail"], "one open redrive per job"
    directive = await api.work("embedding")
    assert (directive["jobId"], directive["attempt_no"], directive["previous"]) == (new, 1, {"ocr": {"pages": 3}})
    assert old not in directive["workspace_ref"]
    await api.work("sis")
    before, after = await api.job(old), await api.job(new)
    assert (before["status"], after["status"], after["redrive_of"]) == ("FAILED_FINAL", "SUCCEEDED", old)
    for name in ("lane", "routing_key_used", "mode", "protocol_id", "protocol_version", "request_type"):
        assert before[name] == after[name]


async def test_failed_redrive_may_be_redriven_again(api: Any) -> None:
    old = await api.accepted()
    await api.fail()
    first = (await api.operate(old, "redrive")).json()["jobId"]
    await api.fail()
    second = (await api.operate(old, "redrive")).json()["jobId"]
    assert len({old, first, second}) == 3
    await api.work()


async def test_concurrent_redrives_make_one_job(any_api: Any) -> None:
    api = any_api
    old = await api.accepted()
    await api.fail()
    answers = await asyncio.gather(*(api.operate(old, "redrive") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    assert await api.count() == 2


async def test_redrive_obeys_limits(open_api: Any) -> None:
    api = await open_api(max_inflight_per_tenant=1)
    old = await api.accepted()
    await api.fail()
    await api.accepted()
    api.assert_problem(await api.operate(old, "redrive"), 429, "TENANT_SATURATED")


async def test_redrive_of_a_cancelled_job_with_nothing_left_to_do_is_refused(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    directive = await api.take()
    await api.operate(job_id, "cancel")
    await api.result(directive)
    job = await api.job(job_id)
    assert (job["status"], job["steps"][0]["status"]) == ("CANCELLED", "SUCCEEDED")
    api.assert_problem(await api.operate(job_id, "redrive"), 409, "CONFLICT")
    assert await api.count() == 1

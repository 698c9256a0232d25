"""Callbacks over HTTP: only the token counts, only the current attempt moves a step, and every answer says which."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from lucius.usecases.callback_bodies import CODE_CHARS_MAX, MESSAGE_CHARS_MAX


async def test_callbacks_carry_a_job_through_its_steps(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted(api.envelope_of_three())
    first = await api.work("ocr", artifacts={"text_ref": "blob://work/1"})
    assert (first["jobId"], first["stepId"], first["attempt_no"], first["previous"]) == (job_id, "ocr", 1, {})
    second = await api.work("embedding", artifacts=[1, 2.5, None])
    assert second["previous"] == {"ocr": {"text_ref": "blob://work/1"}}
    third = await api.work("sis", output_ref={"uri": "blob://out/1", "size": 3})
    assert third["previous"] == {"ocr": {"text_ref": "blob://work/1"}, "embedding": [1, 2.5, None]}
    assert third["payload"] == {"prompt_set": ["When does it end?"]}
    job = await api.job(job_id)
    assert (job["status"], job["progress"], job["waiting_on"]) == ("SUCCEEDED", 1, None)
    assert [step["status"] for step in job["steps"]] == ["SUCCEEDED"] * 3
    assert job["steps"][2]["output_ref"] == {"uri": "blob://out/1", "size": 3}


# --- The token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ack", "result", "heartbeat"])
@pytest.mark.parametrize(
    "token",
    ["", "v1", "v1.k1.99999999999.AAAA", "v1.k2.99999999999.AAAA", "v2.k1.99999999999.AAAA", "x" * 500, "v1.k1.9.é"],
)
async def test_forged_token_is_refused(api: Any, kind: str, token: str) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    answer = await api.call_back(kind, directive, token.encode(), status="SUCCEEDED" if kind == "result" else "ACKED")
    api.assert_problem(answer, 401, "UNAUTHENTICATED")
    assert "ACK" not in [event["type"] for event in await api.events(job_id)]
    assert (await api.job(job_id))["waiting_on"]["what"] == "ACK"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("jobId", "018f6b1e-7c00-7000-8000-0123456789ab"),
        ("stepId", "sis"),
        ("tenant_id", "rival"),
        ("attempt_no", 2),
        ("attempt_no", 10**30),
        ("lease_id", "ffffffffffffffffffffffffffffffff"),
        ("jobId", "\x00"),
    ],
)
async def test_token_for_other_ids_is_refused_before_anything_is_looked_up(api: Any, name: str, other: Any) -> None:
    await api.accepted()
    directive = await api.take()
    for kind, status in (("ack", "ACKED"), ("result", "SUCCEEDED")):
        api.assert_problem(await api.call_back(kind, directive, status=status, **{name: other}), 401, "UNAUTHENTICATED")
    assert (await api.ack(directive)).json()["outcome"] == "APPLIED"


async def test_token_expires_a_week_after_the_longest_step(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    api.clock.shift_seconds = 7 * 86_400 + 6 * 3_600 + 10
    api.assert_problem(await api.result(directive), 401, "UNAUTHENTICATED")


async def test_api_key_does_not_stand_in_for_a_token(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    body = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    api.assert_problem(await api.client.post("/v1/callbacks/ack", json=body), 401, "UNAUTHENTICATED")


async def test_tenant_of_a_callback_is_compared_in_normal_form(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    assert (await api.ack(directive, tenant_id=" ACME ")).json()["outcome"] == "APPLIED"


# --- The order of answers --------------------------------------------------------------------------------------------


async def test_stale_attempt_is_told_to_stop(api: Any) -> None:
    job_id = await api.accepted()
    old = await api.take()
    assert (await api.result(old, "FAILED", failure_class="RETRYABLE")).json()["outcome"] == "APPLIED"
    new = await api.take()
    assert (new["attempt_no"], new["lease_id"] != old["lease_id"]) == (2, True)
    for kind, status in (("ack", "ACKED"), ("result", "SUCCEEDED"), ("heartbeat", None)):
        api.assert_problem(await api.call_back(kind, old, status=status), 409, "STALE_ATTEMPT", "/attempt_no")
    told = [event for event in await api.events(job_id) if event.get("outcome") == "STALE_ATTEMPT"]
    assert [(event["type"], event["of_attempt_no"]) for event in told] == [("ACK", 1), ("RESULT", 1), ("HEARTBEAT", 1)]
    assert (await api.result(new)).json()["outcome"] == "APPLIED"
    assert (await api.job(job_id))["status"] == "SUCCEEDED"


async def test_repeated_callbacks_are_duplicates(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    assert [(await api.ack(directive)).json()["outcome"] for _ in range(2)] == ["APPLIED", "DUPLICATE"]
    assert [(await api.result(directive)).json()["outcome"] for _ in range(2)] == ["APPLIED", "DUPLICATE"]
    outcomes = [(e["type"], e["outcome"]) for e in await api.events(job_id) if "outcome" in e]
    assert outcomes == [("ACK", "APPLIED"), ("ACK", "DUPLICATE"), ("RESULT", "APPLIED"), ("RESULT", "DUPLICATE")]


async def test_late_result_is_recorded_and_changes_nothing(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.result(directive)
    before = await api.job(job_id)
    answer = await api.result(directive, "FAILED", failure_class="NON_RETRYABLE")
    assert (answer.status_code, answer.json()["outcome"]) == (200, "LATE")
    after = await api.job(job_id)
    assert (after["status"], after["completed_at"]) == ("SUCCEEDED", before["completed_at"])


@pytest.mark.parametrize("kind", ["ack", "heartbeat"])
async def test_ack_and_heartbeat_after_the_end_are_told_to_stop(api: Any, kind: str) -> None:
    await api.accepted()
    directive = await api.take()
    await api.result(directive)
    api.assert_problem(await api.call_back(kind, directive), 409, "JOB_TERMINAL", "/stepId")


async def test_result_counts_without_its_ack(api: Any) -> None:
    job_id = await api.accepted()
    assert (await api.result(await api.take())).json() == {"outcome": "APPLIED", "cancel_requested": False}
    assert (await api.job(job_id))["status"] == "SUCCEEDED"
    assert await api.pull(wait_seconds=0) == [], "the directive is settled"


# --- What callbacks say ----------------------------------------------------------------------------------------------


async def test_heartbeat_moves_progress_and_lease(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.ack(directive)
    lease = (await api.job(job_id))["steps"][0]["lease_expires_at"]
    api.clock.shift_seconds = 60
    assert (await api.heartbeat(directive, progress=0.42, note="page 4 of 10")).json()["outcome"] == "APPLIED"
    step = (await api.job(job_id))["steps"][0]
    assert (step["progress"], step["note"]) == (0.42, "page 4 of 10")
    assert step["lease_expires_at"] > lease
    assert (await api.heartbeat(directive, progress=0.44)).json()["outcome"] == "APPLIED"
    beats = [event for event in await api.events(job_id) if event["type"] == "HEARTBEAT"]
    assert [beat["progress"] for beat in beats] == [0.42], "the trail gets one event per tenth of progress"


async def test_unknown_fields_are_passed_over(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    for kind in ("ack", "heartbeat", "result"):
        status = {"ack": "ACKED", "result": "SUCCEEDED"}.get(kind)
        answer = await api.call_back(kind, directive, status=status, new={"a": [1]})
        assert answer.json()["outcome"] == "APPLIED"


async def test_nul_and_odd_characters_survive(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    directive = await api.take()
    note, message = "half\x00way \U0001f600", "broke\x00n 'quoted' \u2028 ${jndi}"
    assert (await api.heartbeat(directive, progress=0.5, note=note)).status_code == 200
    fields = {"failure_class": "NON_RETRYABLE", "error": {"code": "C\x00", "message": message}, "artifacts": "\x00"}
    assert (await api.result(directive, "FAILED", **fields)).json()["outcome"] == "APPLIED"
    job = await api.job(job_id)
    assert job["status"] == "FAILED_FINAL"
    assert job["error"] == {"code": "C\ufffd", "message": message.replace("\x00", "\ufffd")}
    assert job["steps"][0]["note"] == note.replace("\x00", "\ufffd")
    other = await api.accepted()
    await api.work(artifacts={"a\x00": "b\x00c"}, output_ref={"uri": "blob://x/1", "note": "\x00"})
    assert (await api.job(other))["steps"][0]["artifacts"] == {"a\x00": "b\x00c"}
    assert (await api.operate(await api.accepted(), "cancel", {"reason": "no\x00pe"})).status_code == 202


async def test_long_words_are_cut(api: Any) -> None:
    job_id = await api.accepted()
    error = {"code": "C" * 500, "message": "m" * 50_000}
    await api.fail(error=error)
    told = (await api.job(job_id))["error"]
    assert (len(told["code"]), len(told["message"])) == (CODE_CHARS_MAX, MESSAGE_CHARS_MAX)


async def test_cancel_is_told_to_whoever_is_at_work(api: Any) -> None:
    job_id = await api.accepted(api.envelope_of_three())
    directive = await api.take()
    assert (await api.operate(job_id, "cancel")).json()["status"] == "CANCELLING"
    assert (await api.ack(directive)).json() == {"outcome": "APPLIED", "cancel_requested": True}
    assert (await api.heartbeat(directive, progress=0.5)).json()["cancel_requested"] is True
    assert (await api.result(directive)).json()["outcome"] == "APPLIED"
    job = await api.job(job_id)
    assert (job["status"], [step["status"] for step in job["steps"]]) == (
        "CANCELLED", ["SUCCEEDED", "CANCELLED", "CANCELLED"],
    )  # fmt: skip


async def test_rate_limited_attempts_do_not_count(api: Any) -> None:
    job_id = await api.accepted()
    for attempt_no in range(1, 6):
        directive = await api.take()
        assert directive["attempt_no"] == attempt_no
        answer = await api.result(directive, "FAILED", failure_class="RATE_LIMITED", retry_after=0.01)
        assert answer.json()["outcome"] == "APPLIED"
        api.clock.shift_seconds += 5
    await api.work()
    steps = (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["steps"]
    assert [attempt["status"] for attempt in steps[0]["attempts"]] == ["FAILED_RETRY"] * 5 + ["SUCCEEDED"]


async def test_rate_limit_is_waited_for(api: Any) -> None:
    job_id = await api.accepted()
    await api.result(await api.take(), "FAILED", failure_class="RATE_LIMITED", retry_after=3_600)
    assert await api.pull(wait_seconds=0.2) == []
    assert (await api.job(job_id))["waiting_on"]["what"] == "RETRY"
    api.clock.shift_seconds = 3_601
    await api.work()


@pytest.mark.parametrize("alias", ["FAILED_RETRY", "FAILED"])
async def test_retries_run_out_into_a_dead_letter(api: Any, alias: str) -> None:
    job_id = await api.accepted()
    for _ in range(3):
        directive = await api.take()
        await api.result(directive, alias, error={"code": "OOM", "message": "out of memory"})
    job = await api.job(job_id)
    assert (job["status"], job["dead_letter"], job["error"]["code"]) == ("FAILED_FINAL", True, "OOM")
    letters = (await api.client.get("/v1/admin/dead-letters")).json()
    assert [letter["jobId"] for letter in letters["items"]] == [job_id]
    assert await api.pull(wait_seconds=0.1) == []


async def test_final_failure_is_not_tried_again(api: Any) -> None:
    job_id = await api.accepted()
    assert (await api.result(await api.take(), "FAILED_FINAL")).json()["outcome"] == "APPLIED"
    assert (await api.job(job_id))["status"] == "FAILED_FINAL"


async def test_token_appears_in_no_answer_event_or_log(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    job_id = await api.accepted()
    directive = await api.take()
    token, lease = directive["callback_token"], {"lease_id": "f" * 32}
    answers = [
        await api.ack(directive, **lease),
        await api.ack(directive),
        await api.ack(directive),
        await api.call_back("result", directive, status="BROKEN"),
        await api.result(directive),
        await api.heartbeat(directive),
        await api.client.get(f"/v1/jobs/{job_id}"),
        await api.client.get(f"/v1/jobs/{job_id}/steps"),
        await api.client.get(f"/v1/jobs/{job_id}/events"),
    ]
    signature = token.rpartition(".")[2]
    assert all(signature not in answer.text for answer in answers)
    assert signature not in caplog.text
    assert signature not in json.dumps([vars(record) for record in caplog.records], default=repr)


# --- Repeats ---------------------------------------------------------------------------------------------------------


async def test_a_flood_of_repeated_callbacks_is_counted_and_leaves_one_event_of_each_kind(any_api: Any) -> None:
    api = any_api
    job_id = await api.accepted()
    directive = await api.take()
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    ids["callback_token"] = directive["callback_token"]
    once = [{"type": "ACK", **ids}, {"type": "RESULT", "status": "SUCCEEDED", **ids}]
    again = [*once, {"type": "RESULT", "status": "FAILED", **ids}, {"type": "HEARTBEAT", "progress": 0.5, **ids}]
    for _ in range(4):
        answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": [*once, *again * 100]})
        assert answer.status_code == 200, answer.text
    outcomes = [one.get("outcome") or one["code"] for one in answer.json()["outcomes"]]
    assert outcomes == ["DUPLICATE"] * 2 + ["DUPLICATE", "DUPLICATE", "LATE", "JOB_TERMINAL"] * 100
    trail = [(event["type"], event.get("outcome")) for event in await api.events(job_id)]
    assert trail == [
        ("ACCEPTED", None), ("ATTEMPT_CREATED", None), ("PUBLISHED", None), ("ACK", "APPLIED"), ("RESULT", "APPLIED"),
        ("JOB_SUCCEEDED", None), ("ACK", "DUPLICATE"), ("RESULT", "DUPLICATE"), ("RESULT", "LATE"),
        ("HEARTBEAT", "JOB_TERMINAL"),
    ]  # fmt: skip
    counted = (await api.look("/metrics")).text
    assert 'lucius_callbacks_total{kind="RESULT",outcome="DUPLICATE"} 403.0' in counted

"""A redrive with another payload, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

PAYLOAD = {"language": "de"}


async def failed(api: Any, **fields: Any) -> str:
    job_id = await api.accepted(**fields)
    await api.fail()
    return str(job_id)


async def test_it_begins_anew_and_takes_the_old_job_off_the_dead_letters(any_api: Any) -> None:
    api = any_api
    old = await api.accepted(api.envelope_of_three(idempotency_key="k-1", correlation_id="order-7"))
    await api.work("ocr", artifacts={"pages": 3})
    await api.fail("embedding")
    payload = {"ocr": {"language": "de"}, "embedding": {"chunk_size": 400}, "sis": {"prompt_set": ["Why?"]}}
    answer = await api.operate(old, "redrive", {"reason": "wrong language", "payload": payload})
    assert answer.status_code == 202, answer.text
    new = answer.json()["jobId"]
    assert (answer.json()["redrive_of"], answer.headers["location"]) == (old, f"/v1/jobs/{new}")
    directive = await api.work("ocr")
    assert (directive["jobId"], directive["payload"], directive["previous"]) == (new, {"language": "de"}, {})
    before, after = await api.job(old), await api.job(new)
    for name in ("input_ref", "output_ref", "request_type", "correlation_id", "idempotency_key", "mode"):
        assert before[name] == after[name], name
    assert after["redrive_of"] == old
    assert before["idempotency_hash"] != after["idempotency_hash"]
    assert (await api.client.get("/v1/admin/dead-letters")).json()["items"] == []
    (event, *_) = (await api.client.get(f"/v1/jobs/{new}/events")).json()["events"]
    told = {name: event[name] for name in ("type", "by", "reason", "redrive_of", "new_payload")}
    assert told == {
        "type": "ACCEPTED", "by": "key:api-key", "reason": "wrong language", "redrive_of": old, "new_payload": True,
    }  # fmt: skip
    (entry,) = (await api.client.get("/v1/admin/audit", params={"target": old})).json()["items"]
    assert (entry["action"], entry["by"], entry["reason"]) == ("redrive", "key:api-key", "wrong language")
    assert entry["detail"] == {"redriven_as": new, "new_payload": True}
    problem = api.assert_problem(await api.operate(old, "redrive"), 409, "CONFLICT")
    assert new in problem["detail"], "one open redrive per job"


@pytest.mark.parametrize(
    ("payload", "code", "pointer"),
    [
        ({"language": 5}, "PAYLOAD_INVALID", "/payload/language"),
        (None, "ENVELOPE_INVALID", "/payload"),
        ([], "ENVELOPE_INVALID", "/payload"),
        ("x" * 20, "ENVELOPE_INVALID", "/payload"),
    ],
)
async def test_payload_is_checked_as_that_of_a_command(api: Any, payload: Any, code: str, pointer: str) -> None:
    old = await failed(api)
    api.assert_problem(await api.operate(old, "redrive", {"payload": payload}), 422, code, pointer)
    assert await api.count() == 1


@pytest.mark.parametrize("body", [b'{"payload": {"a": 1, "a": 2}}', b'{"payload": {"a": NaN}}', b'{"payload": {'])
async def test_payload_that_is_no_strict_json_is_refused(api: Any, body: bytes) -> None:
    old = await failed(api)
    api.assert_problem(await api.post_raw(body, f"/v1/jobs/{old}:redrive"), 400, "MALFORMED_JSON")


async def test_job_that_goes_on_or_succeeded_is_not_redriven(api: Any) -> None:
    job_id = await api.accepted()
    api.assert_problem(await api.operate(job_id, "redrive", {"payload": PAYLOAD}), 409, "CONFLICT")
    await api.work()
    api.assert_problem(await api.operate(job_id, "redrive", {"payload": PAYLOAD}), 409, "CONFLICT")


async def test_cancelled_job_whose_steps_all_succeeded_is_redriven_with_another_payload(api: Any) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    await api.operate(job_id, "cancel")
    await api.result(directive)
    assert (await api.operate(job_id, "redrive", {"payload": PAYLOAD})).status_code == 202
    assert (await api.work())["payload"] == PAYLOAD


async def test_limits_hold(open_api: Any) -> None:
    api = await open_api(max_inflight_per_tenant=1)
    old = await failed(api)
    await api.accepted()
    api.assert_problem(await api.operate(old, "redrive", {"payload": PAYLOAD}), 429, "TENANT_SATURATED")


async def test_key_is_good_for_one_payload(api: Any) -> None:
    old = await failed(api)
    headers = {"Idempotency-Key": "once"}

    async def redriven(payload: Any) -> Any:
        return await api.client.post(f"/v1/jobs/{old}:redrive", json={"payload": payload}, headers=headers)

    first = (await redriven(PAYLOAD)).json()
    again = (await redriven(PAYLOAD)).json()
    assert (again["jobId"], again["replayed"]) == (first["jobId"], True)
    api.assert_problem(await redriven({"language": "fr"}), 422, "IDEMPOTENCY_KEY_REUSED")
    assert await api.count() == 2

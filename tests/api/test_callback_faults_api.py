"""Callbacks that cannot be read or are too large, and batches in which good and bad travel together."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")


def body_of(directive: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {name: directive[name] for name in IDS} | fields


async def post_raw(api: Any, kind: str, directive: dict[str, Any], body: bytes) -> Any:
    headers = {"Lucius-Callback-Token": directive["callback_token"]}
    return await api.post_raw(body, f"/v1/callbacks/{kind}", **headers)


# --- Shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "pointer"),
    [
        ("ack", {"jobId": 17}, "/jobId"),
        ("ack", {"attempt_no": "1"}, "/attempt_no"),
        ("ack", {"attempt_no": 1.5}, "/attempt_no"),
        ("ack", {"status": "OK"}, "/status"),
        ("result", {"status": "DONE"}, "/status"),
        ("result", {"status": None}, "/status"),
        ("result", {"status": "FAILED", "failure_class": "BAD_LUCK"}, "/failure_class"),
        ("result", {"status": "FAILED", "failure_class": "RATE_LIMITED", "retry_after": -1}, "/retry_after"),
        ("result", {"status": "FAILED", "error": "broken"}, "/error"),
        ("result", {"status": "FAILED", "error": {"code": 5}}, "/error/code"),
        ("heartbeat", {"progress": 1.01}, "/progress"),
        ("heartbeat", {"progress": -0.01}, "/progress"),
        ("heartbeat", {"progress": "half"}, "/progress"),
        ("heartbeat", {"note": 3}, "/note"),
    ],
)
async def test_callback_of_another_shape_names_the_place(
    api: Any, kind: str, fields: dict[str, Any], pointer: str
) -> None:
    job_id = await api.accepted()
    directive = await api.take()
    api.assert_problem(await api.call_back(kind, directive, **fields), 422, "ENVELOPE_INVALID", pointer)
    assert (await api.job(job_id))["waiting_on"]["what"] == "ACK"


async def test_callback_without_its_ids_is_refused(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    for name in IDS:
        body = body_of(directive)
        del body[name]
        answer = await post_raw(api, "ack", directive, json.dumps(body).encode())
        problem = api.assert_problem(answer, 422, "ENVELOPE_INVALID")
        assert name in problem["detail"]


@pytest.mark.parametrize("kind", ["ack", "result", "heartbeat"])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"jobId": "\xff"}', b'{"jobId": "\\ud800x"}', b'{"x": NaN}', b'{"x": ' + b"[" * 50_000],
    ids=["empty", "cut off", "no UTF-8", "no UTF-8 inside", "surrogate", "NaN", "deep"],
)
async def test_callback_that_is_no_json_is_refused(api: Any, kind: str, body: bytes) -> None:
    api.assert_problem(await api.post_raw(body, f"/v1/callbacks/{kind}"), 400, "MALFORMED_JSON")


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"7"])
async def test_callback_that_is_no_object_is_refused(api: Any, body: bytes) -> None:
    api.assert_problem(await api.post_raw(body, "/v1/callbacks/ack"), 422, "ENVELOPE_INVALID")


async def test_callback_of_another_media_type_is_refused(api: Any) -> None:
    answer = await api.client.post("/v1/callbacks/ack", content=b"{}", headers={"Content-Type": "text/plain"})
    api.assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "artifacts",
    [b'"\xff\xfe"', b"1e999", b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", b"[" * 900 + b"]" * 900],
    ids=["no UTF-8", "no number", "41 levels", "900 levels"],
)
async def test_artifacts_that_the_next_service_could_not_read_are_refused(any_api: Any, artifacts: bytes) -> None:
    """They are handed on as they stand: one such result would spoil every pull that carries its successor."""
    api = any_api
    await api.accepted(api.envelope_of_three())
    directive = await api.take()
    body = json.dumps(body_of(directive, status="SUCCEEDED")).encode()
    answer = await post_raw(api, "result", directive, body[:-1] + b', "artifacts": ' + artifacts + b"}")
    api.assert_problem(answer, 400, "MALFORMED_JSON", "/artifacts")
    assert (await api.result(directive, artifacts={"ok": "[{" * 40})).json()["outcome"] == "APPLIED"
    assert (await api.take("embedding"))["previous"] == {"ocr": {"ok": "[{" * 40}}


async def test_large_artifacts_are_refused(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    answer = await api.result(directive, artifacts="x" * 65_536)
    api.assert_problem(answer, 413, "BODY_TOO_LARGE", "/artifacts")
    api.assert_problem(await api.result(directive, artifacts="x" * 300_000), 413, "BODY_TOO_LARGE")
    api.assert_problem(await api.result(directive, output_ref="x" * 65_536), 413, "BODY_TOO_LARGE", "/output_ref")
    assert (await api.result(directive, artifacts="x" * 65_534)).json()["outcome"] == "APPLIED"


# --- Batches ---------------------------------------------------------------------------------------------------------


async def call_back(api: Any, callbacks: list[Any]) -> list[dict[str, Any]]:
    answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": callbacks})
    assert answer.status_code == 200, answer.text
    outcomes: list[dict[str, Any]] = answer.json()["outcomes"]
    assert len(outcomes) == len(callbacks)
    return outcomes


async def test_batch_answers_good_and_bad_in_order(any_api: Any) -> None:
    api = any_api
    job_ids = [await api.accepted() for _ in range(2)]
    directives = await api.pull(max_=2)
    while len(directives) < 2:
        directives += await api.pull(max_=2)
    a, b = (body_of(one, callback_token=one["callback_token"]) for one in directives)
    outcomes = await call_back(
        api,
        [
            {"type": "ACK", **a},
            {"type": "RESULT", "status": "SUCCEEDED", **a},
            {"type": "ACK", **b, "callback_token": a["callback_token"]},
            {"type": "ACK", **b},
            {"type": "HEARTBEAT", "progress": 7, **b},
            {"type": "HEARTBEAT", "progress": 0.5, **b},
            {"type": "PING", **b},
            {"type": "RESULT", **b},
            "nothing",
            {"type": "RESULT", "status": "SUCCEEDED", "artifacts": "x" * 70_000, **b},
            {"type": "RESULT", "status": "SUCCEEDED", **b},
            {"type": "RESULT", "status": "SUCCEEDED", **b},
            {"type": "RESULT", "status": "FAILED", **b},
            {"type": "HEARTBEAT", **b},
        ],
    )
    assert [one.get("outcome", one.get("code")) for one in outcomes] == [
        "APPLIED", "APPLIED", "UNAUTHENTICATED", "APPLIED", "ENVELOPE_INVALID", "APPLIED", "ENVELOPE_INVALID",
        "ENVELOPE_INVALID", "ENVELOPE_INVALID", "BODY_TOO_LARGE", "APPLIED", "DUPLICATE", "LATE", "JOB_TERMINAL",
    ]  # fmt: skip
    assert [(await api.job(job_id))["status"] for job_id in job_ids] == ["SUCCEEDED"] * 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"callbacks": []}, 422, "ENVELOPE_INVALID"),
        ({"callbacks": [{}] * 501}, 422, "ENVELOPE_INVALID"),
        ({"callbacks": {}}, 422, "ENVELOPE_INVALID"),
        ({}, 422, "ENVELOPE_INVALID"),
        ([], 422, "ENVELOPE_INVALID"),
    ],
    ids=["empty", "501", "no list", "none", "list"],
)
async def test_batch_of_another_shape_is_refused_whole(api: Any, body: Any, status: int, code: str) -> None:
    api.assert_problem(await api.client.post("/v1/callbacks:batch", json=body), status, code)


async def test_batch_that_is_no_json_is_refused_whole(api: Any) -> None:
    for body in (b"", b"{", b'{"callbacks": [' + b"[" * 50_000, b'{"callbacks": [\xff]}'):
        api.assert_problem(await api.post_raw(body, "/v1/callbacks:batch"), 400, "MALFORMED_JSON")
    answer = await api.post_raw(b" " * 4_200_000, "/v1/callbacks:batch")
    api.assert_problem(answer, 413, "BODY_TOO_LARGE")


async def test_batch_may_hold_a_field_that_is_not_known_yet(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    ack = {"type": "ACK", **body_of(directive, callback_token=directive["callback_token"])}
    answer = await api.client.post("/v1/callbacks:batch", json={"callbacks": [ack], "sent_by": "a newer service"})
    assert answer.json() == {"outcomes": [{"outcome": "APPLIED", "cancel_requested": False}]}


# --- Pulling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"service": "fax"}, "/service"),
        ({"service": "ocr\x00"}, "/service"),
        ({"service": 5}, "/service"),
        ({"service": "ocr", "max": -1}, "/max"),
        ({"service": "ocr", "max": 257}, "/max"),
        ({"service": "ocr", "max": 10**30}, "/max"),
        ({"service": "ocr", "wait_seconds": -1}, "/wait_seconds"),
        ({"service": "ocr", "wait_seconds": 60.5}, "/wait_seconds"),
        ({"service": "ocr", "lane": 3}, ""),
    ],
)
async def test_pull_of_another_shape_is_refused(api: Any, body: dict[str, Any], pointer: str) -> None:
    api.assert_problem(await api.client.post("/v1/directives:pull", json=body), 422, "ENVELOPE_INVALID", pointer)


async def test_pull_waits_for_the_first_directive(api: Any) -> None:
    pulling = asyncio.create_task(api.pull(wait_seconds=20))
    await asyncio.sleep(0.05)
    assert not pulling.done()
    job_id = await api.accepted()
    assert [directive["jobId"] for directive in await pulling] == [job_id]


async def test_pulled_directive_is_locked_and_comes_again_if_nobody_acks(open_api: Any) -> None:
    api = await open_api(ack_timeout_seconds=30)
    await api.accepted()
    first = await api.take()
    assert await api.pull(wait_seconds=0) == []
    api.clock.shift_seconds = 10.1  # A third of the ack timeout.
    again = await api.take()
    assert again["lease_id"] == first["lease_id"]
    assert (await api.ack(first)).json()["outcome"] == "APPLIED"
    api.clock.shift_seconds = 25
    assert await api.pull(wait_seconds=0) == []


@pytest.mark.parametrize(
    ("output_ref", "status", "code", "pointer"),
    [
        ("ftp://files.example/out", 403, "REF_FORBIDDEN", "/output_ref"),
        ("https://elsewhere.example/out", 403, "REF_FORBIDDEN", "/output_ref"),
        ("https://user:hidden@files.example/out", 403, "REF_FORBIDDEN", "/output_ref"),
        ({"uri": "https://files.example/out?sig=abc"}, 403, "REF_FORBIDDEN", "/output_ref/uri"),
        ("https://files.example/../out", 422, "REF_INVALID", "/output_ref"),
        ({"path": "/out"}, 422, "REF_INVALID", "/output_ref/uri"),
        (["https://files.example/out"], 422, "REF_INVALID", "/output_ref"),
        ("", 422, "REF_INVALID", "/output_ref"),
    ],
)
async def test_output_ref_of_a_result_is_held_to_the_tenants_ref_policy(
    open_api: Any, registry_folder: Path, output_ref: Any, status: int, code: str, pointer: str
) -> None:
    policy = "id: acme\nrefs: {schemes: [https], hosts: [files.example, documents.example]}\n"
    (registry_folder / "tenants" / "acme.yaml").write_text(policy)
    api = await open_api(registry=str(registry_folder))
    job_id = await api.accepted()
    directive = await api.take()
    problem = api.assert_problem(await api.result(directive, output_ref=output_ref), status, code, pointer)
    assert "hidden" not in problem["detail"]
    assert (await api.job(job_id))["status"] == "IN_PROGRESS", "nothing was told to the engine"
    fields = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    item = {"type": "RESULT", "status": "SUCCEEDED", "callback_token": directive["callback_token"], **fields}
    batch = {"callbacks": [item | {"output_ref": output_ref}, item | {"output_ref": "https://files.example/out"}]}
    first, second = (await api.client.post("/v1/callbacks:batch", json=batch)).json()["outcomes"]
    assert (first["code"], second["outcome"]) == (code, "APPLIED")


async def test_output_ref_of_a_failure_and_none_at_all_are_not_looked_at(api: Any) -> None:
    await api.accepted()
    directive = await api.take()
    failed = await api.result(directive, "FAILED", failure_class="RETRYABLE", output_ref="ftp://nowhere.example/")
    assert failed.json()["outcome"] == "APPLIED", "it is not kept"
    again = await api.take()
    assert (await api.result(again, output_ref=None)).json()["outcome"] == "APPLIED"

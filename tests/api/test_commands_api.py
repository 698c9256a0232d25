"""Commands over HTTP: taken once, refused with every fault named, and nothing left behind by a refusal."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest


async def test_command_is_taken_with_its_address(api: Any) -> None:
    answer = await api.submit()
    assert answer.status_code == 202
    job_id = answer.json()["jobId"]
    assert answer.json() == {"jobId": job_id, "status": "IN_PROGRESS", "replayed": False}
    assert answer.headers["location"] == f"/v1/jobs/{job_id}"
    assert "idempotency-replayed" not in answer.headers
    assert (await api.client.get(answer.headers["location"])).json()["jobId"] == job_id


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_duplicate_gets_the_same_job(api: Any, key: str | None) -> None:
    envelope = api.envelope(**({"idempotency_key": key} if key else {}))
    first = await api.submit(envelope)
    again = await api.submit(envelope | {"tenant_id": " ACME "})
    assert again.status_code == 202
    assert again.json() == first.json() | {"replayed": True}
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert await api.count() == 1


async def test_duplicate_is_answered_whatever_the_job_became(api: Any) -> None:
    envelope = api.envelope()
    job_id = await api.accepted(envelope)
    await api.work()
    again = await api.submit(envelope)
    assert (again.json()["jobId"], again.json()["status"]) == (job_id, "SUCCEEDED")


async def test_equal_commands_at_the_same_moment_are_one_job(any_api: Any) -> None:
    envelope = any_api.envelope()
    answers = await asyncio.gather(*(any_api.submit(envelope) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert sum(not answer.json()["replayed"] for answer in answers) == 1
    assert await any_api.count() == 1


async def test_reused_key_is_refused(api: Any) -> None:
    job_id = await api.accepted(idempotency_key="k")
    answer = await api.submit(idempotency_key="k", output_ref="https://documents.example/other.json")
    problem = api.assert_problem(answer, 422, "IDEMPOTENCY_KEY_REUSED", "/idempotency_key")
    assert job_id in problem["detail"]
    assert (await api.submit(tenant_id="other", idempotency_key="k")).status_code == 202
    assert await api.count() == 2


FAULTS: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("no tenant", {"tenant_id": ...}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("empty tenant", {"tenant_id": "  "}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("tenant with a slash", {"tenant_id": "a/b"}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("tenant with NUL", {"tenant_id": "a\x00b"}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("tenant is a number", {"tenant_id": 17}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("long tenant", {"tenant_id": "t" * 129}, 422, "ENVELOPE_INVALID", "/tenant_id"),
    ("unknown type", {"request_type": "FAX"}, 422, "REQUEST_TYPE_UNKNOWN", "/request_type"),
    ("type is a list", {"request_type": ["OCR"]}, 422, "ENVELOPE_INVALID", "/request_type"),
    ("other major", {"schema_version": "2"}, 422, "SCHEMA_VERSION_UNSUPPORTED", "/schema_version"),
    ("version is a number", {"schema_version": 1}, 422, "ENVELOPE_INVALID", "/schema_version"),
    ("no input", {"input_ref": ...}, 422, "ENVELOPE_INVALID", "/input_ref"),
    ("relative input", {"input_ref": "a.pdf"}, 422, "REF_INVALID", "/input_ref"),
    ("input without uri", {"input_ref": {"size": 1}}, 422, "REF_INVALID", "/input_ref/uri"),
    ("forbidden scheme", {"output_ref": "ftp://a.example/b"}, 403, "REF_FORBIDDEN", "/output_ref"),
    ("password in a ref", {"input_ref": "https://u:p@a.example/b"}, 403, "REF_FORBIDDEN", "/input_ref"),
    ("signature in a ref", {"input_ref": "https://a.example/b?sig=c"}, 403, "REF_FORBIDDEN", "/input_ref"),
    ("payload is a list", {"payload": []}, 422, "ENVELOPE_INVALID", "/payload"),
    ("payload is null", {"payload": None}, 422, "ENVELOPE_INVALID", "/payload"),
    ("wrong parameter", {"payload": {"dpi": "high"}}, 422, "PAYLOAD_INVALID", "/payload/dpi"),
    ("unknown parameter", {"payload": {"colour": 1}}, 422, "PAYLOAD_INVALID", "/payload/colour"),
    ("missing parameter", {"request_type": "SIS", "payload": {}}, 422, "PAYLOAD_INVALID", "/payload/prompt_set"),
    ("unknown mode", {"mode": "FAST"}, 422, "ENVELOPE_INVALID", "/mode"),
    ("burst without document", {"mode": "BURST"}, 422, "DOC_ID_REQUIRED", "/doc_id"),
    ("control in doc_id", {"doc_id": "a\nb"}, 422, "ENVELOPE_INVALID", "/doc_id"),
    ("long key", {"idempotency_key": "k" * 257}, 422, "ENVELOPE_INVALID", "/idempotency_key"),
    ("foreign ack", {"callback_urls": {"ack": "https://x.example/"}}, 422, "ENVELOPE_INVALID", "/callback_urls/ack"),
    ("other callback", {"callback_urls": {"failed": "https://x.example/"}}, 422, "ENVELOPE_INVALID",
     "/callback_urls/failed"),
    ("bad correlation", {"correlation_id": "ü"}, 422, "ENVELOPE_INVALID", "/correlation_id"),
    ("bad trace", {"traceparent": "00-0-0-00"}, 422, "ENVELOPE_INVALID", "/traceparent"),
    ("too far ahead", {"not_before": "2999-01-01T00:00:00Z"}, 422, "ENVELOPE_INVALID", "/not_before"),
    ("no offset", {"not_before": "2026-01-01T00:00:00"}, 422, "ENVELOPE_INVALID", "/not_before"),
    ("unknown field", {"prio/rity": 1}, 422, "ENVELOPE_INVALID", "/prio~1rity"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "code", "pointer"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
async def test_faulty_envelope_is_refused_and_leaves_nothing(
    api: Any, fields: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    api.assert_problem(await api.submit(**fields), status, code, pointer)
    assert await api.count() == 0
    validated = await api.client.post("/v1/commands:validate", json=api.envelope(**fields))
    assert validated.json()["valid"] is False
    assert code in [fault["code"] for fault in validated.json()["errors"]]


async def test_refusal_names_every_fault_and_carries_the_gravest_code(api: Any) -> None:
    answer = await api.submit(tenant_id="", input_ref="ftp://a.example/b", payload=3, schema_version="9", colour=1)
    problem = api.assert_problem(answer, 403, "REF_FORBIDDEN")
    pointers = {fault["pointer"] for fault in problem["errors"]}
    assert pointers == {"/tenant_id", "/input_ref", "/payload", "/schema_version", "/colour"}


async def test_refusal_carries_the_callers_correlation_id(api: Any) -> None:
    answer = await api.client.post("/v1/commands", json={}, headers={"X-Correlation-Id": "mine-17"})
    assert answer.json()["correlation_id"] == "mine-17"


BODIES: list[tuple[str, bytes, int, str]] = [
    ("empty", b"", 400, "MALFORMED_JSON"),
    ("no JSON", b"tenant_id=acme", 400, "MALFORMED_JSON"),
    ("cut off", b'{"tenant_id": "acme"', 400, "MALFORMED_JSON"),
    ("two documents", b"{} {}", 400, "MALFORMED_JSON"),
    ("bad UTF-8", b'{"tenant_id": "\xff"}', 400, "MALFORMED_JSON"),
    ("byte order mark", b"\xef\xbb\xbf{}", 400, "MALFORMED_JSON"),
    ("duplicate keys", b'{"tenant_id": "a", "tenant_id": "b"}', 400, "MALFORMED_JSON"),
    ("duplicate keys inside", b'{"payload": {"a": 1, "\\u0061": 2}}', 400, "MALFORMED_JSON"),
    ("NaN", b'{"payload": NaN}', 400, "MALFORMED_JSON"),
    ("Infinity", b'{"payload": -Infinity}', 400, "MALFORMED_JSON"),
    ("too large a number", b'{"payload": 1e999}', 400, "MALFORMED_JSON"),
    ("beyond 64 bits", b'{"payload": 9223372036854775808}', 400, "MALFORMED_JSON"),
    ("lone surrogate", b'{"tenant_id": "\\ud800"}', 400, "MALFORMED_JSON"),
    ("33 levels", b'{"payload": ' + b"[" * 32 + b"]" * 32 + b"}", 400, "MALFORMED_JSON"),
    ("60,000 levels", b"[" * 60_000 + b"]" * 60_000, 400, "MALFORMED_JSON"),
    ("a list", b"[]", 422, "ENVELOPE_INVALID"),
    ("a string", b'"envelope"', 422, "ENVELOPE_INVALID"),
    ("null", b"null", 422, "ENVELOPE_INVALID"),
]


@pytest.mark.parametrize("path", ["/v1/commands", "/v1/commands:batch"])
@pytest.mark.parametrize(("body", "status", "code"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
async def test_body_that_could_be_read_two_ways_is_refused(
    api: Any, path: str, body: bytes, status: int, code: str
) -> None:
    if path.endswith(":batch") and body.startswith(b'{"payload": [['):
        body = body.replace(b"[" * 32, b"[" * 34).replace(b"]" * 32, b"]" * 34)  # A batch is two levels deeper.
    api.assert_problem(await api.post_raw(body, path), status, code)
    assert await api.count() == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
async def test_other_media_types_are_refused(api: Any, kind: str) -> None:
    answer = await api.client.post("/v1/commands", content=b"{}", headers={"Content-Type": kind})
    api.assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


async def test_media_type_may_have_parameters(api: Any) -> None:
    body = json.dumps(api.envelope()).encode()
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    answer = await api.client.post("/v1/commands", content=body, headers=headers)
    assert answer.status_code == 202


async def test_huge_body_is_refused_and_not_read_to_its_end(api: Any) -> None:
    sent = 0

    async def chunks() -> Any:
        nonlocal sent
        for _ in range(64):
            sent += 4_096
            yield b" " * 4_096

    answer = await api.client.post("/v1/commands", content=b" " * 200_000, headers={"Content-Type": "application/json"})
    api.assert_problem(answer, 413, "BODY_TOO_LARGE")
    answer = await api.client.post("/v1/commands", content=chunks(), headers={"Content-Type": "application/json"})
    api.assert_problem(answer, 413, "BODY_TOO_LARGE")
    assert sent <= 131_072 + 2 * 4_096, "a body of undeclared size is not read to its end"
    for declared in ("9" * 30, "9" * 5_000):
        answer = await api.post_raw(b"{}", **{"Content-Length": declared})
        api.assert_problem(answer, 413, "BODY_TOO_LARGE")
    assert await api.count() == 0


async def test_payload_that_no_directive_could_carry_is_refused(open_api: Any) -> None:
    api = await open_api(body_bytes_max=500_000)
    prompts = {"sis": {"prompt_set": ["x" * 8_000] * 20}}
    answer = await api.submit(api.envelope_of_three(payload=prompts))
    api.assert_problem(answer, 422, "PAYLOAD_INVALID", "/payload")


async def test_validate_says_what_would_become_of_a_command(api: Any) -> None:
    answer = await api.client.post("/v1/commands:validate", json=api.envelope_of_three(mode="BURST", doc_id="D1"))
    told = answer.json()
    assert answer.status_code == 200
    assert (told["valid"], told["protocol_id"], told["mode"], told["errors"]) == (
        True, "OCR_EMBEDDING_SIS", "BURST", [],
    )  # fmt: skip
    assert [step["stepId"] for step in told["steps"]] == ["ocr", "embedding", "sis"]
    job = await api.job(await api.accepted(api.envelope_of_three(mode="BURST", doc_id="D1")))
    assert (job["lane"], job["routing_key_used"]) == (told["lane"], "acmed1")
    assert await api.count() == 1


async def test_not_before_starts_later(api: Any) -> None:
    moment = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
    answer = await api.submit(not_before=moment)
    assert answer.json()["status"] == "QUEUED"
    assert await api.pull(wait_seconds=0) == []
    api.clock.shift_seconds = 2 * 86_400 + 1
    await api.work()
    assert (await api.job(answer.json()["jobId"]))["status"] == "SUCCEEDED"

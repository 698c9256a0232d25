"""Directives: what a platform service gets, held to the published schema."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.callbacks import CallbackIds, CallbackKey, TokenSigner
from lucius.domain.decide import decide
from lucius.domain.directive import CallbackUrls, build_directive, message_id
from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.domain.routing import Mode
from lucius.testing.ledger_driver import result
from lucius.testing.samples import START, ManualClock, accepted

SIGNER = TokenSigner((CallbackKey("k1", b"secret"),))
URLS = CallbackUrls.under("http://127.0.0.1:8000/")


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    text = files("lucius.domain.schemas").joinpath("directive.json").read_text(encoding="utf-8")
    return jsonschema_rs.Draft202012Validator(json.loads(text))


def job_at(step_index: int, **wishes: Any) -> Job:
    clock = ManualClock()
    job = decide(None, accepted(clock, **wishes), START, clock).job
    for place in range(step_index):
        artifacts = Raw(json.dumps({"of": place, "text": "ä"}).encode())
        job = decide(job, result(job, artifacts=artifacts), START, clock).job
    return job


def directive_of(job: Job, traceparent: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    body, properties = build_directive(job, job.current_index, START, SIGNER, URLS, traceparent)
    return json.loads(body), properties


@pytest.mark.parametrize("step_index", [0, 1, 2])
def test_directive_meets_the_published_schema(validator: jsonschema_rs.Draft202012Validator, step_index: int) -> None:
    for wishes in ({}, {"mode": Mode.BURST, "doc_id": "doc-42"}, {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}):
        body, _ = directive_of(job_at(step_index, **wishes))
        validator.validate(body)


def test_schema_refuses_a_directive_that_lacks_anything(validator: jsonschema_rs.Draft202012Validator) -> None:
    body, _ = directive_of(job_at(0))
    for name in set(body) - {"traceparent"}:
        assert not validator.is_valid({key: value for key, value in body.items() if key != name}), name


def test_directive_says_everything_a_service_needs() -> None:
    job = job_at(1)
    body, _ = directive_of(job)
    attempt = job.current_step.attempt
    assert attempt is not None
    assert body["type"] == "DIRECTIVE"
    assert (body["jobId"], body["stepId"], body["tenant_id"]) == (job.job_id, "embedding", "acme")
    assert (body["attempt_no"], body["lease_id"]) == (1, attempt.lease_id)
    assert (body["service"], body["step_type"], body["protocol_id"]) == ("embedding", "EMBEDDING", "OCR_EMBEDDING_SIS")
    assert body["ack_by"] == "2026-05-28T20:27:10.000Z"
    assert body["lease_seconds"] == Policy().lease_seconds
    assert body["input_ref"] == "blob://in/contract.pdf"
    assert body["output_ref"] == {"uri": "blob://out/answer.json"}
    assert body["workspace_ref"].endswith("/embedding/1/")
    assert body["payload"] == {"pages": "1-2"}
    assert body["previous"] == {"ocr": {"of": 0, "text": "ä"}}
    assert body["callback_urls"]["ack"] == "http://127.0.0.1:8000/v1/callbacks/ack"
    assert (body["mode"], body["lane"], body["routing_key_used"]) == ("DEFAULT", 14, "acme")
    assert body["correlation_id"] == job.spec.correlation_id


def test_directive_hands_on_null_for_a_step_without_artifacts() -> None:
    clock = ManualClock()
    job = decide(None, accepted(clock), START, clock).job
    silent = replace(result(job), artifacts=Raw(b"null"))
    body, _ = directive_of(decide(job, silent, START, clock).job)
    assert body["previous"] == {"ocr": None}


def test_directive_carries_a_token_for_exactly_this_attempt() -> None:
    job = job_at(0)
    body, _ = directive_of(job)
    ids = CallbackIds(body["tenant_id"], body["jobId"], body["stepId"], body["attempt_no"], body["lease_id"])
    assert SIGNER.verifies(body["callback_token"], ids, START)
    assert not SIGNER.verifies(body["callback_token"], replace(ids, attempt_no=2), START)


def test_directive_joins_the_trace_it_is_given() -> None:
    job = job_at(0, traceparent="the caller's")
    assert directive_of(job)[0]["traceparent"] == "the caller's"
    assert directive_of(job, "a span of ours")[0]["traceparent"] == "a span of ours"


def test_properties_are_those_of_the_specification() -> None:
    job = job_at(0, mode=Mode.BURST, doc_id="doc-42")
    body, properties = directive_of(job)
    assert properties == {
        "mode": "BURST",
        "lane": 8,
        "tenant_id": "acme",
        "jobId": job.job_id,
        "stepId": "ocr",
        "attempt_no": 1,
        "lease_id": body["lease_id"],
        "service": "ocr",
        "message_key": "acmedoc-42",
    }
    assert all(isinstance(value, str | int) for value in properties.values())


def test_message_id_names_job_step_and_attempt() -> None:
    assert message_id("j", "ocr", 3) == "j:ocr:3"


def test_directive_of_a_step_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="no attempt"):
        build_directive(job_at(0), 2, START, SIGNER, URLS)

"""Jobs that failed for the same reason have the same signature."""

from __future__ import annotations

import pytest

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import Job
from lucius.domain.signature import MESSAGE_CHARACTERS_MAX, error_signature, normal_message, protocol_and_step
from lucius.testing.samples import ManualClock, accepted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("page 3 of 17 is blank", "page 12 of 40 is blank"),
        ("cannot read https://a.example/x.pdf", "cannot read s3://bucket/y"),
        ("job 019e7044-8800-7000-8001-000000000001 is gone", "job 019e7044-8800-7000-8001-00000000000a is gone"),
        ("hash 9f86d081884c7d65 differs", "hash 60303ae22b998861 differs"),
        ("no column 'Site'", 'no column "City"'),
        ("timed out  after 3.5 s\nat 12:00:01", "timed out after 30 s at 23:59:59"),
    ],
)
def test_what_differs_from_job_to_job_is_left_out(one: str, other: str) -> None:
    assert normal_message(one) == normal_message(other)
    assert "*" in normal_message(one)


def test_different_reasons_stay_different() -> None:
    texts = ["the page is blank", "the page is upside down", "the face of a decade", ""]
    assert len({normal_message(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", ["x" * 10_000, "'" * 10_000, "1" * 10_000, "a://" * 5_000, "0-" * 5_000])
def test_long_messages_are_cut(text: str) -> None:
    assert len(normal_message(text)) <= MESSAGE_CHARACTERS_MAX


def failed(message: str, code: str = "BROKEN", step: int = 0) -> Job:
    clock = ManualClock()
    job = decide(None, accepted(clock), clock.now(), clock).job
    for index in range(step + 1):
        attempt = job.current_step.attempt
        assert attempt is not None
        ids = (job.current_step.spec.step_id, attempt.attempt_no, attempt.lease_id)
        job = decide(job, Acked(*ids, acked_by="one"), clock.now(), clock).job
        verdict = Verdict.FAILED if index == step else Verdict.SUCCEEDED
        error = Failure(code, message) if index == step else None
        job = decide(job, Resulted(*ids, verdict=verdict, retryable=False, error=error), clock.now(), clock).job
    return job


def test_signature_names_protocol_step_code_and_message() -> None:
    assert error_signature(failed("page 3 is blank")) == "OCR_EMBEDDING_SIS/1/ocr/BROKEN: page * is blank"
    assert error_signature(failed("no", "BUSY", step=1)) == "OCR_EMBEDDING_SIS/1/embedding/BUSY: no"


def test_signature_gives_its_protocol_and_step_back() -> None:
    assert protocol_and_step(error_signature(failed("no: a/b/c", "BUSY", step=1))) == ("OCR_EMBEDDING_SIS", "embedding")
    assert protocol_and_step(None) == protocol_and_step("a/b") == ("", "")


def test_only_failed_jobs_have_one() -> None:
    clock = ManualClock()
    assert error_signature(decide(None, accepted(clock), clock.now(), clock).job) is None

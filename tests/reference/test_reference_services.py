"""The reference services as plain functions: what they read, what they make of it, how they fail."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from lucius.reference import embedding, ocr, sis
from lucius.reference.attempt import Attempt, StopReason
from lucius.reference.directive import Directive
from lucius.reference.failure import StepFailed, WorkStopped, classified
from lucius.reference.files import Workspace, path_of, publish
from lucius.reference.vectors import vector

Make = Callable[..., Directive]

SAMPLES = Path(str(resources.files("lucius.reference"))) / "samples"
CONTRACT = SAMPLES / "contract.pdf"
MINUTES = SAMPLES / "minutes.txt"


def quiet(progress: float, note: str) -> None:
    assert 0 <= progress <= 1
    assert note


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def directive(service: str, input_ref: Any, payload: dict[str, Any] | None = None, **fields: Any) -> Directive:
        message = {
            "type": "DIRECTIVE",
            "jobId": "job-1",
            "tenant_id": "demo",
            "stepId": service,
            "step_type": service.upper(),
            "service": service,
            "attempt_no": 1,
            "lease_id": "lease-1",
            "lease_seconds": 900,
            "callback_token": "token",
            "workspace_ref": f"{(tmp_path / 'workspace').as_uri()}/demo/job-1/{service.upper()}/1/",
            "input_ref": input_ref.as_uri() if isinstance(input_ref, Path) else input_ref,
            "output_ref": (tmp_path / "out" / "result").as_uri(),
            "payload": payload or {},
            "previous": {},
            "a_field_of_tomorrow": True,
        }
        return Directive.read({**message, **fields})

    return directive


def worked(service: Any, directive: Directive) -> Any:
    return service.run(directive, Workspace(directive.workspace_ref), quiet)


def failure_of(service: Any, directive: Directive) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        worked(service, directive)
    return caught.value


def test_ocr_reads_the_text_of_a_pdf_page_by_page(make: Make) -> None:
    outcome = worked(ocr, make("ocr", CONTRACT, {"language": "en", "dpi": 300}))
    text = outcome.result.read_text("utf-8")
    assert outcome.result.as_posix().endswith("/OCR/1/ocr/output.txt")
    assert outcome.artifacts == {"text_ref": outcome.result.as_uri(), "characters": len(text), "pages": 2}
    first, second = text.split("\f")
    assert "notice period of ninety days" in first
    assert "18,400 euros" in second


@pytest.mark.parametrize(
    ("pages", "count"), [("1", 1), ("1-2", 2), ("2-99", 1), ([2], 1), ([1, 2, 2], 2), ("1, 2", 2), (2, 1), (None, 2)]
)
def test_ocr_reads_only_the_pages_asked_for(make: Make, pages: Any, count: int) -> None:
    assert worked(ocr, make("ocr", CONTRACT, {"pages": pages})).artifacts["pages"] == count


@pytest.mark.parametrize("pages", ["", "0", "3-1", "a", "1-", "-1", [], [0], [True], {"from": 1}, [None], "9" * 20])
def test_ocr_refuses_pages_that_are_none(make: Make, pages: Any) -> None:
    assert failure_of(ocr, make("ocr", CONTRACT, {"pages": pages})).code == "PAYLOAD_INVALID"


def test_ocr_refuses_a_range_that_meets_no_page(make: Make) -> None:
    assert failure_of(ocr, make("ocr", CONTRACT, {"pages": "7-9"})).code == "PAGES_OUT_OF_RANGE"


def test_ocr_reads_text_files_in_utf8_and_utf16(make: Make, tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "text").write_bytes("Größe\r\nzwei\ffertig".encode(encoding))
        outcome = worked(ocr, make("ocr", {"uri": (tmp_path / "text").as_uri(), "etag": "7"}))
        assert outcome.result.read_text("utf-8") == "Größe\nzwei\ffertig"
        assert outcome.artifacts["pages"] == 2


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"%PDF-1.7\nthis is no PDF at all", "INPUT_UNDECODABLE"),
        (CONTRACT.read_bytes()[:700], "INPUT_UNDECODABLE"),
        (b"\xff\xd8\xff\xe0 a picture", "INPUT_UNDECODABLE"),
        (b"\x00\x01\x02", "INPUT_UNDECODABLE"),
        (b"", "NO_TEXT"),
        (b" \n\f ", "NO_TEXT"),
    ],
)
def test_ocr_fails_for_good_on_content_it_cannot_read(make: Make, tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "input").write_bytes(content)
    failure = failure_of(ocr, make("ocr", tmp_path / "input"))
    assert (failure.code, failure.failure_class) == (code, "NON_RETRYABLE")


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("file:///nowhere/at/all.pdf", "INPUT_NOT_FOUND"),
        ("https://example.com/contract.pdf", "REF_SCHEME_UNSUPPORTED"),
        ("s3://bucket/contract.pdf", "REF_SCHEME_UNSUPPORTED"),
        ("contract.pdf", "REF_SCHEME_UNSUPPORTED"),
        ("file://server/share/contract.pdf", "REF_INVALID"),
        ("file:///tmp/a?version=2", "REF_INVALID"),
        ("file:///tmp/%00", "REF_INVALID"),
        ("file:///tmp", "INPUT_NOT_A_FILE"),
        ("file:///tmp/../etc/hostname", "PATH_FORBIDDEN"),
        ("file:///tmp/%2e%2e/etc/hostname", "PATH_FORBIDDEN"),
        ("file:///tmp/..%2fetc/hostname", "PATH_FORBIDDEN"),
        ({"name": "no uri"}, "REF_INVALID"),
        (7, "REF_INVALID"),
        ("", "REF_INVALID"),
    ],
)
def test_an_input_ref_that_cannot_be_read_fails_for_good(make: Make, ref: Any, code: str) -> None:
    failure = failure_of(ocr, make("ocr", ref))
    assert (failure.code, failure.failure_class) == (code, "NON_RETRYABLE")


def test_errors_are_classified_by_whether_trying_again_can_help() -> None:
    assert classified(OSError(28, "No space left on device")).failure_class == "RETRYABLE"
    assert classified(RuntimeError("a defect")).code == "SERVICE_DEFECT"
    assert classified(StepFailed("NO_TEXT", "none")).failure_class == "NON_RETRYABLE"


def test_embedding_makes_the_same_vectors_in_every_process(make: Make) -> None:
    code = "from lucius.reference.vectors import vector; print(vector('the notice period is ninety days'))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{vector('the notice period is ninety days')}\n"}
    one, two = (worked(embedding, make("embedding", MINUTES)).result.read_bytes() for _ in range(2))
    assert one == two


def test_embedding_reads_what_ocr_left_before_the_input(make: Make) -> None:
    text_ref = worked(ocr, make("ocr", CONTRACT, {"pages": "2"})).artifacts["text_ref"]
    directive = make("embedding", "https://example.com/unread", previous={"ocr": {"text_ref": text_ref}})
    outcome = worked(embedding, directive)
    document = json.loads(outcome.result.read_text("utf-8"))
    assert outcome.artifacts["chunks"] == len(document["chunks"]) == 1
    assert (outcome.artifacts["dimensions"], outcome.artifacts["model"]) == (256, "lucius-hash-256")
    for chunk in document["chunks"]:
        assert math.isclose(math.hypot(*chunk["vector"]), 1.0, abs_tol=1e-3)
        assert len(chunk["vector"]) == 256


@pytest.mark.parametrize(
    "payload",
    [
        {"chunk_size": 0},
        {"chunk_size": "big"},
        {"chunk_size": True},
        {"chunk_overlap": -1},
        {"chunk_size": 100, "chunk_overlap": 90},
    ],
)
def test_embedding_refuses_chunks_that_cannot_be_made(make: Make, payload: dict[str, Any]) -> None:
    assert failure_of(embedding, make("embedding", MINUTES, payload)).code == "PAYLOAD_INVALID"


def test_embedding_refuses_a_model_it_does_not_have(make: Make) -> None:
    assert failure_of(embedding, make("embedding", MINUTES, {"model": "enormous"})).code == "MODEL_UNKNOWN"


def run_sample(make: Make) -> tuple[list[Any], Path]:
    """The packaged command through all three services; each publishes, as the worker has them do."""
    command = json.loads((SAMPLES / "ocr_embedding_sis.json").read_bytes())
    previous: dict[str, Any] = {}
    for service in (ocr, embedding, sis):
        name = service.__name__.rpartition(".")[2]
        directive = make(name, CONTRACT, command["payload"][name], previous=dict(previous))
        outcome = worked(service, directive)
        assert publish(directive.output_ref, outcome.result)
        previous[name] = outcome.artifacts
        assert len(json.dumps(outcome.artifacts)) < 65_536
    return previous["sis"]["answers"], path_of(directive.output_ref, "output_ref")


def test_the_sample_job_answers_its_questions(make: Make) -> None:
    answers, published = run_sample(make)
    notice, repair, fee = answers
    assert "ninety days" in notice["answer"]
    assert notice["page"] == 1
    assert "within six hours" in repair["answer"]
    assert "18,400 euros" in fee["answer"]
    assert fee["page"] == 2
    assert all(0.5 < one["score"] <= 1 for one in answers)
    # The last step's result is what stays at output_ref.
    assert json.loads(published.read_bytes())["answers"] == answers


def test_sis_answers_from_text_alone_and_writes_text_when_asked(make: Make) -> None:
    prompts = ["When is the west pier closed for repairs?", "Who invented the telescope?"]
    outcome = worked(sis, make("sis", MINUTES, {"prompt_set": prompts, "output": "text"}))
    text = outcome.result.read_text("utf-8")
    assert outcome.artifacts["result_ref"].endswith("/sis/result.txt")
    assert "from 2 to 9 June" in text
    assert "Nothing about this was found" in text
    assert json.loads(outcome.result.with_name("result.json").read_bytes())["answers"][1]["answer"] == ""


@pytest.mark.parametrize(
    "payload",
    [{}, {"prompt_set": []}, {"prompt_set": [1]}, {"prompt_set": [" "]}, {"prompt_set": ["a"], "output": "x"}],
)
def test_sis_refuses_a_payload_without_prompts(make: Make, payload: dict[str, Any]) -> None:
    assert failure_of(sis, make("sis", MINUTES, payload)).code == "PAYLOAD_INVALID"


def test_sis_refuses_vectors_that_are_not_ours(make: Make, tmp_path: Path) -> None:
    for content in ("[]", '{"chunks": [{"index": 0, "page": 1, "text": "a", "vector": [1]}]}', "not json"):
        (tmp_path / "v.json").write_text(content)
        previous = {"embedding": {"vectors_ref": (tmp_path / "v.json").as_uri()}}
        failure = failure_of(sis, make("sis", MINUTES, {"prompt_set": ["a"]}, previous=previous))
        assert failure.code == "VECTORS_INVALID"


def test_short_answers_fit_the_artifacts_however_many_there_are() -> None:
    answers = [sis.Answer("ü" * 5_000, "€" * 5_000, 0.5, 1, 1)] * 500
    assert len(json.dumps(sis.shortened(answers))) < 60_000


def test_an_attempt_that_is_stale_publishes_nothing(make: Make) -> None:
    attempt = Attempt(make("ocr", CONTRACT))

    def overtaken(directive: Directive, workspace: Workspace, report: Any) -> Any:
        outcome = ocr.run(directive, workspace, report)
        attempt.stop(StopReason.STALE)
        return outcome

    assert attempt.work(overtaken) is None
    assert not path_of(attempt.directive.output_ref, "output_ref").exists()


def test_an_attempt_reports_a_failure_as_a_result(make: Make) -> None:
    body = Attempt(make("ocr", "file:///nowhere/at/all.pdf")).work(ocr.run)
    assert body is not None
    assert (body["status"], body["failure_class"]) == ("FAILED", "NON_RETRYABLE")
    assert body["error"]["code"] == "INPUT_NOT_FOUND"


def test_work_is_stopped_at_its_next_report(make: Make) -> None:
    attempt = Attempt(make("ocr", CONTRACT))
    attempt.stop(StopReason.CANCELLED)
    with pytest.raises(WorkStopped):
        attempt.report(0.5, "page 2")
    body = attempt.work(ocr.run)
    assert body is not None
    assert body["error"]["code"] == "CANCELLED"

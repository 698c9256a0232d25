"""SIS: the sample's answers, the vectors that it takes, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.reference.conftest import begin

from lucius.platform import Directive, NonRetryable, Result, rehearse
from lucius.reference import embedding, ocr, sis
from lucius.reference.answers import FoundAnswer, shortened

Make = Callable[..., Directive]

SAMPLES = Path(str(resources.files("lucius.reference"))) / "samples"
CONTRACT = SAMPLES / "contract.pdf"
MINUTES = SAMPLES / "minutes.txt"


def answer(directive: Directive) -> Result:
    attempt = begin(directive)
    return sis.answer_prompts(directive, attempt.workspace(), attempt)


def failure_of(directive: Directive) -> NonRetryable:
    with pytest.raises(NonRetryable) as caught:
        answer(directive)
    return caught.value


def test_the_sample_job_answers_its_questions(tmp_path: Path) -> None:
    payload = json.loads((SAMPLES / "ocr_embedding_sis.json").read_bytes())["payload"]
    previous: dict[str, Any] = {}
    for service in (ocr.service, embedding.service, sis.service):
        name = service.name
        done = rehearse(service, name.upper(), tmp_path, input=CONTRACT, payload=payload[name], previous=dict(previous))
        assert done.result["status"] == "SUCCEEDED"
        previous[name] = done.result["artifacts"]
        assert len(json.dumps(previous[name])) < 65_536
    answers = previous["sis"]["answers"]
    notice, repair, fee = answers
    assert notice["answer"] == "Either party may end it with a notice period of ninety days, in writing."
    assert (notice["page"], notice["pages"]) == (1, [1])
    assert "within six hours" in repair["answer"]
    assert "18,400 euros" in fee["answer"]
    assert fee["page"] == 2
    assert all(0.5 < one["score"] <= 1 for one in answers)
    published = json.loads(done.output.read_bytes())
    assert published == {"model": "lucius-extractive", "answers": answers}


def test_sis_answers_from_text_alone_and_writes_text_when_asked(make: Make) -> None:
    prompts = ["When is the west pier closed for repairs?", "Who invented the telescope?"]
    result = answer(make("sis", MINUTES, {"prompt_set": prompts, "output": "text"}))
    assert result.output is not None
    text = result.output.read_text("utf-8")
    assert result.artifacts["result_ref"].endswith("/sis/result.txt")
    assert "from 2 to 9 June" in text
    assert "Nothing about this was found" in text
    nothing = json.loads(result.output.with_name("result.json").read_bytes())["answers"][1]
    assert (nothing["answer"], nothing["chunk"], nothing["page"], nothing["pages"]) == ("", -1, 0, [])


@pytest.mark.parametrize("model", ["lucius-hash-256", "wordllama-256"])
def test_prompts_are_embedded_with_the_model_of_the_vectors(make: Make, model: str) -> None:
    directive = make("embedding", CONTRACT, {"model": model, "chunk_size": 300})
    attempt = begin(directive)
    made = embedding.embed_text(directive, attempt.workspace(), attempt)
    question = {"prompt_set": ["What is the notice period for ending the agreement?"]}
    for given in (
        make("sis", CONTRACT, question, previous={"embedding": dict(made.artifacts)}),
        make("sis", made.output, question),
        make("sis", {"uri": made.artifacts["vectors_ref"]}, question),
    ):
        result = answer(given)
        assert "ninety days" in result.artifacts["answers"][0]["answer"]
        assert result.artifacts["model"] == "lucius-extractive"


@pytest.mark.parametrize(
    "payload",
    [{}, {"prompt_set": []}, {"prompt_set": [1]}, {"prompt_set": [" "]}, {"prompt_set": ["a"], "output": "x"}],
)
def test_sis_refuses_a_payload_without_prompts(make: Make, payload: dict[str, Any]) -> None:
    assert failure_of(make("sis", MINUTES, payload)).code == "PAYLOAD_INVALID"


def test_sis_refuses_a_model_it_does_not_have(make: Make) -> None:
    failure = failure_of(make("sis", MINUTES, {"prompt_set": ["a"], "model": "gpt-enormous"}))
    assert failure.code == "MODEL_UNKNOWN"
    assert "lucius-extractive" in failure.message


CHUNK = {"index": 0, "page": 1, "text": "a", "vector": [1.0]}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[]", "VECTORS_INVALID"),
        ("not json", "VECTORS_INVALID"),
        ("[" * 100_000, "VECTORS_INVALID"),
        (json.dumps({"model": "lucius-hash-256", "chunks": []}), "VECTORS_INVALID"),
        (json.dumps({"chunks": [CHUNK]}), "VECTORS_INVALID"),
        (json.dumps({"model": 7, "chunks": [CHUNK]}), "VECTORS_INVALID"),
        (json.dumps({"model": "lucius-hash-256", "chunks": [CHUNK]}), "VECTORS_INVALID"),
        (json.dumps({"model": "lucius-hash-256", "chunks": [CHUNK, {**CHUNK, "vector": [1, 2]}]}), "VECTORS_INVALID"),
        (json.dumps({"model": "lucius-hash-256", "chunks": [{**CHUNK, "vector": "x"}]}), "VECTORS_INVALID"),
        (json.dumps({"model": "of-another-house", "chunks": [CHUNK]}), "MODEL_UNKNOWN"),
    ],
)
def test_sis_refuses_vectors_that_are_not_ours(make: Make, tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "v.json").write_text(content)
    previous = {"embedding": {"vectors_ref": (tmp_path / "v.json").as_uri()}}
    assert failure_of(make("sis", MINUTES, {"prompt_set": ["a"]}, previous=previous)).code == code


def test_short_answers_fit_the_artifacts_however_many_there_are() -> None:
    answers = [FoundAnswer("ü" * 5_000, "€" * 5_000, 0.5, 1, 1, list(range(500)))] * 500
    short = shortened(answers)
    assert short
    assert len(json.dumps(short)) < 60_000

"""EMBEDDING with the models that run here: the built-in one and wordllama, really loaded."""

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
from tests.reference.conftest import begin

from lucius.platform import Directive, NonRetryable, Result, Retryable
from lucius.reference import embedding, models, ocr
from lucius.reference.vectors import cosine, vector

Make = Callable[..., Directive]

SAMPLES = Path(str(resources.files("lucius.reference"))) / "samples"
MINUTES = SAMPLES / "minutes.txt"


def embed(directive: Directive) -> Result:
    attempt = begin(directive)
    return embedding.embed_text(directive, attempt.workspace(), attempt)


def document_of(result: Result) -> dict[str, Any]:
    assert result.output is not None
    return json.loads(result.output.read_text("utf-8"))  # type: ignore[no-any-return]


def failure_of(directive: Directive) -> NonRetryable:
    with pytest.raises(NonRetryable) as caught:
        embed(directive)
    return caught.value


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
    assert document_of(embed(make("embedding", MINUTES))) == document_of(embed(make("embedding", MINUTES)))


def test_embedding_reads_what_ocr_left_before_the_input(make: Make) -> None:
    reading = make("ocr", SAMPLES / "contract.pdf", {"pages": "2"})
    attempt = begin(reading)
    text_ref = ocr.read_document(reading, attempt.workspace(), attempt).artifacts["text_ref"]
    result = embed(make("embedding", "https://example.com/unread", previous={"ocr": {"text_ref": text_ref}}))
    document = document_of(result)
    assert result.artifacts["chunks"] == len(document["chunks"]) == 1
    assert (document["dimensions"], document["model"]) == (256, "lucius-hash-256")
    assert (result.artifacts["dimensions"], result.artifacts["model"]) == (256, "lucius-hash-256")
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
    assert failure_of(make("embedding", MINUTES, payload)).code == "PAYLOAD_INVALID"


def test_embedding_refuses_a_model_it_does_not_have(make: Make) -> None:
    failure = failure_of(make("embedding", MINUTES, {"model": "enormous"}))
    assert failure.code == "MODEL_UNKNOWN"
    assert "lucius-hash-256, wordllama-256" in failure.message


def test_wordllama_makes_vectors_of_length_one_that_know_meaning(make: Make) -> None:
    result = embed(make("embedding", MINUTES, {"model": "wordllama-256", "chunk_size": 100}))
    document = document_of(result)
    assert (document["model"], document["dimensions"]) == ("wordllama-256", 256)
    assert len(document["chunks"]) > 2
    assert all(math.isclose(math.hypot(*one["vector"]), 1.0, abs_tol=1e-3) for one in document["chunks"])
    attempt = begin(make("embedding", MINUTES))
    physician, doctor, harbour = models.embedding_model("wordllama-256").embed(
        ["The physician is ill.", "A doctor is sick.", "Ships leave the harbour."], attempt
    )
    assert cosine(physician, doctor) > cosine(physician, harbour) + 0.2


def test_wordllama_without_its_library_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models._wordllama, "_loaded", None)
    monkeypatch.setitem(sys.modules, "wordllama", None)
    failure = failure_of(make("embedding", MINUTES, {"model": "wordllama-256"}))
    assert failure.code == "MODEL_NOT_INSTALLED"
    assert "pip install '.[embedding]' in a clone of LUCIUS" in failure.message


def test_vectors_that_the_next_step_could_not_read_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "NUMBERS_MAX", 256)
    assert failure_of(make("embedding", MINUTES, {"chunk_size": 100})).code == "VECTORS_TOO_LARGE"
    monkeypatch.undo()
    monkeypatch.setattr(embedding, "READ_BYTES_MAX", 500)
    assert failure_of(make("embedding", MINUTES)).code == "VECTORS_TOO_LARGE"
    monkeypatch.setattr(embedding, "CHUNKS_MAX", 1)
    assert failure_of(make("embedding", MINUTES, {"chunk_size": 100})).code == "TOO_MANY_CHUNKS"


def test_vectors_of_different_lengths_are_no_result() -> None:
    with pytest.raises(Retryable, match="VECTORS_UNEQUAL"):
        embedding.check_dimensions(2, [{"vector": [1.0]}, {"vector": [1.0, 0.0]}])


def test_texts_travel_in_batches_of_bounded_size() -> None:
    made = models.batches(["a" * 30_000] * 4 + ["b"] * 100 + ["c" * 200_000, "d"])
    assert [len(one) for one in made] == [3, 64, 37, 1, 1]
    assert models.batches([]) == []


def test_a_vector_without_direction_is_all_zero() -> None:
    assert models.normalised([0.0, 0.0]) == [0.0, 0.0]
    assert models.normalised([1e300, 1e300]) == [0.707107, 0.707107]
    assert models.normalised([3, 4]) == [0.6, 0.8]


@pytest.mark.parametrize("value", [[], [True], ["1"], [math.nan], [math.inf], {"0": 1}, None, [0.0] * 8_193])
def test_what_is_no_vector_is_told_apart(value: Any) -> None:
    assert not models.is_vector(value)
    assert models.is_vector([1, 0.5])

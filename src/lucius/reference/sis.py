"""SIS: answers to a set of prompts over a document.

For each prompt, the nearest chunks by cosine are selected, with the model that made their vectors. By default the
answer consists of sentences from those chunks; with an endpoint a chat model answers from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Any

from lucius.platform import Attempt, Directive, NonRetryable, PlatformService, Result, ServiceUnusable, Workspace
from lucius.platform.refs import ref_uri
from lucius.reference.answers import Answerer, Piece, as_text, shortened
from lucius.reference.chat import ChatAnswerer
from lucius.reference.embedding import chunking, embedded, source_pages
from lucius.reference.endpoint import Endpoint, read_endpoint
from lucius.reference.extractive import MODEL as EXTRACTIVE
from lucius.reference.extractive import ExtractiveAnswerer
from lucius.reference.models import EmbeddingModel, Vector, embedding_model, is_vector
from lucius.reference.vectors import cosine

PREFIX = "LUCIUS_SIS"
PROMPTS_MAX = 500
PROMPT_CHARACTERS_MAX = 8_000
CHUNKS_PER_PROMPT_MAX = 5

service = PlatformService("sis")


@service.step("SIS")
def answer_prompts(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
    workspace.check_output()
    prompts, form = _asked(directive.payload)
    endpoint = answering_endpoint(directive.payload.get("model"))
    model, pieces = _source(directive, workspace, attempt)
    answerer: Answerer = (
        ChatAnswerer(endpoint, form) if endpoint else ExtractiveAnswerer([piece.text for piece in pieces])
    )
    answers = []
    for done, (prompt, asked) in enumerate(zip(prompts, _vectors(prompts, model, pieces, attempt), strict=True)):
        attempt.report(done / len(prompts), f"prompt {done + 1} of {len(prompts)}")
        answers.append(answerer.answer(prompt, nearest(asked, pieces), attempt))
    path = workspace.write_json(
        "sis/result.json", {"model": answerer.name, "answers": [answer._asdict() for answer in answers]}
    )
    if form == "text":
        path = workspace.write("sis/result.txt", as_text(answers))
    artifacts = {
        "result_ref": path.as_uri(),
        "answers": shortened(answers),
        "prompts": len(prompts),
        "model": answerer.name,
    }
    return Result(artifacts, output=path)


def nearest(asked: Vector, pieces: Sequence[Piece]) -> list[tuple[float, Piece]]:
    scored = ((cosine(asked, piece.vector), piece) for piece in pieces)
    return nsmallest(CHUNKS_PER_PROMPT_MAX, scored, key=lambda one: (-one[0], one[1].index))


def sis_endpoint() -> Endpoint | None:
    endpoint = read_endpoint(PREFIX)
    if endpoint and endpoint.model in (EXTRACTIVE, "default"):
        raise ServiceUnusable(f"{PREFIX}_MODEL={endpoint.model} is the name of a built-in model")
    return endpoint


def answering_endpoint(asked: Any) -> Endpoint | None:
    """The endpoint of the model of this name; `None` is the extractive one. Without a name an endpoint is preferred."""
    endpoint = sis_endpoint()
    if asked in (None, "", "default"):
        return endpoint
    if asked == EXTRACTIVE:
        return None
    if endpoint and asked == endpoint.model:
        return endpoint
    here = ", ".join([EXTRACTIVE, *([endpoint.model] if endpoint else [])])
    raise NonRetryable("MODEL_UNKNOWN", f"the model {asked!r} is not available; this service has {here}")


def _asked(payload: Mapping[str, Any]) -> tuple[list[str], str]:
    prompts = payload.get("prompt_set")
    if not isinstance(prompts, list) or not 0 < len(prompts) <= PROMPTS_MAX:
        raise NonRetryable("PAYLOAD_INVALID", f"'prompt_set' must be a list of 1 to {PROMPTS_MAX} prompts")
    if not all(isinstance(one, str) and len(one.strip()) > 0 and len(one) <= PROMPT_CHARACTERS_MAX for one in prompts):
        raise NonRetryable("PAYLOAD_INVALID", f"a prompt must be text of 1 to {PROMPT_CHARACTERS_MAX} characters")
    form = payload.get("output", "json")
    if form not in ("text", "json"):
        raise NonRetryable("PAYLOAD_INVALID", '\'output\' must be "text" or "json"')
    return prompts, form


def _source(directive: Directive, workspace: Workspace, attempt: Attempt) -> tuple[EmbeddingModel, list[Piece]]:
    """Chunks with vectors: from the embedding step, from a `vectors.json` given as input, or made here from text."""
    vectors_ref = directive.artifact("embedding", "vectors_ref")
    if vectors_ref:
        name, pieces = read_vectors(workspace.read(vectors_ref, "vectors file"))
    elif not directive.previous and ref_uri(directive.input_ref, "input_ref").endswith("vectors.json"):
        name, pieces = read_vectors(workspace.read_input())
    else:
        model = embedding_model(None)
        size, overlap = chunking({})
        made = embedded(source_pages(directive, workspace, attempt), size, overlap, model, attempt)["chunks"]
        return model, [Piece(one["index"], one["page"], one["text"], one["vector"]) for one in made]
    return embedding_model(name), pieces


def _vectors(prompts: Sequence[str], model: EmbeddingModel, pieces: Sequence[Piece], attempt: Attempt) -> list[Vector]:
    made = model.embed(prompts, attempt)
    if len(made[0]) != len(pieces[0].vector):
        detail = f"the model {model.name} has {len(made[0])} dimensions, the vectors file {len(pieces[0].vector)}"
        raise NonRetryable("VECTORS_INVALID", f"{detail}: embed the text again")
    return made


def read_vectors(content: bytes) -> tuple[str, list[Piece]]:
    """The name of the model and the chunks."""
    try:
        document = json.loads(content)
        name = document["model"]
        pieces = [
            Piece(int(one["index"]), int(one["page"]), str(one["text"]), one["vector"]) for one in document["chunks"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NonRetryable("VECTORS_INVALID", "the vectors file was not written by the embedding service") from error
    if not isinstance(name, str) or not name or not pieces:
        raise NonRetryable("VECTORS_INVALID", "the vectors file has no model or no chunks")
    dimensions = {len(piece.vector) if is_vector(piece.vector) else 0 for piece in pieces}
    if len(dimensions) > 1 or 0 in dimensions:
        raise NonRetryable("VECTORS_INVALID", "the vectors in the vectors file are not lists of equally many numbers")
    return name, pieces

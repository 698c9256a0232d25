"""SIS: answers to a set of prompts, taken from the document.

Each prompt picks the chunks nearest to it by cosine; in those, the sentences that say most of what the prompt asks
about, rare words counting most, are the answer. Nothing is made up: every answer is text of the document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lucius.reference.directive import Directive, Outcome, Report
from lucius.reference.embedding import chunking, embedded, require_model, source_pages
from lucius.reference.failure import StepFailed
from lucius.reference.files import Workspace, read_bytes
from lucius.reference.vectors import DIMENSIONS, cosine, sentences, vector, words

MODEL = "lucius-extractive"
PROMPTS_MAX = 500
PROMPT_CHARACTERS_MAX = 8_000
CHUNKS_PER_PROMPT_MAX = 5
SENTENCES_PER_ANSWER_MAX = 3
SENTENCE_NEAR_BEST = 0.85
OVERLAP_WEIGHT = 0.7
SHORT_CHARACTERS_MAX = 300
SHORT_ANSWERS_BYTES_MAX = 24 * 1024


class Answer(NamedTuple):
    prompt: str
    answer: str
    score: float
    chunk: int
    page: int


class Candidate(NamedTuple):
    score: float
    chunk: int
    page: int
    place: int
    text: str


def run(directive: Directive, workspace: Workspace, report: Report) -> Outcome:
    prompts, form = _asked(directive.payload)
    require_model(directive.payload, MODEL)
    pieces = _pieces(directive, report)
    rarity = word_rarity([piece["text"] for piece in pieces])
    answers = []
    for done, prompt in enumerate(prompts):
        report(done / len(prompts), f"prompt {done + 1} of {len(prompts)}")
        answers.append(answered(prompt, pieces, rarity))
    document = {"model": MODEL, "answers": [answer._asdict() for answer in answers]}
    path = workspace.write("sis/result.json", json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    if form == "text":
        path = workspace.write("sis/result.txt", as_text(answers))
    return Outcome({"result_ref": path.as_uri(), "answers": shortened(answers), "prompts": len(prompts)}, path)


def answered(prompt: str, pieces: Sequence[Mapping[str, Any]], rarity: Mapping[str, float]) -> Answer:
    """The best sentences for one prompt, in the order of the document. An empty answer means: nothing was found."""
    asked = vector(prompt)
    nearest = sorted(pieces, key=lambda piece: (-cosine(asked, piece["vector"]), piece["index"]))
    wanted = {word: rarity.get(word, rarity[""]) for word in words(prompt)}
    seen: dict[str, Candidate] = {}
    for piece in nearest[:CHUNKS_PER_PROMPT_MAX]:
        for place, sentence in enumerate(sentences(piece["text"])):
            score = _sentence_score(sentence, asked, wanted)
            # Chunks overlap, so one sentence may be met twice.
            if score > 0 and sentence not in seen:
                seen[sentence] = Candidate(score, piece["index"], piece["page"], place, sentence)
    ranked = sorted(seen.values(), key=lambda one: (-one.score, one.chunk, one.place))
    if not ranked:
        return Answer(prompt, "", 0.0, -1, 0)
    best = ranked[0]
    near = [one for one in ranked[:SENTENCES_PER_ANSWER_MAX] if one.score >= best.score * SENTENCE_NEAR_BEST]
    text = " ".join(one.text for one in sorted(near, key=lambda one: (one.chunk, one.place)))
    return Answer(prompt, text, round(best.score, 4), best.chunk, best.page)


def _sentence_score(sentence: str, asked: Sequence[float], wanted: Mapping[str, float]) -> float:
    """From 0 to 1: mostly the share of the prompt's words, weighed by rarity, that the sentence holds."""
    held = set(words(sentence))
    share = math.fsum(weight for word, weight in wanted.items() if word in held) / (math.fsum(wanted.values()) or 1.0)
    if not share:
        return 0.0
    return OVERLAP_WEIGHT * share + (1 - OVERLAP_WEIGHT) * max(0.0, cosine(asked, vector(sentence)))


def word_rarity(texts: Sequence[str]) -> dict[str, float]:
    """Inverse sentence frequency of every word; the empty word stands for those that the document does not hold."""
    total = 0
    counts: dict[str, int] = {}
    for text in texts:
        for sentence in sentences(text):
            total += 1
            for word in set(words(sentence)):
                counts[word] = counts.get(word, 0) + 1
    rarity = {word: math.log(1 + total / count) for word, count in counts.items()}
    # A word the document lacks can be in no answer; a middling weight keeps it from drowning those that can be.
    rarity[""] = math.log(1 + math.sqrt(total + 1))
    return rarity


def _asked(payload: Mapping[str, Any]) -> tuple[list[str], str]:
    prompts = payload.get("prompt_set")
    if not isinstance(prompts, list) or not 0 < len(prompts) <= PROMPTS_MAX:
        raise StepFailed("PAYLOAD_INVALID", f"'prompt_set' must be a list of 1 to {PROMPTS_MAX} prompts")
    if not all(isinstance(one, str) and len(one.strip()) > 0 and len(one) <= PROMPT_CHARACTERS_MAX for one in prompts):
        raise StepFailed("PAYLOAD_INVALID", f"a prompt must be text of 1 to {PROMPT_CHARACTERS_MAX} characters")
    form = payload.get("output", "json")
    if form not in ("text", "json"):
        raise StepFailed("PAYLOAD_INVALID", '\'output\' must be "text" or "json"')
    return prompts, form


def _pieces(directive: Directive, report: Report) -> list[dict[str, Any]]:
    """Chunks with vectors: the embedding step's, those of a `vectors.json` given as input, or made here from text."""
    vectors_ref = directive.artifact("embedding", "vectors_ref")
    if vectors_ref:
        return read_vectors(read_bytes(vectors_ref, "vectors file"))
    if str(directive.input_ref).endswith("vectors.json") and not directive.previous:
        return read_vectors(read_bytes(directive.input_ref, "input_ref"))
    size, overlap = chunking({})
    made: list[dict[str, Any]] = embedded(source_pages(directive, report), size, overlap, report)["chunks"]
    return made


def read_vectors(content: bytes) -> list[dict[str, Any]]:
    try:
        pieces = [
            {"index": int(one["index"]), "page": int(one["page"]), "text": str(one["text"]), "vector": one["vector"]}
            for one in json.loads(content)["chunks"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise StepFailed("VECTORS_INVALID", "the vectors file is not one that the embedding service wrote") from error
    if not all(_is_vector(piece["vector"]) for piece in pieces):
        raise StepFailed("VECTORS_INVALID", f"a vector in the vectors file has not {DIMENSIONS} numbers")
    return pieces


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and len(value) == DIMENSIONS and all(isinstance(x, int | float) for x in value)


def as_text(answers: Sequence[Answer]) -> str:
    blocks = (f"{one.prompt}\n{one.answer or 'Nothing about this was found in the document.'}\n" for one in answers)
    return "\n".join(blocks)


def shortened(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """As many answers as fit into the artifacts, cut short; the whole of them is in the result file."""
    kept: list[dict[str, Any]] = []
    size = 0
    for one in answers:
        short = {**one._asdict(), "prompt": _cut(one.prompt), "answer": _cut(one.answer)}
        size += len(json.dumps(short))
        if size > SHORT_ANSWERS_BYTES_MAX:
            break
        kept.append(short)
    return kept


def _cut(text: str) -> str:
    return text if len(text) <= SHORT_CHARACTERS_MAX else text[: SHORT_CHARACTERS_MAX - 1] + "…"

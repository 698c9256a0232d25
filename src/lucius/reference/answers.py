"""Answers to prompts, and their two output formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lucius.platform import Attempt

SHORT_CHARACTERS_MAX = 300
SHORT_ANSWERS_BYTES_MAX = 24 * 1024
SHORT_PAGES_MAX = 20
NOTHING_FOUND = "Nothing about this was found in the document."


@dataclass(frozen=True)
class Piece:
    """A chunk of the document and its vector."""

    index: int
    page: int
    text: str
    vector: list[float]


class FoundAnswer(NamedTuple):
    """An empty answer means that nothing was found; its chunk is then -1 and its page 0."""

    prompt: str
    answer: str
    score: float
    chunk: int
    page: int
    pages: list[int]
    """Every page that the answer is based on, in order; `page` is the most relevant one."""


class Answerer(Protocol):
    @property
    def name(self) -> str: ...

    def answer(self, prompt: str, nearest: Sequence[tuple[float, Piece]], attempt: Attempt) -> FoundAnswer:
        """From the chunks nearest to the prompt, each with its cosine, best first."""


def as_text(answers: Sequence[FoundAnswer]) -> str:
    return "\n".join(f"{one.prompt}\n{one.answer or NOTHING_FOUND}\n" for one in answers)


def shortened(answers: Sequence[FoundAnswer]) -> list[dict[str, Any]]:
    """As many answers as fit into the artifacts, shortened; the result file has all of them."""
    shortened_: list[dict[str, Any]] = []
    size = 0
    for one in answers:
        cut = {"prompt": _cut(one.prompt), "answer": _cut(one.answer), "pages": one.pages[:SHORT_PAGES_MAX]}
        short = {**one._asdict(), **cut}
        size += len(json.dumps(short))
        if size > SHORT_ANSWERS_BYTES_MAX:
            break
        shortened_.append(short)
    return shortened_


def _cut(text: str) -> str:
    return text if len(text) <= SHORT_CHARACTERS_MAX else text[: SHORT_CHARACTERS_MAX - 1] + "…"

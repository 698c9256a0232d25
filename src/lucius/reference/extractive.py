"""Answers that are sentences of the document: nothing is made up, and nothing leaves the machine.

In the chunks nearest to a prompt, the sentences that say most of what it asks about, rare words counting most, are the
answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lucius.platform import Attempt
from lucius.reference.answers import Answer, Piece
from lucius.reference.vectors import cosine, sentences, vector, words

MODEL = "lucius-extractive"
SENTENCES_PER_ANSWER_MAX = 3
SENTENCE_NEAR_BEST = 0.85
OVERLAP_WEIGHT = 0.7


class Candidate(NamedTuple):
    score: float
    chunk: int
    page: int
    place: int
    text: str


class ExtractiveAnswerer:
    name = MODEL

    def __init__(self, texts: Sequence[str]) -> None:
        self._rarity = word_rarity(texts)

    def answer(self, prompt: str, nearest: Sequence[tuple[float, Piece]], attempt: Attempt) -> Answer:
        """The best sentences, in the order of the document."""
        # Sentences are compared by the built-in vectors whatever model chose the chunks: that costs no call.
        asked = vector(prompt)
        wanted = {word: self._rarity.get(word, self._rarity[""]) for word in words(prompt)}
        seen: dict[str, Candidate] = {}
        for _, piece in nearest:
            for place, sentence in enumerate(sentences(piece.text)):
                score = _sentence_score(sentence, asked, wanted)
                # Chunks overlap, so one sentence may be met twice.
                if score > 0 and sentence not in seen:
                    seen[sentence] = Candidate(score, piece.index, piece.page, place, sentence)
        ranked = sorted(seen.values(), key=lambda one: (-one.score, one.chunk, one.place))
        if not ranked:
            return Answer(prompt, "", 0.0, -1, 0, [])
        best = ranked[0]
        near = [one for one in ranked[:SENTENCES_PER_ANSWER_MAX] if one.score >= best.score * SENTENCE_NEAR_BEST]
        text = " ".join(one.text for one in sorted(near, key=lambda one: (one.chunk, one.place)))
        pages = sorted({one.page for one in near})
        return Answer(prompt, text, round(best.score, 4), best.chunk, best.page, pages)


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

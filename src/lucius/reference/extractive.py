"""Answers made of the document's own sentences: nothing is generated, and nothing leaves the machine.

The answer to a prompt is taken from the chunks nearest to it: the sentences that contain most of its words, weighted by
rarity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lucius.platform import Attempt
from lucius.reference.answers import FoundAnswer, Piece
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

    def answer(self, prompt: str, nearest: Sequence[tuple[float, Piece]], attempt: Attempt) -> FoundAnswer:
        """The best sentences, in document order."""
        # Sentences are compared by the built-in vectors, whatever model chose the chunks: that needs no call.
        prompt_vector = vector(prompt)
        wanted = {word: self._rarity.get(word, self._rarity[""]) for word in words(prompt)}
        seen: dict[str, Candidate] = {}
        for _, piece in nearest:
            for place, sentence in enumerate(sentences(piece.text)):
                score = _sentence_score(sentence, prompt_vector, wanted)
                # Chunks overlap, so a sentence may occur twice.
                if score > 0 and sentence not in seen:
                    seen[sentence] = Candidate(score, piece.index, piece.page, place, sentence)
        ranked = sorted(seen.values(), key=lambda one: (-one.score, one.chunk, one.place))
        if not ranked:
            return FoundAnswer(prompt, "", 0.0, -1, 0, [])
        best = ranked[0]
        near = [one for one in ranked[:SENTENCES_PER_ANSWER_MAX] if one.score >= best.score * SENTENCE_NEAR_BEST]
        text = " ".join(one.text for one in sorted(near, key=lambda one: (one.chunk, one.place)))
        pages = sorted({one.page for one in near})
        return FoundAnswer(prompt, text, round(best.score, 4), best.chunk, best.page, pages)


def _sentence_score(sentence: str, prompt_vector: Sequence[float], wanted: Mapping[str, float]) -> float:
    """From 0 to 1: mostly the share of the prompt's words, weighted by rarity, that the sentence contains."""
    held = set(words(sentence))
    share = math.fsum(weight for word, weight in wanted.items() if word in held) / (math.fsum(wanted.values()) or 1.0)
    if not share:
        return 0.0
    return OVERLAP_WEIGHT * share + (1 - OVERLAP_WEIGHT) * max(0.0, cosine(prompt_vector, vector(sentence)))


def word_rarity(texts: Sequence[str]) -> dict[str, float]:
    """Inverse sentence frequency of every word; the empty word stands for words that are not in the document."""
    total = 0
    counts: dict[str, int] = {}
    for text in texts:
        for sentence in sentences(text):
            total += 1
            for word in set(words(sentence)):
                counts[word] = counts.get(word, 0) + 1
    rarity = {word: math.log(1 + total / count) for word, count in counts.items()}
    # A word that is not in the document cannot be in an answer; a medium weight keeps it from dominating the others.
    rarity[""] = math.log(1 + math.sqrt(total + 1))
    return rarity

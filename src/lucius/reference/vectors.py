"""Text as numbers: words, chunks, and vectors by feature hashing.

A vector counts the words of a text and, with a lower weight, their four-letter pieces, so that forms of a word are
close. The 256 buckets are chosen by CRC-32 (the same in every process, unlike Python's hash), with a sign from the same
checksum so that collisions cancel out on average. It needs no model file and no training.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

DIMENSIONS = 256
MODEL = "lucius-hash-256"
GRAM_LENGTH = 4
GRAM_WEIGHT = 0.35

_WORD = re.compile(r"\w+(?:[.,:/'-]\w+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\Wa-z])")
_WRAPPED_LINE_CHARACTERS = 60
_BREAKS = ("\n\n", ". ", "! ", "? ", ".\n", "\n", " ")
_WORDS_WITHOUT_MEANING = """
a an and any are as at be been but by can did do does for from had has have how i if in into is it its may must of on or
shall should so such than that the their them then there these they this those to under was we were what when where
which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_WORDS_WITHOUT_MEANING.split())


class Chunk(NamedTuple):
    page: int
    start: int
    end: int
    text: str


def words(text: str) -> list[str]:
    """The meaningful words, reduced to a stem shared by singular, plural and tenses."""
    found = (match.group().lower() for match in _WORD.finditer(text))
    return [_stem(word) for word in found if word not in STOP_WORDS]


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e").removesuffix("y") if len(word) > 4 else word


def sentences(text: str) -> list[str]:
    """Sentences, with line breaks inside them replaced by spaces."""
    found: list[str] = []
    for block in _blocks(text):
        found += (part for part in _SENTENCE_END.split(block) if any(letter.isalnum() for letter in part))
    return found


def _blocks(text: str) -> list[str]:
    """Lines, joined where they were only wrapped: after a long line, or before one that continues in lower case.

    A heading or a table row is a short line, and stays a separate sentence.
    """
    blocks: list[str] = []
    goes_on = False
    for line in (" ".join(raw.split()) for raw in text.split("\n")):
        if line and blocks and (goes_on or line[0].islower()):
            blocks[-1] += " " + line
        elif line:
            blocks.append(line)
        goes_on = len(line) >= _WRAPPED_LINE_CHARACTERS
    return blocks


def chunks(pages: Iterable[str], size: int, overlap: int) -> list[Chunk]:
    """Pieces of at most `size` characters that end at the end of a sentence or at least a word.

    A chunk never spans two pages, so that an answer can name its page.
    """
    return [chunk for number, page in enumerate(pages, start=1) for chunk in _page_chunks(number, page, size, overlap)]


def _page_chunks(number: int, page: str, size: int, overlap: int) -> list[Chunk]:
    made = []
    start = 0
    while start < len(page):
        end = _break_before(page, start, start + size)
        piece = page[start:end].strip()
        if piece:
            made.append(Chunk(number, start, end, piece))
        if end >= len(page):
            break
        start = max(_word_start(page, end - overlap, end), start + 1)
    return made


def _break_before(page: str, start: int, limit: int) -> int:
    """The best place to end: the last end of a paragraph, sentence or word in the second half of the span."""
    if limit >= len(page):
        return len(page)
    earliest = start + (limit - start) // 2
    for mark in _BREAKS:
        place = page.rfind(mark, earliest, limit)
        if place >= 0:
            return place + len(mark)
    return limit


def _word_start(page: str, place: int, limit: int) -> int:
    """The first word that begins at or after `place`, before `limit`."""
    if place <= 0 or page[place - 1].isspace():
        return max(place, 0)
    space = next((index for index in range(place, limit) if page[index].isspace()), None)
    return limit if space is None else space + 1


def vector(text: str) -> list[float]:
    """Of length one, or all zero for a text without words."""
    features: defaultdict[str, float] = defaultdict(float)
    for word in words(text):
        features[word] += 1.0
        padded = f"<{word}>"
        for place in range(len(padded) - GRAM_LENGTH + 1):
            features["#" + padded[place : place + GRAM_LENGTH]] += GRAM_WEIGHT
    buckets = [0.0] * DIMENSIONS
    for feature, count in features.items():
        checksum = crc32(feature.encode("utf-8"))
        sign = 1.0 if checksum & 0x8000_0000 else -1.0
        buckets[checksum % DIMENSIONS] += sign * math.log1p(count)
    norm = math.sqrt(math.fsum(value * value for value in buckets))
    return [round(value / norm, 6) for value in buckets] if norm else buckets


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Both have length one, so the product is the cosine."""
    return math.fsum(a * b for a, b in zip(left, right, strict=True))

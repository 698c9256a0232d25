"""Chunks, sentences and vectors."""

from __future__ import annotations

from importlib import resources

import pytest

from lucius.reference.vectors import chunks, cosine, sentences, vector

MINUTES = resources.files("lucius.reference").joinpath("samples/minutes.txt")


@pytest.mark.parametrize(("size", "overlap"), [(20, 0), (50, 10), (120, 60), (800, 100), (100_000, 0)])
def test_chunks_cover_the_text_within_their_size(size: int, overlap: int) -> None:
    pages = [MINUTES.read_text("utf-8"), "", "x" * 300]
    made = chunks(pages, size, overlap)
    assert all(0 < len(chunk.text) <= size for chunk in made)
    for number, page in enumerate(pages, start=1):
        covered: set[int] = set()
        for chunk in made:
            if chunk.page == number:
                covered.update(range(chunk.start, chunk.end))
                assert page[chunk.start : chunk.end].strip() == chunk.text
        assert {place for place, letter in enumerate(page) if not letter.isspace()} <= covered


def test_chunks_end_at_words() -> None:
    text = MINUTES.read_text("utf-8")
    assert all(chunk.end == len(text) or text[chunk.end - 1].isspace() for chunk in chunks([text], 100, 20))


def test_vectors_of_related_texts_lie_closer_than_others() -> None:
    asked = vector("repairing a broken lantern")
    assert cosine(asked, vector("A broken lantern is repaired.")) > 0.6
    assert cosine(asked, vector("The yearly fee is due in July.")) < 0.3
    assert not any(vector("… ?"))


def test_sentences_join_wrapped_lines_and_keep_headings_apart() -> None:
    text = (
        "2. Response times\nThe Supplier repairs a failed lantern within six hours of the\n"
        "Customer's call. Or so it says."
    )
    assert sentences(text)[-2:] == [
        "The Supplier repairs a failed lantern within six hours of the Customer's call.",
        "Or so it says.",
    ]

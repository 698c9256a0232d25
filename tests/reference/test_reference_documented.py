"""docs/how-to/reference-services.md says what the code says: settings, limits, extras, codes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from lucius.platform.workspace import READ_BYTES_MAX
from lucius.reference import chat, document, embedding, endpoint, images, models, pdf, sis
from lucius.reference.extractive import MODEL as EXTRACTIVE
from lucius.reference.models import HASH, WORDLLAMA

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "reference-services.md").read_text("utf-8")
PLAIN = " ".join(PAGE.split())


def test_every_setting_of_an_endpoint_has_a_row() -> None:
    named = set(re.findall(r"^\| `(LUCIUS_\w+)` \|", PAGE, re.MULTILINE))
    assert named == {
        f"{prefix}_{name}" for prefix in (models.PREFIX, sis.PREFIX) for name in ("URL", "API_KEY", "MODEL")
    }


def test_every_limit_is_told_as_it_is() -> None:
    assert READ_BYTES_MAX == 64 * 1024 * 1024
    millions = (images.PIXELS_MAX, document.CHARACTERS_MAX, embedding.NUMBERS_MAX)
    assert [one % 1_000_000 for one in millions] == [0, 0, 0]
    pixels, characters, numbers = (one // 1_000_000 for one in millions)
    for limit in (
        f"64 MiB of input, {document.PAGES_MAX:,} pages, of these {images.OCR_PAGES_MAX} by OCR",
        f"{pdf.IMAGES_PER_PAGE_MAX} images on a page, {pixels} million pixels in an image",
        f"in an image, {characters} million characters",
        f"{embedding.CHUNKS_MAX:,} chunks, {numbers} million numbers, 64 MiB of vectors",
        f"{models.BATCH_TEXTS_MAX} texts or {models.BATCH_CHARACTERS_MAX:,} characters in a call",
        f"{models.BATCH_SECONDS_MAX:g} seconds for it",
        f"{sis.PROMPTS_MAX} prompts of {sis.PROMPT_CHARACTERS_MAX:,} characters",
        f"{chat.EXCERPTS_CHARACTERS_MAX:,} characters of excerpts, {chat.ANSWER_TOKENS_MAX:,} tokens",
        f"{chat.ANSWER_CHARACTERS_MAX:,} characters of answer, {chat.PROMPT_SECONDS_MAX:g} seconds for each prompt",
        f"after `Retry-After`, or {endpoint.RETRY_AFTER_SECONDS:g} s",
        f"`chunk_size` ({embedding.CHUNK_SIZE}) and `chunk_overlap` ({embedding.CHUNK_OVERLAP},",
    ):
        assert limit in PLAIN, limit
    assert sis.CHUNKS_PER_PROMPT_MAX == 5
    assert "picks the five chunks nearest" in PLAIN


def test_models_codes_and_extras_are_named() -> None:
    for name in (HASH, WORDLLAMA, EXTRACTIVE, "ENDPOINT_UNAVAILABLE", "ENDPOINT_ANSWER_INVALID", "ENDPOINT_REFUSED"):
        assert f"`{name}`" in PAGE, name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r"pip install '\.\[(\w+)\]'", PAGE))
    assert named == {"server", "reference", "ocr", "embedding"}
    assert named <= set(extras)
    for hint, extra in ((document.OCR_HINT, "ocr"), (models.WORDLLAMA_HINT, "embedding")):
        assert f"pip install '.[{extra}]' in a clone of LUCIUS" in hint

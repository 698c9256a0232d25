"""A document as pages of text: a PDF, an image, or a text file, detected by its first bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lucius.platform import Attempt, NonRetryable

PAGES_MAX = 5_000
PAGE_RANGES_MAX = 1_000
CHARACTERS_MAX = 20_000_000
PAGE_SEPARATOR = "\f"
OCR_HINT = "reading images needs the OCR engine: pip install '.[ocr]' in a clone of LUCIUS"

PageRanges = list[tuple[int, int]] | None
"""First and last page of each range; `None` means every page."""

_RANGE = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")


class Page(NamedTuple):
    text: str
    source: Literal["text", "image", "unread"] = "text"
    """The origin of the text. `unread` is a page of images that cannot be read."""
    confidences: tuple[float, ...] = ()
    """The OCR engine's confidence in each line, from 0 to 1."""


def document_pages(content: bytes, payload: Mapping[str, Any], attempt: Attempt) -> list[Page]:
    """The selected pages of a document. A document without any text is refused, since no step can use it."""
    from lucius.reference.images import image_pages, is_image

    ranges = page_ranges(payload.get("pages"))
    if b"%PDF-" in content[:1024]:
        from lucius.reference.pdf import pdf_pages

        pages = pdf_pages(content, ranges, attempt)
    elif is_image(content):
        pages = image_pages(content, ranges, attempt)
    else:
        every = _decoded(content).split(PAGE_SEPARATOR)
        pages = [Page(every[number - 1].strip()) for number in chosen(len(every), ranges)]
    attempt.report(1.0, f"{len(pages)} pages read")
    if not any(page.text for page in pages):
        raise NonRetryable("NO_TEXT", f"the document contains no text{_why_none(pages)}")
    if sum(len(page.text) for page in pages) > CHARACTERS_MAX:
        raise NonRetryable("INPUT_TOO_LARGE", f"the document has more than {CHARACTERS_MAX} characters")
    return pages


def _why_none(pages: Sequence[Page]) -> str:
    from lucius.reference.recognition import why_missing

    if not any(page.source == "unread" for page in pages):
        return ""
    missing = why_missing()
    return f", only images; {missing}" if missing else ", only images, in a form that cannot be decoded here"


def page_ranges(pages: Any) -> PageRanges:
    """`"1-3,5"`, `[1, 2, 5]` or `4` as ranges."""
    if pages is None:
        return None
    if isinstance(pages, int) and not isinstance(pages, bool):
        pages = [pages]
    parts = pages.split(",") if isinstance(pages, str) else pages
    if not isinstance(parts, list) or not 0 < len(parts) <= PAGE_RANGES_MAX:
        raise NonRetryable("PAYLOAD_INVALID", "'pages' must be like \"1-3,5\" or a list of page numbers")
    ranges = []
    for part in parts:
        match = None if isinstance(part, bool) else _RANGE.fullmatch(str(part))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last:
            raise NonRetryable("PAYLOAD_INVALID", f"{part!r} in 'pages' is not a page or a range of pages")
        ranges.append((first, last))
    return ranges


def chosen(count: int, ranges: PageRanges) -> list[int]:
    """Page numbers in document order. A range may extend past the end, but one without any page is an error."""
    if count > PAGES_MAX:
        raise NonRetryable("INPUT_TOO_LARGE", f"the document has {count} pages; at most {PAGES_MAX} are read")
    numbers = range(1, count + 1)
    if ranges is None:
        return list(numbers)
    found = [number for number in numbers if any(first <= number <= last for first, last in ranges)]
    if not found:
        raise NonRetryable("PAGES_OUT_OF_RANGE", f"the document has {count} pages, none of which was selected")
    return found


def _decoded(content: bytes) -> str:
    """UTF-8, or UTF-16 with a byte order mark. Anything else would be a guess, and a wrong guess is worse."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise NonRetryable("INPUT_UNDECODABLE", "the input is neither a PDF, an image nor UTF-8 text") from error
    if "\0" in text:
        raise NonRetryable("INPUT_UNDECODABLE", "the input is binary, and neither a PDF nor an image")
    return text.replace("\r\n", "\n").replace("\r", "\n")

"""OCR: the text of a document, page by page.

Text files and the text layer of PDFs are read. `pages` picks pages; `language` and `dpi` tell an engine how to look at
images, which this service does not do: they are accepted and change nothing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from lucius.reference.directive import Directive, Outcome, Report
from lucius.reference.failure import StepFailed, WorkStopped
from lucius.reference.files import Workspace, read_bytes

PAGES_MAX = 5_000
PAGE_RANGES_MAX = 1_000
CHARACTERS_MAX = 20_000_000
PAGE_SEPARATOR = "\f"

_RANGE = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")


def run(directive: Directive, workspace: Workspace, report: Report) -> Outcome:
    content = read_bytes(directive.input_ref, "input_ref")
    pages = document_pages(content, directive.payload, report)
    text = PAGE_SEPARATOR.join(pages)
    path = workspace.write("ocr/output.txt", text)
    artifacts = {"text_ref": path.as_uri(), "characters": len(text), "pages": len(pages)}
    return Outcome(artifacts, path)


def document_pages(content: bytes, payload: Mapping[str, Any], report: Report) -> list[str]:
    """The chosen pages of a PDF or text file. A document without any text is refused: nothing can follow from it."""
    wanted = page_ranges(payload.get("pages"))
    if b"%PDF-" in content[:1024]:
        pages = _pdf_pages(content, wanted, report)
    else:
        every = _decoded(content).split(PAGE_SEPARATOR)
        pages = [every[number - 1].strip() for number in _chosen(len(every), wanted)]
    report(1.0, f"{len(pages)} pages read")
    if not any(pages):
        raise StepFailed("NO_TEXT", "the document holds no text; scanned images need an OCR engine, which is not here")
    if sum(map(len, pages)) > CHARACTERS_MAX:
        raise StepFailed("INPUT_TOO_LARGE", f"the document has more than {CHARACTERS_MAX} characters")
    return pages


def page_ranges(pages: Any) -> list[tuple[int, int]] | None:
    """`"1-3,5"`, `[1, 2, 5]` or `4` as ranges; `None` is every page."""
    if pages is None:
        return None
    if isinstance(pages, int) and not isinstance(pages, bool):
        pages = [pages]
    parts = pages.split(",") if isinstance(pages, str) else pages
    if not isinstance(parts, list) or not 0 < len(parts) <= PAGE_RANGES_MAX:
        raise StepFailed("PAYLOAD_INVALID", "'pages' must be like \"1-3,5\" or a list of page numbers")
    ranges = []
    for part in parts:
        match = None if isinstance(part, bool) else _RANGE.fullmatch(str(part))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last:
            raise StepFailed("PAYLOAD_INVALID", f"{part!r} in 'pages' is not a page or a range of pages")
        ranges.append((first, last))
    return ranges


def _chosen(count: int, ranges: list[tuple[int, int]] | None) -> list[int]:
    """Page numbers in document order. A range may run past the end, but one that meets no page at all is a mistake."""
    if count > PAGES_MAX:
        raise StepFailed("INPUT_TOO_LARGE", f"the document has {count} pages; at most {PAGES_MAX} are read")
    numbers = range(1, count + 1)
    if ranges is None:
        return list(numbers)
    chosen = [number for number in numbers if any(first <= number <= last for first, last in ranges)]
    if not chosen:
        raise StepFailed("PAGES_OUT_OF_RANGE", f"the document has {count} pages, none of which was asked for")
    return chosen


def _decoded(content: bytes) -> str:
    """UTF-8, or UTF-16 with its mark. Anything else would be a guess, and a wrong guess is worse than an error."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise StepFailed("INPUT_UNDECODABLE", "the input is neither a PDF nor UTF-8 text") from error
    if "\0" in text:
        raise StepFailed("INPUT_UNDECODABLE", "the input is binary, and not a PDF")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pdf_pages(content: bytes, ranges: list[tuple[int, int]] | None, report: Report) -> list[str]:
    # The library takes long to load and most processes that import this module never open a PDF.
    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise StepFailed("INPUT_ENCRYPTED", "the PDF is protected by a password")
        numbers = _chosen(len(reader.pages), ranges)
        pages = []
        for done, number in enumerate(numbers):
            report(done / len(numbers), f"page {number}")
            pages.append(reader.pages[number - 1].extract_text().strip())
        return pages
    except (StepFailed, WorkStopped, MemoryError):
        raise
    except Exception as error:
        # A damaged PDF makes the parser raise almost anything; all of it means the same to the caller.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise StepFailed("INPUT_UNDECODABLE", f"the PDF cannot be read ({detail})") from error

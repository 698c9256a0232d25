"""PDFs: their text layer, and for pages without one, their images by OCR."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

from lucius.platform import Attempt, NonRetryable, StepFailed, WorkStopped
from lucius.reference.document import Page, PageRanges, chosen
from lucius.reference.images import check_page_count, check_pixels, read_image, set_pixel_guard
from lucius.reference.recognition import why_missing

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

IMAGES_PER_PAGE_MAX = 50

log = logging.getLogger("lucius.reference")


def pdf_pages(content: bytes, ranges: PageRanges, attempt: Attempt) -> list[Page]:
    try:
        # The library is slow to load, and most processes that import this package never open a PDF.
        from pypdf import PdfReader
    except ModuleNotFoundError as error:
        raise NonRetryable(
            "LIBRARY_MISSING", "reading PDFs needs pypdf: pip install '.[reference]' in a clone of LUCIUS"
        ) from error
    try:
        return _pages(PdfReader(io.BytesIO(content)), ranges, attempt)
    except (StepFailed, WorkStopped, MemoryError):
        raise
    except Exception as error:
        # A damaged PDF makes the parser raise almost anything; it all means the same to the caller.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise NonRetryable("INPUT_UNDECODABLE", f"the PDF cannot be read ({detail})") from error


def _pages(reader: PdfReader, ranges: PageRanges, attempt: Attempt) -> list[Page]:
    if reader.is_encrypted and not reader.decrypt(""):
        raise NonRetryable("INPUT_ENCRYPTED", "the PDF is protected by a password")
    numbers = chosen(len(reader.pages), ranges)
    pages: list[Page] = []
    by_ocr = 0
    for done, number in enumerate(numbers):
        attempt.report(done / len(numbers), f"page {number}")
        page = reader.pages[number - 1]
        text = page.extract_text().strip()
        if text or not (keys := page.images.keys()):
            pages.append(Page(text))
        elif why_missing():
            pages.append(Page("", "unread"))
        else:
            by_ocr += 1
            check_page_count(by_ocr)
            attempt.report(done / len(numbers), f"page {number}, by OCR")
            pages.append(_images_page(page, keys, number, attempt))
    return pages


def _images_page(page: PageObject, keys: list[Any], number: int, attempt: Attempt) -> Page:
    """The texts of a page's images, in the order in which the page lists them."""
    if len(keys) > IMAGES_PER_PAGE_MAX:
        raise NonRetryable(
            "INPUT_TOO_LARGE", f"page {number} is made of {len(keys)} images; at most {IMAGES_PER_PAGE_MAX} are read"
        )
    set_pixel_guard()
    read: list[Page] = []
    for key in keys:
        check_pixels(*_declared_size(page, key))
        try:
            image = page.images[key].image
        except MemoryError:
            raise
        except Exception as error:
            # An unsupported compression, or damaged data: the other images may be intact.
            log.warning("an image on page %d cannot be decoded: %s: %s", number, type(error).__name__, error)
            continue
        if image is not None:
            read.append(read_image(image, attempt))
    if not read:
        return Page("", "unread")
    text = "\n".join(one.text for one in read if one.text)
    return Page(text, "image", tuple(value for one in read for value in one.confidences))


def _declared_size(page: PageObject, key: Any) -> tuple[int, int]:
    """The size that the page declares for an image before its pixels are unpacked."""
    if isinstance(key, str) and key.startswith("~"):
        return 0, 0  # Inside the page's own stream, whose length the parser bounds.
    holder: Any = page
    for name in [key] if isinstance(key, str) else key:
        holder = holder["/Resources"]["/XObject"][name]
    return int(holder.get("/Width", 0)), int(holder.get("/Height", 0))

"""OCR: the text of a document, page by page.

Reads text files, the text layer of PDFs, images, and PDF pages that are images. `pages` selects pages. `language` and
`dpi` are accepted and ignored: the engine has one model, and images are read at their own resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucius.platform import Attempt, Directive, PlatformService, Result, Workspace
from lucius.reference.document import PAGE_SEPARATOR, Page, document_pages

service = PlatformService("ocr")


@service.step("OCR")
def read_document(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
    workspace.check_output()
    pages = document_pages(workspace.read_input(), directive.payload, attempt)
    text = PAGE_SEPARATOR.join(page.text for page in pages)
    path = workspace.write("ocr/output.txt", text)
    artifacts = {"text_ref": path.as_uri(), "characters": len(text), "pages": len(pages), **_by_ocr(pages)}
    return Result(artifacts, output=path)


def _by_ocr(pages: Sequence[Page]) -> dict[str, Any]:
    """How many pages the engine read, its average confidence over all lines, and pages that could not be read."""
    facts: dict[str, Any] = {"ocr_pages": sum(page.source == "image" for page in pages)}
    confidences = [value for page in pages for value in page.confidences]
    if confidences:
        facts["confidence"] = round(sum(confidences) / len(confidences), 4)
    unread = sum(page.source == "unread" for page in pages)
    return {**facts, "unread_pages": unread} if unread else facts

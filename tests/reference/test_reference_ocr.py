"""OCR of PDFs and text files: what is read, and how it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.reference.conftest import begin

from lucius.platform import Directive, NonRetryable, Result, WorkStopped
from lucius.platform.attempt import StopReason
from lucius.reference import ocr

Make = Callable[..., Directive]

CONTRACT = Path(str(resources.files("lucius.reference"))) / "samples" / "contract.pdf"


def read(directive: Directive) -> Result:
    attempt = begin(directive)
    return ocr.read_document(directive, attempt.workspace(), attempt)


def failure_of(directive: Directive) -> NonRetryable:
    with pytest.raises(NonRetryable) as caught:
        read(directive)
    return caught.value


def text_of(result: Result) -> str:
    assert result.output is not None
    return result.output.read_text("utf-8")


def test_ocr_reads_the_text_of_a_pdf_page_by_page(make: Make) -> None:
    result = read(make("ocr", CONTRACT, {"language": "en", "dpi": 300}))
    assert result.output is not None
    assert result.output.as_posix().endswith("/OCR/1/ocr/output.txt")
    expected = {"text_ref": result.output.as_uri(), "characters": len(text_of(result)), "pages": 2, "ocr_pages": 0}
    assert result.artifacts == expected
    first, second = text_of(result).split("\f")
    assert "notice period of ninety days" in first
    assert "18,400 euros" in second


def test_ocr_tells_how_far_it_is_and_stops_when_told(make: Make) -> None:
    directive = make("ocr", CONTRACT)
    attempt = begin(directive)
    ocr.read_document(directive, attempt.workspace(), attempt)
    assert (attempt.progress, attempt.note) == (1.0, "2 pages read")
    attempt.stop(StopReason.CANCELLED)
    with pytest.raises(WorkStopped):
        ocr.read_document(directive, attempt.workspace(), attempt)


@pytest.mark.parametrize(
    ("pages", "count"), [("1", 1), ("1-2", 2), ("2-99", 1), ([2], 1), ([1, 2, 2], 2), ("1, 2", 2), (2, 1), (None, 2)]
)
def test_ocr_reads_only_the_pages_asked_for(make: Make, pages: Any, count: int) -> None:
    assert read(make("ocr", CONTRACT, {"pages": pages})).artifacts["pages"] == count


@pytest.mark.parametrize("pages", ["", "0", "3-1", "a", "1-", "-1", [], [0], [True], {"from": 1}, [None], "9" * 20])
def test_ocr_refuses_pages_that_are_none(make: Make, pages: Any) -> None:
    assert failure_of(make("ocr", CONTRACT, {"pages": pages})).code == "PAYLOAD_INVALID"


def test_ocr_refuses_a_range_that_meets_no_page(make: Make) -> None:
    assert failure_of(make("ocr", CONTRACT, {"pages": "7-9"})).code == "PAGES_OUT_OF_RANGE"


def test_ocr_reads_text_files_in_utf8_and_utf16(make: Make, tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "text").write_bytes("Größe\r\nzwei\ffertig".encode(encoding))
        result = read(make("ocr", {"uri": (tmp_path / "text").as_uri(), "etag": "7"}))
        assert text_of(result) == "Größe\nzwei\ffertig"
        assert result.artifacts["pages"] == 2


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"%PDF-1.7\nthis is no PDF at all", "INPUT_UNDECODABLE"),
        (CONTRACT.read_bytes()[:700], "INPUT_UNDECODABLE"),
        (b"\xff\xd8\xff\xe0 a picture", "INPUT_UNDECODABLE"),
        (b"\x00\x01\x02", "INPUT_UNDECODABLE"),
        (b"", "NO_TEXT"),
        (b" \n\f ", "NO_TEXT"),
    ],
)
def test_ocr_fails_for_good_on_content_it_cannot_read(make: Make, tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "input").write_bytes(content)
    assert failure_of(make("ocr", tmp_path / "input")).code == code


def test_text_that_begins_like_a_bitmap_is_text(make: Make, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("BMW and others have agreed.")
    assert text_of(read(make("ocr", tmp_path / "input"))) == "BMW and others have agreed."


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("file:///nowhere/at/all.pdf", "PATH_FORBIDDEN"),
        ((CONTRACT.parent / "nowhere.pdf").as_uri(), "INPUT_NOT_FOUND"),
        ("http://example.com/contract.pdf", "REF_SCHEME_UNSUPPORTED"),
        ("file:///tmp/%2e%2e/etc/hostname", "PATH_FORBIDDEN"),
        ({"name": "no uri"}, "REF_INVALID"),
    ],
)
def test_an_input_ref_that_cannot_be_read_fails_for_good(make: Make, ref: Any, code: str) -> None:
    assert failure_of(make("ocr", ref)).code == code


def test_a_pdf_without_its_library_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    failure = failure_of(make("ocr", CONTRACT))
    assert failure.code == "LIBRARY_MISSING"
    assert "pip install '.[reference]' in a clone of LUCIUS" in failure.message

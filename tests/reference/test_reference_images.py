"""Images and scanned PDFs, read by the real OCR engine; decoding and its limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter
from tests.reference.conftest import begin

from lucius.platform import Attempt, Directive, NonRetryable, Result, Retryable, WorkStopped
from lucius.platform.attempt import StopReason
from lucius.reference import images, ocr, pdf, recognition
from lucius.reference.recognition import Piece, Recognised, in_lines

Make = Callable[..., Directive]

ROOT = Path(__file__).parents[2]
SAMPLES = Path(str(resources.files("lucius.reference"))) / "samples"
RECEIPT = SAMPLES / "receipt.png"


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


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """Two pages: one with a text layer, one that is nothing but an image."""
    with Image.open(RECEIPT) as image:
        image.convert("L").save(tmp_path / "image.pdf")
    writer = PdfWriter()
    writer.append(PdfReader(SAMPLES / "contract.pdf"), pages=(0, 1))
    writer.append(PdfReader(tmp_path / "image.pdf"))
    writer.write(tmp_path / "scan.pdf")
    return tmp_path / "scan.pdf"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Image.Image]:
    """The images that would be read, in place of the engine."""
    seen: list[Image.Image] = []

    def recognised(image: Image.Image, attempt: Attempt) -> Recognised:
        seen.append(image)
        return Recognised(f"image {len(seen)}", (0.5, 1.0))

    monkeypatch.setattr(images, "recognised", recognised)
    return seen


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, recognition.LIBRARY, None)


def test_the_sample_receipt_is_read_line_by_line(make: Make) -> None:
    result = read(make("ocr", RECEIPT, {"language": "en", "dpi": 150}))
    lines = text_of(result).split("\n")
    assert len(lines) == 8
    assert lines[3:5] == ["Lamp glass, large 84.00", "Battery pack 126.50"]
    assert lines[6] == "Total in euros 225.50"
    assert (result.artifacts["pages"], result.artifacts["ocr_pages"]) == (1, 1)
    assert 0.8 < result.artifacts["confidence"] <= 1


def test_a_scanned_page_is_read_beside_one_with_text(make: Make, scan: Path) -> None:
    result = read(make("ocr", scan))
    written, scanned = text_of(result).split("\f")
    assert "notice period of ninety days" in written
    assert "Total in euros 225.50" in scanned
    assert (result.artifacts["pages"], result.artifacts["ocr_pages"]) == (2, 1)
    assert result.artifacts["confidence"] > 0.8
    assert "unread_pages" not in result.artifacts


def test_an_image_without_letters_holds_no_text(make: Make, tmp_path: Path) -> None:
    Image.new("L", (200, 200), 255).save(tmp_path / "white.png")
    assert failure_of(make("ocr", tmp_path / "white.png")).code == "NO_TEXT"


def test_without_the_engine_an_image_says_what_to_install(make: Make, no_engine: None) -> None:
    failure = failure_of(make("ocr", RECEIPT))
    assert failure.code == "INPUT_UNDECODABLE"
    assert "pip install '.[ocr]' in a clone of LUCIUS" in failure.message


def test_without_the_engine_scanned_pages_are_counted_and_not_hidden(make: Make, scan: Path, no_engine: None) -> None:
    assert read(make("ocr", scan)).artifacts["unread_pages"] == 1
    failure = failure_of(make("ocr", scan, {"pages": "2"}))
    assert failure.code == "NO_TEXT"
    assert "pip install '.[ocr]' in a clone of LUCIUS" in failure.message


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP", "WEBP"])
def test_each_form_of_image_is_decoded(make: Make, tmp_path: Path, looked_at: list[Image.Image], form: str) -> None:
    Image.new("RGB", (60, 40), (200, 10, 10)).save(tmp_path / "image", format=form)
    assert text_of(read(make("ocr", tmp_path / "image"))) == "image 1"
    (image,) = looked_at
    red, green, blue = image.getpixel((30, 20))  # type: ignore[misc]
    assert (image.mode, image.size) == ("RGB", (60, 40))
    assert red > 190
    assert max(green, blue) < 30


def test_pages_picks_the_pages_of_a_tiff(make: Make, tmp_path: Path, looked_at: list[Image.Image]) -> None:
    one, two, three = (Image.new("L", (40, 40), grey) for grey in (0, 100, 200))
    one.save(tmp_path / "pages.tiff", save_all=True, append_images=[two, three])
    result = read(make("ocr", tmp_path / "pages.tiff", {"pages": "2-3"}))
    assert (result.artifacts["pages"], result.artifacts["ocr_pages"], result.artifacts["confidence"]) == (2, 2, 0.75)
    assert text_of(result) == "image 1\fimage 2"
    assert [image.getpixel((5, 5)) for image in looked_at] == [(100, 100, 100), (200, 200, 200)]


def test_only_so_many_pages_are_read_by_ocr(
    make: Make, tmp_path: Path, scan: Path, looked_at: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "OCR_PAGES_MAX", 0)
    assert failure_of(make("ocr", RECEIPT)).code == "INPUT_TOO_LARGE"
    assert failure_of(make("ocr", scan)).code == "INPUT_TOO_LARGE"
    assert not looked_at


@pytest.mark.parametrize("side", [6_400, 9_500])
def test_an_image_of_too_many_pixels_is_not_unpacked(
    make: Make, tmp_path: Path, looked_at: list[Image.Image], side: int
) -> None:
    image = Image.new("1", (side, side))
    image.save(tmp_path / "bomb.png")
    image.save(tmp_path / "bomb.pdf")
    for name in ("bomb.png", "bomb.pdf"):
        assert failure_of(make("ocr", tmp_path / name)).code == "INPUT_TOO_LARGE"
    assert not looked_at


def test_a_page_of_too_many_images_is_refused(make: Make, scan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "IMAGES_PER_PAGE_MAX", 0)
    assert failure_of(make("ocr", scan)).code == "INPUT_TOO_LARGE"


@pytest.mark.parametrize("length", [12, 200, 4_000])
def test_a_damaged_image_fails_for_good(make: Make, tmp_path: Path, looked_at: list[Image.Image], length: int) -> None:
    (tmp_path / "half.png").write_bytes(RECEIPT.read_bytes()[:length])
    assert failure_of(make("ocr", tmp_path / "half.png")).code == "INPUT_UNDECODABLE"
    assert not looked_at


def test_an_image_in_a_pdf_that_cannot_be_decoded_is_counted(
    make: Make, scan: Path, tmp_path: Path, looked_at: list[Image.Image]
) -> None:
    broken = scan.read_bytes().replace(b"\xff\xd8\xff", b"\0\0\0")
    (tmp_path / "broken.pdf").write_bytes(broken)
    assert read(make("ocr", tmp_path / "broken.pdf")).artifacts["unread_pages"] == 1
    failure = failure_of(make("ocr", tmp_path / "broken.pdf", {"pages": "2"}))
    assert "cannot be decoded" in failure.message


def test_colours_come_out_as_a_reader_sees_them() -> None:
    clear = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    assert images.in_colours(clear).getpixel((5, 5)) == (255, 255, 255)
    deep = Image.new("I;16", (10, 10), 1_000)
    deep.putpixel((5, 5), 60_000)
    grey = images.in_colours(deep)
    assert (grey.getpixel((0, 0)), grey.getpixel((5, 5))) == ((0, 0, 0), (255, 255, 255))


def test_lines_go_from_top_to_bottom_and_left_to_right() -> None:
    def piece(left: float, middle: float, text: str) -> Piece:
        return Piece(left, middle, 20.0, text, 1.0)

    scattered = [piece(300, 104, "d"), piece(10, 150, "e"), piece(200, 52, "b"), piece(10, 48, "a"), piece(9, 98, "c")]
    assert [[one.text for one in line] for line in in_lines(scattered)] == [["a", "b"], ["c", "d"], ["e"]]


def test_whoever_waits_for_the_engine_can_be_stopped(make: Make) -> None:
    attempt = begin(make("ocr", RECEIPT))
    with recognition._engine._lock:
        attempt.stop(StopReason.CANCELLED)
        with pytest.raises(WorkStopped):
            recognition.recognised(Image.new("RGB", (20, 20)), attempt)


def test_an_engine_that_fails_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(pixels: Any) -> Any:
        raise RuntimeError("no memory for the session")

    monkeypatch.setattr(recognition._engine, "_read", broken)
    with pytest.raises(Retryable, match="OCR_FAILED"):
        read(make("ocr", RECEIPT))


def test_the_sample_image_is_drawn_the_same_twice(tmp_path: Path) -> None:
    drawn = []
    for name in ("one.png", "two.png"):
        script = [sys.executable, str(ROOT / "examples" / "make_sample_image.py"), str(tmp_path / name)]
        subprocess.run(script, check=True, timeout=60)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    with Image.open(tmp_path / "one.png") as made, Image.open(RECEIPT) as kept:
        assert made.size == kept.size
    assert RECEIPT.stat().st_size < 10_000

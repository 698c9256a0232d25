"""Images as pages: decoded with Pillow, within limits, and read by the OCR engine."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from lucius.platform import Attempt, NonRetryable, StepFailed, WorkStopped
from lucius.reference.document import Page, PageRanges, chosen
from lucius.reference.recognition import recognised, why_missing

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP")
PIXELS_MAX = 40_000_000
"""More than an A4 page has at 600 dpi."""
SIDE_PIXELS_MIN = 8
OCR_PAGES_MAX = 500

_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def is_image(content: bytes) -> bool:
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    # Two letters are too few: text may begin with them. The four bytes are reserved in every bitmap.
    is_bitmap = content[:2] == b"BM" and content[6:10] == b"\0\0\0\0"
    return content.startswith(_BEGINNINGS) or is_webp or is_bitmap


def image_pages(content: bytes, ranges: PageRanges, attempt: Attempt) -> list[Page]:
    """An image is one page; a TIFF may contain several."""
    missing = why_missing()
    if missing:
        raise NonRetryable("INPUT_UNDECODABLE", f"the input is an image; {missing}")
    from PIL import Image

    set_pixel_guard()
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            numbers = chosen(count, ranges)
            check_page_count(len(numbers))
            pages = []
            for done, number in enumerate(numbers):
                attempt.report(done / len(numbers), f"page {number}, by OCR")
                if count > 1:
                    image.seek(number - 1)
                pages.append(read_image(image, attempt))
            return pages
    except bombs as error:
        raise NonRetryable("INPUT_TOO_LARGE", f"the image has more than {PIXELS_MAX} pixels") from error
    except (StepFailed, WorkStopped, MemoryError):
        raise
    except Exception as error:
        # A damaged image makes the decoder raise almost anything; the bytes are in memory, so retrying cannot help.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise NonRetryable("INPUT_UNDECODABLE", f"the image cannot be read ({detail})") from error


def read_image(image: Image.Image, attempt: Attempt) -> Page:
    """The text of one image, whose pixels may not be decoded yet."""
    check_pixels(*image.size)
    if min(image.size) < SIDE_PIXELS_MIN:
        return Page("", "image")
    text, confidences = recognised(in_colours(image), attempt)
    return Page(text, "image", confidences)


def in_colours(image: Image.Image) -> Image.Image:
    """Converts to RGB, rotated as the camera recorded, with transparency on white."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _in_greys(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _in_greys(image: Image.Image) -> Image.Image:
    """Reduces sixteen bits and more to eight; a plain conversion would clip everything above 255."""
    import numpy
    from PIL import Image

    values = numpy.nan_to_num(numpy.asarray(image, dtype=numpy.float64))
    low, high = values.min(), values.max()
    return Image.fromarray(((values - low) * (255.0 / ((high - low) or 1.0))).astype(numpy.uint8))


def check_pixels(width: int, height: int) -> None:
    if width * height > PIXELS_MAX:
        raise NonRetryable(
            "INPUT_TOO_LARGE", f"an image of {width} by {height} pixels; at most {PIXELS_MAX} pixels are read"
        )


def check_page_count(count: int) -> None:
    if count > OCR_PAGES_MAX:
        raise NonRetryable("INPUT_TOO_LARGE", f"more than {OCR_PAGES_MAX} pages would have to be read by OCR")


def set_pixel_guard() -> None:
    """Pillow refuses twice this number itself wherever it decodes; sizes are checked here before that."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = PIXELS_MAX
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

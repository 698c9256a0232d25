"""The OCR engine: lines of text in an image, with RapidOCR (the extra `ocr`), whose package includes its models.

One engine serves the process, one image at a time: it is not known to be thread-safe. It is loaded with the first
image.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lucius.platform import Attempt, Retryable, WorkStopped
from lucius.reference.document import OCR_HINT

if TYPE_CHECKING:
    from PIL import Image

LIBRARY = "rapidocr_onnxruntime"
LOOK_SECONDS = 0.5
SAME_LINE_SHARE = 0.5
"""Two pieces are on the same line if their middles are closer than this share of the smaller one's height."""


class Piece(NamedTuple):
    """The text of one box."""

    left: float
    middle: float
    height: float
    text: str
    confidence: float


class Recognised(NamedTuple):
    text: str
    confidences: tuple[float, ...]


class _Engine:
    """At most one per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: Any = None

    def pieces(self, image: Image.Image, attempt: Attempt) -> list[Piece]:
        import numpy

        pixels = numpy.ascontiguousarray(numpy.asarray(image)[:, :, ::-1])  # The engine expects BGR.
        while not self._lock.acquire(timeout=LOOK_SECONDS):
            attempt.check()
        try:
            if self._read is None:
                self._read = _loaded()
            found, _ = self._read(pixels)
        finally:
            self._lock.release()
        return [_piece(*one) for one in found or ()]


_engine = _Engine()


def why_missing() -> str | None:
    """Why images cannot be read here, and how to fix that; `None` if they can."""
    try:
        importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        return OCR_HINT if error.name == LIBRARY else f"{OCR_HINT} ({error.name} is missing)"
    except ImportError as error:
        return f"the OCR engine is installed but cannot be loaded: {error}"
    return None


def recognised(image: Image.Image, attempt: Attempt) -> Recognised:
    """The lines of an RGB image, top to bottom, each left to right."""
    try:
        pieces = _engine.pieces(image, attempt)
    except (WorkStopped, MemoryError):
        raise
    except Exception as error:
        # Whatever failed in the engine, the next attempt may run on another replica or a less busy machine.
        raise Retryable("OCR_FAILED", f"the OCR engine failed ({type(error).__name__}: {error})"[:500]) from error
    lines = in_lines(pieces)
    text = "\n".join(" ".join(piece.text for piece in line) for line in lines)
    return Recognised(text, tuple(piece.confidence for line in lines for piece in line))


def in_lines(pieces: Iterable[Piece]) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: (one.middle, one.left)):
        if lines and _on_line(piece, lines[-1]):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [sorted(line, key=lambda one: one.left) for line in lines]


def _on_line(piece: Piece, line: Sequence[Piece]) -> bool:
    middle = sum(one.middle for one in line) / len(line)
    height = min(piece.height, *(one.height for one in line))
    return abs(piece.middle - middle) < height * SAME_LINE_SHARE


def _piece(box: Sequence[Sequence[float]], text: str, confidence: float) -> Piece:
    across, down = [float(x) for x, _ in box], [float(y) for _, y in box]
    middle, height = (min(down) + max(down)) / 2, max(down) - min(down)
    return Piece(min(across), middle, height, str(text).strip(), float(confidence))


def _loaded() -> Any:
    # The library adds a handler to its logger, and warns about every image without text.
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    library = importlib.import_module(LIBRARY)
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    # More threads took twice the CPU time for the same page; for more pages, run more replicas.
    return library.RapidOCR(intra_op_num_threads=1)

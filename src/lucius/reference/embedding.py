"""EMBEDDING: chunks of the text and a vector for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lucius.reference.directive import Directive, Outcome, Report
from lucius.reference.failure import StepFailed
from lucius.reference.files import Workspace, read_bytes
from lucius.reference.ocr import document_pages
from lucius.reference.vectors import DIMENSIONS, MODEL, chunks, vector

CHUNK_SIZE = 800
CHUNK_OVERLAP = 100
CHUNK_SIZE_MIN = 20
CHUNK_SIZE_MAX = 100_000
CHUNKS_MAX = 50_000
REPORT_EVERY = 100


def run(directive: Directive, workspace: Workspace, report: Report) -> Outcome:
    size, overlap = chunking(directive.payload)
    require_model(directive.payload, MODEL)
    document = embedded(source_pages(directive, report), size, overlap, report)
    path = workspace.write("embedding/vectors.json", json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    artifacts = {
        "vectors_ref": path.as_uri(),
        "chunks": len(document["chunks"]),
        "dimensions": DIMENSIONS,
        "model": MODEL,
    }
    return Outcome(artifacts, path)


def source_pages(directive: Directive, report: Report) -> list[str]:
    """The text that OCR left, or, where no OCR step came before, the input itself."""
    text_ref = directive.artifact("ocr", "text_ref")
    content = read_bytes(text_ref, "OCR text") if text_ref else read_bytes(directive.input_ref, "input_ref")
    return document_pages(content, {}, report)


def embedded(pages: Sequence[str], size: int, overlap: int, report: Report) -> dict[str, Any]:
    """The document that `vectors.json` holds. It is the same for the same text, in every process."""
    pieces = chunks(pages, size, overlap)
    if len(pieces) > CHUNKS_MAX:
        raise StepFailed("TOO_MANY_CHUNKS", f"the text makes {len(pieces)} chunks; at most {CHUNKS_MAX} are embedded")
    made = []
    for index, piece in enumerate(pieces):
        if index % REPORT_EVERY == 0:
            report(index / len(pieces), f"chunk {index + 1} of {len(pieces)}")
        made.append({"index": index, **piece._asdict(), "vector": vector(piece.text)})
    return {"model": MODEL, "dimensions": DIMENSIONS, "chunk_size": size, "chunk_overlap": overlap, "chunks": made}


def chunking(payload: Mapping[str, Any]) -> tuple[int, int]:
    size = payload.get("chunk_size", CHUNK_SIZE)
    if not _is_whole(size) or not CHUNK_SIZE_MIN <= size <= CHUNK_SIZE_MAX:
        raise StepFailed("PAYLOAD_INVALID", f"'chunk_size' must be from {CHUNK_SIZE_MIN} to {CHUNK_SIZE_MAX}")
    # The overlap may be left out when the chunks are made small, so its default gives way to the size.
    overlap = payload.get("chunk_overlap", min(CHUNK_OVERLAP, size // 4))
    if not _is_whole(overlap) or not 0 <= overlap <= size // 2:
        raise StepFailed("PAYLOAD_INVALID", "'chunk_overlap' must be from 0 to half of 'chunk_size'")
    return size, overlap


def require_model(payload: Mapping[str, Any], model: str) -> None:
    """A model that is asked for by name and not here is refused: other vectors than those asked for would mislead."""
    asked = payload.get("model") or model
    if asked not in (model, "default"):
        raise StepFailed("MODEL_UNKNOWN", f"the model {asked!r} is not here; this service has {model!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

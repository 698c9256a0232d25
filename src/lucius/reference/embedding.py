"""EMBEDDING: chunks of the text and a vector for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lucius.platform import Attempt, Directive, NonRetryable, PlatformService, Result, Retryable, Workspace
from lucius.platform.workspace import READ_BYTES_MAX
from lucius.reference.document import document_pages
from lucius.reference.models import EmbeddingModel, embedding_model
from lucius.reference.vectors import chunks

CHUNK_SIZE = 800
CHUNK_OVERLAP = 100
CHUNK_SIZE_MIN = 20
CHUNK_SIZE_MAX = 100_000
CHUNKS_MAX = 50_000
NUMBERS_MAX = 8_000_000
REPORT_EVERY = 128

service = PlatformService("embedding")


@service.step("EMBEDDING")
def embed_text(directive: Directive, workspace: Workspace, attempt: Attempt) -> Result:
    workspace.check_output()
    size, overlap = chunking(directive.payload)
    model = embedding_model(directive.payload.get("model"))
    document = embedded(source_pages(directive, workspace, attempt), size, overlap, model, attempt)
    content = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if len(content) > READ_BYTES_MAX:
        detail = f"the vectors take {len(content)} bytes, but the next step reads at most {READ_BYTES_MAX}"
        raise NonRetryable("VECTORS_TOO_LARGE", f"{detail}; make the chunks larger")
    path = workspace.write("embedding/vectors.json", content)
    artifacts = {
        "vectors_ref": path.as_uri(),
        "chunks": len(document["chunks"]),
        "dimensions": document["dimensions"],
        "model": model.name,
    }
    return Result(artifacts, output=path)


def source_pages(directive: Directive, workspace: Workspace, attempt: Attempt) -> list[str]:
    """The text from OCR or, without an OCR step before, the input itself."""
    text_ref = directive.artifact("ocr", "text_ref")
    content = workspace.read(text_ref, "OCR text") if text_ref else workspace.read_input()
    return [page.text for page in document_pages(content, {}, attempt)]


def embedded(pages: Sequence[str], size: int, overlap: int, model: EmbeddingModel, attempt: Attempt) -> dict[str, Any]:
    """The content of `vectors.json`."""
    pieces = chunks(pages, size, overlap)
    if len(pieces) > CHUNKS_MAX:
        raise NonRetryable("TOO_MANY_CHUNKS", f"the text makes {len(pieces)} chunks; at most {CHUNKS_MAX} are embedded")
    made: list[dict[str, Any]] = []
    for start in range(0, len(pieces), REPORT_EVERY):
        attempt.report(start / len(pieces), f"chunk {start + 1} of {len(pieces)}")
        group = pieces[start : start + REPORT_EVERY]
        for piece, vector in zip(group, model.embed([piece.text for piece in group], attempt), strict=True):
            made.append({"index": len(made), **piece._asdict(), "vector": vector})
        check_dimensions(len(pieces), made)
    dimensions = len(made[0]["vector"])
    head = {"model": model.name, "dimensions": dimensions, "chunk_size": size, "chunk_overlap": overlap}
    return {**head, "chunks": made}


def check_dimensions(count: int, made: Sequence[Mapping[str, Any]]) -> None:
    """Checked after every group, so that an excess of vectors is detected before all are made (or paid for)."""
    dimensions = len(made[0]["vector"])
    if count * dimensions > NUMBERS_MAX:
        detail = f"{count} chunks with {dimensions} numbers each; at most {NUMBERS_MAX} numbers are allowed"
        raise NonRetryable("VECTORS_TOO_LARGE", f"{detail}; make the chunks larger")
    if any(len(one["vector"]) != dimensions for one in made):
        raise Retryable("VECTORS_UNEQUAL", "the model returned vectors of different lengths")


def chunking(payload: Mapping[str, Any]) -> tuple[int, int]:
    size = payload.get("chunk_size", CHUNK_SIZE)
    if not _is_whole(size) or not CHUNK_SIZE_MIN <= size <= CHUNK_SIZE_MAX:
        raise NonRetryable("PAYLOAD_INVALID", f"'chunk_size' must be from {CHUNK_SIZE_MIN} to {CHUNK_SIZE_MAX}")
    # The overlap may be omitted with small chunks, so its default depends on the size.
    overlap = payload.get("chunk_overlap", min(CHUNK_OVERLAP, size // 4))
    if not _is_whole(overlap) or not 0 <= overlap <= size // 2:
        raise NonRetryable("PAYLOAD_INVALID", "'chunk_overlap' must be from 0 to half of 'chunk_size'")
    return size, overlap


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

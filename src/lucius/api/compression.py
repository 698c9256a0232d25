"""Compresses answers that are long and that browsers ask for often."""

from __future__ import annotations

import asyncio
import gzip

from starlette.requests import Request
from starlette.responses import Response

COMPRESSED_FROM_BYTES = 1_400
"""A shorter answer fits into one packet as it is."""
LEVEL = 1
"""The grid of a batch is so regular that more effort gains little."""


async def compressed(request: Request, answer: Response) -> Response:
    """The answer, compressed in a thread if the caller takes that and it is long enough."""
    answer.headers["Vary"] = "Accept-Encoding"
    body = bytes(answer.body)
    if len(body) < COMPRESSED_FROM_BYTES or not _takes_gzip(request.headers.get("accept-encoding", "")):
        return answer
    answer.body = await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
    answer.headers["Content-Encoding"] = "gzip"
    answer.headers["Content-Length"] = str(len(answer.body))
    return answer


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.lower().split(","):
        name, _, quality = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False

"""HTTP to an issuer of tokens: no redirects, an answer of limited size, within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

SECONDS_MAX = 5.0
BYTES_MAX = 524_288

FETCH_ERRORS = (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError, ValueError)
"""What `fetch` raises if there is no usable answer."""


async def fetch(
    url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """The status and the content of an answer to GET, or to POST if there is a form. Raises `FETCH_ERRORS`."""
    sent = {"Accept": "application/json", **(headers or {})}
    async with (
        asyncio.timeout(SECONDS_MAX),
        httpx.AsyncClient(timeout=SECONDS_MAX, follow_redirects=False) as client,
        client.stream("GET" if form is None else "POST", url, headers=sent, data=form) as response,
    ):
        content = b""
        async for chunk in response.aiter_bytes(16_384):
            content += chunk
            if len(content) > BYTES_MAX:
                raise ValueError(f"the answer has more than {BYTES_MAX} bytes")
        return response.status_code, content

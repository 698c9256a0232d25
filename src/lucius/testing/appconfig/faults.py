"""Switches that make the server fail in the ways App Configuration does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lucius.testing.http_server import Request, Response


@dataclass(slots=True)
class Faults:
    """Each holds until it is switched off. Whether the server is reachable at all, its `stop` and `start` say."""

    slow_seconds: float = 0.0
    """How long every answer takes."""
    throttled_seconds: float | None = None
    """Every request is answered with 429 and this `Retry-After`."""
    unauthorized: bool = False
    """As when an access key was replaced: every request is answered with 401."""
    broken: bool = False
    """Every request is answered with 500."""
    writes_left: int | None = None
    """After so many more writes, writes are answered with 503."""

    def clear(self) -> None:
        self.slow_seconds = 0.0
        self.throttled_seconds = self.writes_left = None
        self.unauthorized = self.broken = False

    async def answer(self, request: Request) -> Response | None:
        """What to answer instead of the request's own answer."""
        if self.slow_seconds:
            await asyncio.sleep(self.slow_seconds)
        if self.throttled_seconds is not None:
            wait = f"{self.throttled_seconds:g}"
            return Response(429, headers={"Retry-After": wait, "retry-after-ms": f"{self.throttled_seconds * 1000:g}"})
        if self.unauthorized:
            return Response(401, headers={"WWW-Authenticate": "HMAC-SHA256"})
        if self.broken:
            return Response(500)
        if request.method in ("PUT", "DELETE") and self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                return Response(503)
        return None

"""Where directives come from: one seam for every kind of bus, chosen by the scheme of a URL.

A source hands out deliveries and is told what became of each. Over HTTP the orchestrator settles a directive by itself
when its ACK or RESULT arrives, so there is nothing to tell it; a broker's message is completed or given back here.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

from lucius.platform.errors import ServiceUnusable
from lucius.platform.orchestrator import Orchestrator

PULL_WAIT_SECONDS = 20.0
PULL_MAX = 100


class Delivery(Protocol):
    message: Any
    """The directive, as parsed JSON that nothing is known of yet."""

    async def complete(self) -> None:
        """The orchestrator has answered its ACK: it is not to be delivered again."""

    async def abandon(self) -> None:
        """It was not taken up: somebody else may have it."""


class Source(Protocol):
    async def receive(self, count_max: int) -> list[Delivery]:
        """Wait for at most so many deliveries; an empty list after a while is no failure.

        Raises `PullFailed`. Cancelling it loses nothing: what was on its way is delivered again.
        """


class HttpDelivery:
    def __init__(self, message: Any) -> None:
        self.message = message

    async def complete(self) -> None:
        return None

    async def abandon(self) -> None:
        return None


class HttpSource:
    """Long polls of `POST /v1/directives:pull`."""

    def __init__(self, orchestrator: Orchestrator, service: str) -> None:
        self._orchestrator = orchestrator
        self._service = service
        self._wait_seconds = 0.0

    async def receive(self, count_max: int) -> list[Delivery]:
        # The first pull, and the one after a failure, come back at once: they show that the orchestrator is there.
        wait_seconds, self._wait_seconds = self._wait_seconds, 0.0
        messages = await self._orchestrator.pull(self._service, min(count_max, PULL_MAX), wait_seconds)
        self._wait_seconds = PULL_WAIT_SECONDS
        return [HttpDelivery(message) for message in messages]


def open_source(url: str, orchestrator: Orchestrator, service: str) -> Source:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        return HttpSource(orchestrator, service)
    raise ServiceUnusable(f"directives cannot be taken from {scheme}://; this version knows http:// and https://")

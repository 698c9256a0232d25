"""Sources of directives: one interface, over HTTP (here) or the bus (`bus_source`).

A source returns deliveries and is notified of the outcome of each. Over HTTP the orchestrator settles a directive
itself when its ACK or RESULT arrives, so nothing needs to be sent; a broker's message is completed or abandoned here.
"""

from __future__ import annotations

from typing import Any, Protocol

from lucius.platform.orchestrator import Orchestrator

PULL_WAIT_SECONDS = 20.0
PULL_MAX = 100


class Delivery(Protocol):
    message: Any
    """The directive as parsed, unvalidated JSON."""

    async def complete(self) -> None:
        """The orchestrator has answered its ACK: do not deliver it again."""

    async def abandon(self) -> None:
        """It was not taken: another replica may have it."""

    async def refuse(self, reason: str) -> None:
        """It is not a directive."""

    async def claim(self) -> bool:
        """Whether no other replica can have it, before its ACK is sent. If the orchestrator answers ACKs, its answer
        decides, and this is true."""


class Source(Protocol):
    async def receive(self, count_max: int, /) -> list[Delivery]:
        """Wait for at most that many deliveries; an empty list after a while is not a failure.

        Raises `PullFailed`. Cancelling it loses nothing: deliveries under way are redelivered.
        """


class HttpDelivery:
    def __init__(self, message: Any) -> None:
        self.message = message

    async def complete(self) -> None:
        return None

    async def abandon(self) -> None:
        return None

    async def refuse(self, reason: str) -> None:
        return None

    async def claim(self) -> bool:
        return True


class HttpSource:
    """Long polls of `POST /v1/directives:pull`."""

    def __init__(self, orchestrator: Orchestrator, service: str) -> None:
        self._orchestrator = orchestrator
        self._service = service
        self._wait_seconds = 0.0

    async def receive(self, count_max: int, /) -> list[Delivery]:
        # The first pull, and the one after a failure, return at once: they show that the orchestrator is reachable.
        wait_seconds, self._wait_seconds = self._wait_seconds, 0.0
        messages = await self._orchestrator.pull(self._service, min(count_max, PULL_MAX), wait_seconds)
        self._wait_seconds = PULL_WAIT_SECONDS
        return [HttpDelivery(message) for message in messages]

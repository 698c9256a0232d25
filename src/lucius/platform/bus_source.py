"""Directives straight from the bus.

With callbacks over HTTP, the answer to the ACK says whether this replica has the attempt. With callbacks over the bus
there is no answer, so the bus decides, before the ACK is sent: a replica has the attempt if it has removed the
directive from its queue while the lock was certainly its own. Nobody else can have received it then, or will.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from lucius.client.backoff import backoff_seconds
from lucius.kit.bus import LANE_TOPICS, BusFailed, Incoming, KitBus
from lucius.platform.sources import PULL_MAX, Delivery

WAIT_SECONDS_MAX = 1.0
WAIT_SHARE = 0.2
"""Of the lock, for one call: a lock is taken to begin when the call for its message does."""
MARGIN_SHARE = 0.05
"""Of the lock: so much sooner than on the bus it ends here."""

log = logging.getLogger("lucius.platform")


class BusDelivery:
    def __init__(self, bus: KitBus, incoming: Incoming, message: Any, locked_until: float, claims: bool) -> None:
        self.message = message
        self._bus = bus
        self._ref = incoming.ref
        self._locked_until = locked_until
        self._claims = claims

    async def claim(self) -> bool:
        """Without answers, the replica that has removed the directive while it was locked has the attempt."""
        if not self._claims:
            return True
        if self._is_locked():
            await self._remove()
        return self._is_locked()

    async def complete(self) -> None:
        if not self._claims:
            await self._remove()

    async def abandon(self) -> None:
        if self._is_locked():
            await _if_reachable(self._bus.abandon([self._ref]))

    def _is_locked(self) -> bool:
        """Certainly, and for this replica."""
        return time.monotonic() < self._locked_until

    async def _remove(self) -> None:
        failures = 0
        while True:
            try:
                await self._bus.settle([self._ref])
                return
            except BusFailed as error:
                wait = backoff_seconds(failures, None)
                failures += 1
                if time.monotonic() + wait >= self._locked_until:
                    log.warning("%s: a directive could not be removed and may be delivered again", error)
                    self._locked_until = 0.0
                    return
            await asyncio.sleep(wait)

    async def refuse(self, reason: str) -> None:
        await _if_reachable(self._bus.dead_letter([self._ref], reason))


class BusSource:
    def __init__(self, bus: KitBus, service: str, lock_seconds: float, claims: bool) -> None:
        """`claims`: whether removing a directive decides who works on it, because callbacks are not answered."""
        self._bus = bus
        self._service = service
        self._lock_seconds = lock_seconds
        self._wait_seconds = min(WAIT_SECONDS_MAX, lock_seconds * WAIT_SHARE)
        self._claims = claims

    async def receive(self, count_max: int, /) -> list[Delivery]:
        began, limit = time.monotonic(), min(count_max, PULL_MAX)
        found = await self._bus.receive(LANE_TOPICS, self._service, limit, self._lock_seconds, self._wait_seconds)
        locked_until = began + self._lock_seconds * (1 - MARGIN_SHARE)
        deliveries: list[Delivery] = []
        for incoming in found:
            try:
                message = json.loads(incoming.body)
            except (ValueError, RecursionError):
                log.error("a message on a lane is not JSON; it is a dead letter now")
                await _if_reachable(self._bus.dead_letter([incoming.ref], "not a directive: not JSON"))
                continue
            deliveries.append(BusDelivery(self._bus, incoming, message, locked_until, self._claims))
        return deliveries


async def _if_reachable(call: Any) -> None:
    """If the bus is out of reach, the lock ends by itself and the message is delivered again."""
    try:
        await call
    except BusFailed as error:
        log.warning("%s", error)

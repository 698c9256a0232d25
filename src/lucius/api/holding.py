"""Calls that are held open: each occupies a slot, and is answered only if its caller is still connected and still
authorized."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from lucius.api.endpoint import Call
from lucius.domain.errors import CallerError, LuciusError
from lucius.ports.bus import Delivery
from lucius.settings import Settings
from lucius.usecases.waits import Slot, WaitKind

LOOK_SECONDS = 1.0
LOOKS_PER_SECOND_MAX = 200
"""How often all long polls together check their callers: with more polls, each checks less often."""


def hold(call: Call, kind: WaitKind) -> Slot:
    """Raises `CallerError` (WAITS_SATURATED) if the caller, or all callers together, have too many calls open."""
    return call.context.waits.take(kind, call.caller.name)


async def should_stop_waiting(call: Call) -> bool:
    """Whether to stop waiting: this process is stopping, or the caller has disconnected. Raises if the caller is no
    longer authorized."""
    await call.admit_again()
    return call.context.stopping.is_set() or _has_disconnected(call.request)


def _has_disconnected(request: Request) -> bool:
    """Whether the next message of the request has arrived and is its end. Starlette's `is_disconnected` starts a
    task and cancels it, which takes ten times as long."""
    receiving = request.receive().__await__()
    try:
        next(receiving)
    except StopIteration as received:
        return bool(received.value["type"] == "http.disconnect")
    receiving.close()
    return False


def check_pull(settings: Settings, limit: int, wait_seconds: float) -> None:
    """Raise `CallerError` if a pull requests too much at once, or too long a wait."""
    if not 0 <= limit <= settings.pull_max:
        raise CallerError.of("ENVELOPE_INVALID", f"max must be between 0 and {settings.pull_max}", "/max")
    if not 0 <= wait_seconds <= settings.wait_seconds_max:
        detail = f"wait_seconds must be between 0 and {settings.wait_seconds_max:g}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/wait_seconds")


async def long_poll(
    call: Call,
    wait_seconds: float,
    receive: Callable[[float], Awaitable[list[Delivery]]],
    still_allowed: Callable[[], None],
    before_waiting: Callable[[], Awaitable[None]] | None = None,
) -> list[Delivery]:
    """The messages that `receive` takes within `wait_seconds`, in waits of about a second. With `before_waiting`, the
    first receive does not wait, and `before_waiting` runs if it finds nothing. `still_allowed` raises if the caller, as
    last admitted, may not have these messages."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    with hold(call, WaitKind.WAIT) if wait_seconds else nullcontext():
        while True:
            left = 0.0 if before_waiting else max(0.0, min(deadline - loop.time(), _look_seconds(call)))
            taken = await receive(left)
            if wait_seconds and not await _can_deliver(call, taken, still_allowed):
                return []
            if taken:
                return taken
            if before_waiting is not None:
                await before_waiting()
                before_waiting = None
            if loop.time() >= deadline or call.context.stopping.is_set():
                return []
            # A bus may answer early with nothing, and uvloop's clock stands still until the loop goes round.
            await asyncio.sleep(0)


def _look_seconds(call: Call) -> float:
    """Randomized, so that not all polls check at the same time."""
    crowded_seconds = call.context.waits.held[WaitKind.WAIT] / LOOKS_PER_SECOND_MAX
    return random.uniform(0.7, 1.3) * max(LOOK_SECONDS, crowded_seconds)


async def _can_deliver(call: Call, taken: Sequence[Delivery], still_allowed: Callable[[], None]) -> bool:
    """Whether the caller can still receive these; if not, they are abandoned before their lock expires."""
    try:
        await call.admit_again()
        still_allowed()
        is_connected = not _has_disconnected(call.request)
    except LuciusError:
        await call.context.bus.abandon([delivery.ref for delivery in taken])
        raise
    if not is_connected:
        await call.context.bus.abandon([delivery.ref for delivery in taken])
    return is_connected


class Releasable(Protocol):
    def release(self) -> None: ...


class HeldStream(StreamingResponse):
    """A stream that holds a slot until it ends, whether it is read to the end, closed early, or fails."""

    def __init__(
        self, slot: Releasable, content: AsyncGenerator[bytes | str, None], media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._slot = slot
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.release()
            await self._content.aclose()

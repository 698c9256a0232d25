"""The stream of a page: the names of what changed, and nothing else."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from lucius.api.holding import HeldStream, hold
from lucius.api.jobs import SSE_KEEPALIVE_SECONDS, SSE_SECONDS_MAX
from lucius.console.page import View
from lucius.console.visitor import SignedOut, find_visitor
from lucius.domain.errors import CallerError
from lucius.usecases.changes import NAMES_MAX
from lucius.usecases.waits import RETRY_AFTER_SECONDS, Slot, WaitKind

PER_SESSION_MAX = 20
"""Streams of one session: each open page has one."""
LOOK_SECONDS = 1.0
LOOKS_PER_SECOND_MAX = 25
"""How often all streams together check that their sessions have not ended; with more, each checks less often."""

_NAME = re.compile(r"[a-z]{1,20}(:[A-Za-z0-9._-]{1,128})?")


class SessionSlot:
    """A slot of a caller's streams that also counts for the session."""

    def __init__(self, slot: Slot, streams: Counter[str], session_id: str) -> None:
        self._slot = slot
        self._streams = streams
        self._session_id = session_id
        streams[session_id] += 1

    def release(self) -> None:
        self._slot.release()
        self._streams[self._session_id] -= 1
        if not self._streams[self._session_id]:
            del self._streams[self._session_id]


class Streams:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def open(self, view: View) -> Response:
        names = _names(view.request)
        session = view.visitor.session_id
        if self._open[session] >= PER_SESSION_MAX:
            detail = f"{PER_SESSION_MAX} pages of this session are live, the maximum: close some"
            raise CallerError.of("WAITS_SATURATED", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        slot = SessionSlot(hold(view.call, WaitKind.STREAM), self._open, session)
        lines = self._lines(view, names)
        return HeldStream(slot, lines, "text/event-stream", {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def _lines(self, view: View, names: frozenset[str]) -> AsyncGenerator[bytes | str, None]:
        context, visitor = view.context, view.visitor
        began = quiet_since = looked_at = time.monotonic()

        def sees(tenant_id: str) -> bool:
            return visitor.principal.sees(tenant_id)

        try:
            with context.changes.following(names, sees) as follower:
                yield b"retry: 1000\n: connected\n\n"
                while time.monotonic() - began < SSE_SECONDS_MAX and not context.stopping.is_set():
                    look_seconds = max(LOOK_SECONDS, self._open.total() / LOOKS_PER_SECOND_MAX)
                    changed = await follower.next(look_seconds)
                    now = time.monotonic()
                    if now - looked_at >= look_seconds:
                        looked_at, visitor = now, await find_visitor(view.request, context)
                    if changed:
                        quiet_since = now
                        yield f"event: changed\ndata: {' '.join(changed)}\n\n"
                    elif now - quiet_since > SSE_KEEPALIVE_SECONDS:
                        quiet_since = now
                        yield b": still here\n\n"
        except SignedOut:
            yield b"event: ended\ndata: the session has ended\n\n"


def _names(request: Request) -> frozenset[str]:
    names = frozenset(request.query_params.get("names", "").split(","))
    if len(names) > NAMES_MAX or not all(_NAME.fullmatch(name) for name in names):
        raise CallerError.of("ENVELOPE_INVALID", f"names must be up to {NAMES_MAX} names such as jobs, with commas")
    return names

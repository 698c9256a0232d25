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
from lucius.usecases.waits import RETRY_AFTER_SECONDS, WaitKind

PER_SESSION_MAX = 20
"""Streams of one session: each open page has one."""
LOOK_SECONDS = 1.0
"""How often a stream checks that its session has not ended."""

_NAME = re.compile(r"[a-z]{1,20}(:[A-Za-z0-9._-]{1,128})?")


class Streams:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def open(self, view: View) -> Response:
        names = _names(view.request)
        session = view.visitor.session_id
        if self._open[session] >= PER_SESSION_MAX:
            detail = f"{PER_SESSION_MAX} pages of this session are live, the maximum: close some"
            raise CallerError.of("WAITS_SATURATED", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        slot = hold(view.call, WaitKind.STREAM)
        lines = self._lines(view, names)
        return HeldStream(slot, lines, "text/event-stream", {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def _lines(self, view: View, names: frozenset[str]) -> AsyncGenerator[bytes | str, None]:
        context, visitor = view.context, view.visitor
        self._open[visitor.session_id] += 1
        began = quiet_since = time.monotonic()

        def sees(tenant_id: str) -> bool:
            return visitor.principal.sees(tenant_id)

        try:
            with context.changes.following(names, sees) as follower:
                yield b"retry: 1000\n: connected\n\n"
                while time.monotonic() - began < SSE_SECONDS_MAX and not context.stopping.is_set():
                    changed = await follower.next(LOOK_SECONDS)
                    visitor = await find_visitor(view.request, context)
                    if changed:
                        quiet_since = time.monotonic()
                        yield f"event: changed\ndata: {' '.join(changed)}\n\n"
                    elif time.monotonic() - quiet_since > SSE_KEEPALIVE_SECONDS:
                        quiet_since = time.monotonic()
                        yield b": still here\n\n"
        except SignedOut:
            yield b"event: ended\ndata: the session has ended\n\n"
        finally:
            self._open[visitor.session_id] -= 1
            if not self._open[visitor.session_id]:
                del self._open[visitor.session_id]


def _names(request: Request) -> frozenset[str]:
    names = frozenset(request.query_params.get("names", "").split(","))
    if len(names) > NAMES_MAX or not all(_NAME.fullmatch(name) for name in names):
        raise CallerError.of("ENVELOPE_INVALID", f"names must be up to {NAMES_MAX} names such as jobs, with commas")
    return names

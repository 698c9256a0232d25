"""Why a run stops before its plan is done."""

from __future__ import annotations

from typing import Literal

from lucius.client.errors import ClientError, Refused

Reason = Literal["INTERRUPTED", "STALLED", "REFUSED", "UNREACHABLE"]


class Halt:
    """Set once: the first reason is kept. Interrupting again only shortens the wait."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self.cause: ClientError | None = None
        self.at_once = False

    def interrupt(self) -> None:
        self.at_once = self.reason is not None
        self.reason = self.reason or "INTERRUPTED"

    def stall(self) -> None:
        self.reason = self.reason or "STALLED"

    def fail(self, cause: ClientError) -> None:
        if self.reason is None:
            self.reason = "REFUSED" if isinstance(cause, Refused) else "UNREACHABLE"
            self.cause = cause

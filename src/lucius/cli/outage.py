"""Calls of a command that waits: while the server is away, it says so and tries again, within a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lucius.cli.connection import ApiSession
from lucius.cli.failures import CommandFailed, Unreachable, printable, problem_text
from lucius.cli.output.printing import show_line
from lucius.client.call import Script
from lucius.client.errors import ClientError
from lucius.client.retrying import may_pass

if TYPE_CHECKING:
    from rich.console import RenderableType

UNMENTIONED_SECONDS = 1.0
"""A shorter outage, such as one refused call, is not worth a line."""
PAUSE_SECONDS = 0.25
PAUSE_SECONDS_MAX = 2.0

T = TypeVar("T")
Say = Callable[[str], None]


class PatientSession:
    """Repeats a call until it is answered. Only for calls that change nothing."""

    def __init__(
        self, client: ApiSession, away_seconds_max: float, what: str, say: Say, stop: threading.Event | None = None
    ) -> None:
        self._client = client
        self._away_seconds_max = away_seconds_max
        self._what = what
        self._say = say
        self._stop = stop or threading.Event()

    def run(self, script: Callable[[], Script[T]]) -> T:
        """`script` is called again for each try. Raises the last failure once the server was away for too long."""
        away_since: float | None = None
        is_mentioned = False
        pause = PAUSE_SECONDS
        while True:
            try:
                answer = self._client.run(script())
                break
            except CommandFailed as error:
                cause = error.__cause__
                if not isinstance(cause, ClientError) or not may_pass(cause) or self._stop.is_set():
                    raise
                now = time.monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since >= UNMENTIONED_SECONDS and not is_mentioned:
                    is_mentioned = True
                    self._say(self._outage(cause))
                left = self._away_seconds_max - (now - away_since)
                if left <= 0:
                    message = f"{error.message}\n{self._what} continues when the server does."
                    raise Unreachable(message) from error
            self._stop.wait(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        if is_mentioned and away_since is not None:
            self._say(f"The server answers again after {time.monotonic() - away_since:.0f} s.")
        return answer

    def _outage(self, cause: ClientError) -> str:
        reason = cause.message if cause.status is None else problem_text(cause.status, cause.problem).splitlines()[0]
        limit = f"it is tried for up to {self._away_seconds_max:g} s"
        return f"{self._client.transport.url} does not answer: {reason}; {limit}."


def say_on_stderr(line: str) -> None:
    show_line(line, err=True)


class Note:
    """What was said last, for a view that is redrawn: a line beside it would be overwritten."""

    def __init__(self) -> None:
        self._text = ""

    def __call__(self, line: str) -> None:
        self._text = line

    def below(self, view: RenderableType) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(view, Text(""), Text(printable(self._text), "yellow")) if self._text else view

"""Calls of a command that waits: while the server is away, it says so and tries again, within a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import click

from lucius.cli.connection import ApiSession
from lucius.cli.failures import CommandFailed, Unreachable, problem_text
from lucius.cli.output.printing import show_line
from lucius.client.call import Script
from lucius.client.errors import ClientError
from lucius.client.retrying import may_pass

UNMENTIONED_SECONDS = 1.0
"""A shorter outage, such as one refused call, is not worth a line."""
PAUSE_SECONDS = 0.25
PAUSE_SECONDS_MAX = 2.0

T = TypeVar("T")


class PatientSession:
    """Repeats a call until it is answered. Only for calls that change nothing."""

    def __init__(self, client: ApiSession, away_seconds_max: float, what: str, stop: threading.Event) -> None:
        self._client = client
        self._away_seconds_max = away_seconds_max
        self._what = what
        self._stop = stop

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
                    self._say(cause)
                left = self._away_seconds_max - (now - away_since)
                if left <= 0:
                    message = f"{error.message}\n{self._what} continues when the server does."
                    raise Unreachable(message) from error
            self._stop.wait(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        if is_mentioned and away_since is not None:
            click.echo(f"The server answers again after {time.monotonic() - away_since:.0f} s.", err=True)
        return answer

    def _say(self, cause: ClientError) -> None:
        reason = cause.message if cause.status is None else problem_text(cause.status, cause.problem).splitlines()[0]
        limit = f"it is tried for up to {self._away_seconds_max:g} s"
        show_line(f"{self._client.transport.url} does not answer: {reason}; {limit}.", err=True)

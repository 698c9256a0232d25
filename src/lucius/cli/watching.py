"""Waiting for a job, with or without something to look at. No wait is without an end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from lucius.cli.client import LONG_POLL_SECONDS_MAX, TERMINAL, Client
from lucius.cli.failures import TimedOut
from lucius.cli.output import open_console
from lucius.cli.render import change_lines, job_view, waiting_line, waiting_of
from lucius.cli.wording import moment

Job = dict[str, Any]

PATIENCE_SECONDS = 30.0
"""How long a server may be away (it restarts, say) before a wait ends with an error."""
POLL_SECONDS = 0.25
POLL_SLOW_SECONDS = 1.0
POLL_SLOW_AFTER_SECONDS = 30.0
REDRAWS_PER_SECOND = 5.0
NOTEWORTHY_SECONDS = 5.0
"""A wait that has lasted so long is worth a line of its own where nothing is redrawn."""


def wait_for_end(client: Client, job_id: str, timeout_seconds: float) -> Job:
    """The job when it has ended; the server holds each call open, so this costs next to nothing."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        job = client.job(job_id, min(left, LONG_POLL_SECONDS_MAX), patience_seconds=min(left, PATIENCE_SECONDS))
        if job.get("status") in TERMINAL:
            return job
        if time.monotonic() >= deadline:
            raise _timed_out(job, timeout_seconds)
        # A server that answers at once in spite of `wait_seconds` must not be asked in a tight loop.
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def watch(client: Client, job_id: str, timeout_seconds: float, stop: threading.Event | None = None) -> Job:
    """Show the job until it ends: redrawn in place on a terminal, as lines of changes elsewhere."""
    if sys.stdout.isatty():
        return _watch_on_terminal(client, job_id, timeout_seconds, stop)
    lines = ChangeLines()

    def show(job: Job) -> None:
        for line in lines.of(job, datetime.now(UTC)):
            click.echo(line)

    return _poll(client, job_id, timeout_seconds, show, stop)


class ChangeLines:
    """What is new since the last look, as lines: changes, and waits that last."""

    def __init__(self) -> None:
        self._before: Job | None = None
        self._told: tuple[Any, Any] | None = None

    def of(self, job: Job, now: datetime) -> list[str]:
        lines = change_lines(self._before, job, now)
        self._before = job
        waiting = waiting_of(job)
        wait, since = (waiting.get("what"), waiting.get("since")), moment(waiting.get("since"))
        # Retries, starts and resumes are waited for by their nature; the others only if they do not come about soon.
        is_slow = since is not None and (now - since).total_seconds() >= NOTEWORTHY_SECONDS
        if wait != self._told and (wait[0] in ("START", "RETRY", "RESUME") or is_slow):
            self._told = wait
            lines.append(waiting_line(job, now))
        return lines


def _watch_on_terminal(client: Client, job_id: str, timeout_seconds: float, stop: threading.Event | None) -> Job:
    from rich.live import Live

    latest: Job = client.job(job_id)
    console = open_console()

    def show(job: Job) -> None:
        nonlocal latest
        latest = job

    try:
        with Live(
            console=console,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            get_renderable=lambda: job_view(latest, datetime.now(UTC), console.width, live=True),
        ):
            return _poll(client, job_id, timeout_seconds, show, stop)
    finally:
        # What stays on the screen is whole, however the watching ended.
        console.print(job_view(latest, datetime.now(UTC), console.width))


def _poll(
    client: Client,
    job_id: str,
    timeout_seconds: float,
    show: Callable[[Job], None],
    stop: threading.Event | None,
) -> Job:
    stop = stop or threading.Event()
    started = time.monotonic()
    while True:
        job = client.job(job_id, patience_seconds=PATIENCE_SECONDS)
        show(job)
        elapsed = time.monotonic() - started
        if job.get("status") in TERMINAL or stop.is_set():
            return job
        if elapsed >= timeout_seconds:
            raise _timed_out(job, timeout_seconds)
        slow = elapsed > POLL_SLOW_AFTER_SECONDS
        stop.wait(min(POLL_SLOW_SECONDS if slow else POLL_SECONDS, timeout_seconds - elapsed))


def _timed_out(job: Job, timeout_seconds: float) -> TimedOut:
    return TimedOut(f"job {job.get('jobId')} is still {job.get('status')} after {timeout_seconds:g} s; it goes on")

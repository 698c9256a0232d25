"""Waits for a job and shows its progress. Every wait has a timeout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.connection import ApiSession
from lucius.cli.failures import TimedOut
from lucius.cli.jobs.render import change_lines, job_view, waiting_line, waiting_of
from lucius.cli.outage import Note, PatientSession, Say, say_on_stderr
from lucius.cli.output.formatting import moment
from lucius.cli.output.live import redrawn
from lucius.client.calls import jobs as job_calls
from lucius.client.statuses import JOB_TERMINAL

if TYPE_CHECKING:
    from rich.console import RenderableType

Job = dict[str, Any]

POLL_SECONDS = 0.25
POLL_SLOW_SECONDS = 1.0
POLL_SLOW_AFTER_SECONDS = 30.0
REDRAWS_PER_SECOND = 5.0
AWAY_SECONDS_MAX = 300.0
"""How long the server may be away before a watch gives up."""
NOTEWORTHY_SECONDS = 5.0
"""Outside a live view, a wait of this length gets its own line."""


def watch(client: ApiSession, job_id: str, timeout_seconds: float, stop: threading.Event | None = None) -> Job:
    """Show the job until it ends: redrawn in place on a terminal, as lines of changes elsewhere."""
    if sys.stdout.isatty():
        return _watch_on_terminal(client, job_id, timeout_seconds, stop)
    lines = ChangeLines()

    def show(job: Job) -> None:
        for line in lines.of(job, datetime.now(UTC)):
            click.echo(line)

    return _poll(client, job_id, timeout_seconds, show, say_on_stderr, stop)


class ChangeLines:
    """Lines for what is new since the last poll: changes, and long waits."""

    def __init__(self) -> None:
        self._before: Job | None = None
        self._reported_wait: tuple[Any, Any] | None = None

    def of(self, job: Job, now: datetime) -> list[str]:
        lines = change_lines(self._before, job, now)
        self._before = job
        waiting = waiting_of(job)
        wait, since = (waiting.get("what"), waiting.get("since")), moment(waiting.get("since"))
        # Waits for a start, a retry or a resume are always reported, others only if they last.
        is_slow = since is not None and (now - since).total_seconds() >= NOTEWORTHY_SECONDS
        if wait != self._reported_wait and (wait[0] in ("START", "RETRY", "RESUME") or is_slow):
            self._reported_wait = wait
            lines.append(waiting_line(job, now))
        return lines


def _watch_on_terminal(client: ApiSession, job_id: str, timeout_seconds: float, stop: threading.Event | None) -> Job:
    latest: Job = client.run(job_calls.get_job(job_id))

    def show(job: Job) -> None:
        nonlocal latest
        latest = job

    note = Note()

    def view(width: int, live: bool) -> RenderableType:
        shown = job_view(latest, datetime.now(UTC), width, live=live)
        return note.below(shown) if live else shown

    with redrawn(view, REDRAWS_PER_SECOND):
        return _poll(client, job_id, timeout_seconds, show, note, stop)


def _poll(
    client: ApiSession,
    job_id: str,
    timeout_seconds: float,
    show: Callable[[Job], None],
    say: Say,
    stop: threading.Event | None,
) -> Job:
    stop = stop or threading.Event()
    patient = PatientSession(client, min(AWAY_SECONDS_MAX, timeout_seconds), f"Job {job_id}", say, stop)
    started = time.monotonic()
    while True:
        job = patient.run(lambda: job_calls.get_job(job_id))
        show(job)
        elapsed = time.monotonic() - started
        if job.get("status") in JOB_TERMINAL or stop.is_set():
            return job
        if elapsed >= timeout_seconds:
            raise _timed_out(job, timeout_seconds)
        slow = elapsed > POLL_SLOW_AFTER_SECONDS
        stop.wait(min(POLL_SLOW_SECONDS if slow else POLL_SECONDS, timeout_seconds - elapsed))


def _timed_out(job: Job, timeout_seconds: float) -> TimedOut:
    return TimedOut(f"job {job.get('jobId')} is still {job.get('status')} after {timeout_seconds:g} s; it continues")

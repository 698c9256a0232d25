"""What one execution waits for, in plain sentences."""

from __future__ import annotations

from collections.abc import Callable

from lucius.domain.time import after, iso
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.records import Absence
from lucius.runbooks.core.start_rules import is_sent_anyway
from lucius.runbooks.core.states import (
    POLLING,
)

ERROR_SHOWN_CHARS = 200


Absent = Callable[[str], str | None]
"""A sentence without its full stop if no worker of this id asks for work; None if one does."""


def nobody_absent(worker_id: str) -> str | None:
    return None


def execution_waits(
    one: Execution,
    max_parallel: int | None,
    retries_max: int | None = None,
    absent: Absent = nobody_absent,
    wait: Wait | None = None,
) -> str:
    """What an open execution waits for. `wait`: why its batch sends nothing new."""
    head = f"step {one.step_name}"
    deadline = "" if one.poll_deadline is None else f", gives up at {iso(one.poll_deadline)}"
    if one.in_flight:
        since = one.last_polled_at if one.status == POLLING else one.dispatched_at
        until = "" if one.timeout_at is None else f", times out at {iso(one.timeout_at)}"
        nobody = absent(one.worker_id)
        if nobody is not None:
            return f"{head}: {nobody}{until}"
        found = "" if since is None else f" since {iso(since)}"
        return f"{head} is with worker {one.worker_id}{found}{until}"
    if one.retry_at is not None:
        used = f"{one.retries_used} of {retries_max} used" if retries_max else f"{one.retries_used} used"
        return f"{head} retries at {iso(one.retry_at)} ({used}): last error {clipped(one.error_message)}"
    if one.ready and wait is not None and not is_sent_anyway(one):
        return f"{head} waits until {iso(wait.until_at)}: {wait.because}"
    if one.ready:
        slot = f" (max_parallel {max_parallel})" if max_parallel else ""
        return f"{head} waits for a free slot{slot}"
    if one.status == POLLING and one.last_polled_at is not None and one.poll_interval_sec is not None:
        again = after(one.last_polled_at, one.poll_interval_sec)
        return f"{head} polls again at {iso(again)}{deadline}"
    return f"{head} waits for the step before it"


def clipped(text: str | None) -> str:
    shown = " ".join((text or "none").split())
    return shown if len(shown) <= ERROR_SHOWN_CHARS else shown[:ERROR_SHOWN_CHARS] + "…"


def missing(absence: Absence) -> str:
    return (
        f"missing from the source since {iso(absence.since)}, and if still missing, removed by the first reading from"
        f" {iso(absence.removal_at)} on"
    )

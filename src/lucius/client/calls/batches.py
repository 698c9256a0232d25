"""Batches: groups of members that go through a runbook."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import quote

from lucius.client.call import Json, Pause, Script, get, post
from lucius.client.calls.pages import given, paged
from lucius.client.errors import WaitTimedOut, content_of
from lucius.client.retrying import PATIENCE_SECONDS
from lucius.client.statuses import BATCH_ENDED

BATCHES_LIMIT = 50
MEMBERS_LIMIT = 50
EVENTS_LIMIT = 100
WAIT_SECONDS = 86_400.0
LOOK_SECONDS = 0.5
LOOK_SLOW_SECONDS = 2.0
LOOK_SLOW_AFTER_SECONDS = 60.0


def batch_path(batch_id: int) -> str:
    return f"/v1/batches/{batch_id}"


def list_batches(
    *, runbook: str | None = None, status: str | None = None, limit: int = BATCHES_LIMIT, cursor: str = ""
) -> Script[Json]:
    """Batches, newest first: at most `limit`."""
    return (yield from paged("/v1/batches", given(runbook=runbook, status=status), limit, cursor))


def create(runbook: str, csv: str, *, start: str | None = None, advance: str = "time") -> Script[Json]:
    """Create a batch from the members in a CSV text. `advance` is `time` or `manual`; `start` is now by default."""
    body = {"runbook": runbook, "csv": csv, "advance": advance} | ({"start": start} if start else {})
    return content_of((yield post("/v1/batches", body)))


def get_batch(batch_id: int, *, patience_seconds: float | None = None) -> Script[Json]:
    """A batch: its phases, their progress, and what it waits for."""
    return content_of((yield get(batch_path(batch_id), patience_seconds=patience_seconds)))


def wait(
    batch_id: int, *, timeout_seconds: float = WAIT_SECONDS, patience_seconds: float = PATIENCE_SECONDS
) -> Script[Json]:
    """The batch when it has ended. Raises `WaitTimedOut` after `timeout_seconds`; the batch then continues. The server
    may be unavailable for `patience_seconds` at a time."""
    started_at = time.monotonic()
    while True:
        left = started_at + timeout_seconds - time.monotonic()
        batch = yield from get_batch(batch_id, patience_seconds=min(max(left, 0.0), patience_seconds))
        if batch.get("status") in BATCH_ENDED:
            return batch
        yield Pause(next_look_seconds(batch, batch_id, time.monotonic() - started_at, timeout_seconds))


def next_look_seconds(batch: Json, batch_id: int, elapsed_seconds: float, timeout_seconds: float) -> float:
    """How long to wait before the batch is read again. Raises `WaitTimedOut`."""
    if elapsed_seconds >= timeout_seconds:
        message = f"batch {batch_id} is still {batch.get('status')} after {timeout_seconds:g} s; it continues"
        raise WaitTimedOut(message, batch)
    is_slow = elapsed_seconds > LOOK_SLOW_AFTER_SECONDS
    return min(LOOK_SLOW_SECONDS if is_slow else LOOK_SECONDS, timeout_seconds - elapsed_seconds)


def members(
    batch_id: int, *, status: str = "all", key: str | None = None, limit: int = MEMBERS_LIMIT, cursor: str = ""
) -> Script[Json]:
    """Members with every step, in the order in which they joined. `status`: active, removed, failed, held or all."""
    query = {"status": status} | ({"key": key} if key is not None else {})
    return (yield from paged(batch_path(batch_id) + "/members", query, limit, cursor))


def events(batch_id: int, *, limit: int = EVENTS_LIMIT, cursor: str = "") -> Script[Json]:
    """The audit trail of a batch, newest first."""
    return (yield from paged(batch_path(batch_id) + "/events", {}, limit, cursor))


def grid(batch_id: int, *, since: int | None = None) -> Script[Json]:
    """Members × steps, one character a cell: whole, or what has changed since the `number` of an earlier answer."""
    query = given(since=None if since is None else str(since))
    return content_of((yield get(batch_path(batch_id) + "/grid", query)))


def export(batch_id: int, *, status: str = "all") -> Script[bytes]:
    """The batch as CSV: a row for each member, a column for each step. `status`: as in `members`."""
    response = yield get(batch_path(batch_id) + "/export", {} if status == "all" else {"status": status})
    return response.body


def advance(batch_id: int, *, reason: str | None = None) -> Script[Json]:
    """Begin the next phase now, regardless of when it is due."""
    return (yield from act(batch_id, "advance", given(reason=reason)))


def cancel(batch_id: int, *, reason: str | None = None) -> Script[Json]:
    """Send nothing more; jobs that workers hold may finish, and rollbacks continue."""
    return (yield from act(batch_id, "cancel", given(reason=reason)))


def approve(batch_id: int, phase: str, *, reason: str | None = None) -> Script[Json]:
    """Approve a phase that needs it; neither who published the version nor who created the batch may."""
    return (yield from decide(batch_id, phase, "approve", given(reason=reason)))


def refuse(batch_id: int, phase: str, *, reason: str | None = None) -> Script[Json]:
    """Refuse a phase that needs approval: it and later ones do not begin, and the batch fails."""
    return (yield from decide(batch_id, phase, "refuse", given(reason=reason)))


def decide(batch_id: int, phase: str, verb: str, body: Json) -> Script[Json]:
    return content_of((yield post(f"{batch_path(batch_id)}/phases/{quote(phase, safe='')}:{verb}", body)))


def pause(batch_id: int, *, reason: str | None = None) -> Script[Json]:
    """Send and begin nothing new; what workers have begun goes on to its end."""
    return (yield from act(batch_id, "pause", given(reason=reason)))


def resume(batch_id: int, *, reason: str | None = None) -> Script[Json]:
    """Resume a batch that was paused, or that `max_failures` put on hold."""
    return (yield from act(batch_id, "resume", given(reason=reason)))


def reschedule(
    batch_id: int, start: str, *, dry_run: bool = False, if_start: str | None = None, reason: str | None = None
) -> Script[Json]:
    """Move the phases that have not begun, as if the batch started at `start` (ISO 8601). `dry_run`: only show what
    would move. `if_start`: only if it starts at this time now."""
    body = {"start": start, "dry_run": dry_run, **given(if_start=if_start, reason=reason)}
    return (yield from act(batch_id, "reschedule", body))


def retry(
    batch_id: int, members: Sequence[str] | None = None, *, reason: str | None = None, not_started: bool = False
) -> Script[Json]:
    """Retry the failed step of failed members (all of them by default). `not_started`: instead, members that
    `max_failures` stopped before their steps began."""
    body = _named(members) | given(reason=reason) | ({"not_started": True} if not_started else {})
    return (yield from act(batch_id, "retry", body))


def confirm_move(batch_id: int, members: Sequence[str] | None = None, *, reason: str | None = None) -> Script[Json]:
    """Let held members (all of them by default) move to the date that the source has for them."""
    return (yield from act(batch_id, "confirm-move", _named(members) | given(reason=reason)))


def keep(batch_id: int, members: Sequence[str] | None = None, *, reason: str | None = None) -> Script[Json]:
    """Keep held members (all of them by default) in the batch although the source has another date for them."""
    return (yield from act(batch_id, "keep", _named(members) | given(reason=reason)))


def send_again(batch_id: int, messages: Sequence[str] | None = None) -> Script[Json]:
    """Send dead-lettered messages again: these, or all that the batch still waits for."""
    return (yield from act(batch_id, "send-again", {} if messages is None else {"messages": list(messages)}))


def remove(batch_id: int, members: Sequence[str], *, reason: str | None = None) -> Script[Json]:
    """Remove members; their removal steps run."""
    return (yield from act(batch_id, "remove", _named(members) | given(reason=reason)))


def add(batch_id: int, csv: str, *, reason: str | None = None) -> Script[Json]:
    """Add the members in a CSV text; they catch up on the phases that have begun."""
    return (yield from act(batch_id, "add", {"csv": csv} | given(reason=reason)))


def _named(members: Sequence[str] | None) -> Json:
    return {} if members is None else {"members": list(members)}


def act(batch_id: int, verb: str, body: Json | None = None) -> Script[Json]:
    return content_of((yield post(f"{batch_path(batch_id)}:{verb}", body or {})))

"""The table `notifications`: what is due, what became of it, and lists of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from lucius.domain.notifications import Facts, Recipient
from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script

PENDING, DELIVERED, GIVEN_UP = "PENDING", "DELIVERED", "GIVEN_UP"
STATUSES = (PENDING, DELIVERED, GIVEN_UP)

_COLUMNS = (
    "notification_id, owner, recipient_name, cause, facts, recipient, status, attempts, created_at, due_at, next_at,"
    " ended_at, last_error"
)
ANY_DUE = "SELECT 1 FROM notifications WHERE status = 'PENDING' AND next_at <= $1 LIMIT 1"
_DUE = (  # What was never tried comes first: an address that never answers keeps nobody waiting.
    f"SELECT {_COLUMNS} FROM notifications WHERE status = 'PENDING' AND next_at <= $1 AND NOT (owner = ANY($3::text[]))"
    " ORDER BY attempts, next_at LIMIT $2 FOR UPDATE SKIP LOCKED"
)
_CLAIM = "UPDATE notifications SET next_at = $2 WHERE notification_id = $1"
_DONE = (
    "UPDATE notifications SET status = $2, attempts = $3, next_at = $4, ended_at = $5, last_error = $6"
    " WHERE notification_id = $1 AND status = 'PENDING'"
)
_SHORTEN = "UPDATE notifications SET next_at = $1 WHERE status = 'PENDING' AND next_at > $2"
_GET = f"SELECT {_COLUMNS} FROM notifications WHERE notification_id = $1"
_FORGET = (
    "DELETE FROM notifications WHERE notification_id IN (SELECT notification_id FROM notifications"
    " WHERE status <> 'PENDING' AND ended_at < $1 ORDER BY ended_at LIMIT $2)"
)
_FORGET_CAUSES = (
    "DELETE FROM notification_causes WHERE cause_key IN (SELECT cause_key FROM notification_causes"
    " WHERE free_at < $1 ORDER BY free_at LIMIT $2)"
)
COUNT_WAITING = "SELECT COUNT(*), MIN(next_at) FROM notifications WHERE status = 'PENDING'"


class Notification(Struct, frozen=True, kw_only=True):
    notification_id: str
    owner: str
    recipient_name: str
    cause: str
    facts: Facts
    recipient: Recipient
    status: str
    attempts: int
    created_at: Instant
    due_at: Instant
    next_at: Instant
    ended_at: Instant | None
    last_error: str | None


class NotificationFilter(Struct, frozen=True, kw_only=True):
    owners: tuple[str, ...] | None = None
    """Only of these runbooks and tenants; None is all."""
    status: str | None = None


_decode_facts = msgspec.json.Decoder(Facts).decode
_decode_recipient = msgspec.json.Decoder(Recipient).decode


def _read(row: Sequence[object]) -> Notification:
    values = dict(zip(Notification.__struct_fields__, row, strict=True))
    values["facts"] = _decode_facts(str(values["facts"]))
    values["recipient"] = _decode_recipient(str(values["recipient"]))
    return Notification(**values)  # type: ignore[arg-type]


def any_due(now: Instant) -> Script[bool]:
    return bool((yield Fetch(ANY_DUE, [now])))


def claim(now: Instant, until: Instant, limit: int, busy_owners: Sequence[str]) -> Script[list[Notification]]:
    """Take what is due, except of owners that are busy: no other process gets it before `until`."""
    found = [_read(row) for row in (yield Fetch(_DUE, (now, limit, list(busy_owners))))]
    if found:
        yield Run(_CLAIM, [(one.notification_id, until) for one in found])
    return found


def done(one: Notification) -> Script[None]:
    """Write what became of a try: an end, or when to try again."""
    yield Run(_DONE, [(one.notification_id, one.status, one.attempts, one.next_at, one.ended_at, one.last_error)])


def shorten_waits(latest: Instant, now: Instant) -> Script[None]:
    """Make due whatever waits longer than any wait: a clock that was ahead wrote it."""
    yield Run(_SHORTEN, [(now, latest)])


def get(notification_id: str) -> Script[Notification | None]:
    rows = yield Fetch(_GET, [notification_id])
    return _read(rows[0]) if rows else None


def listed(filter_: NotificationFilter, limit: int, before_id: str | None) -> Script[list[Notification]]:
    """Newest first; `before_id` continues after that one."""
    conditions, args = ["1 = 1"], list[object]()
    for text, value in (
        ("owner = ANY(${}::text[])", None if filter_.owners is None else list(filter_.owners)),
        ("status = ${}", filter_.status),
        ("notification_id < ${}", before_id),
    ):
        if value is not None:
            args.append(value)
            conditions.append(text.format(len(args)))
    args.append(limit)
    rows = yield Fetch(
        f"SELECT {_COLUMNS} FROM notifications WHERE {' AND '.join(conditions)}"
        f" ORDER BY notification_id DESC LIMIT ${len(args)}",
        args,
    )
    return [_read(row) for row in rows]


def forget(ended_before: Instant, limit: int) -> Script[None]:
    """Delete what ended, and causes that were free, before this time: up to `limit` of each."""
    yield Run(_FORGET, [(ended_before, limit)])
    yield Run(_FORGET_CAUSES, [(ended_before, limit)])


def waiting() -> Script[tuple[int, Instant | None]]:
    rows = yield Fetch(COUNT_WAITING)
    return int(rows[0][0]), rows[0][1]

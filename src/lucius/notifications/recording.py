"""Records notices in the transaction of what they tell, at most one for one cause in its interval.

What happens again within the interval is not lost: it is one more notification, due when the interval ends, and
everything that follows until then is counted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from lucius.domain.notifications import Facts, Notice
from lucius.domain.time import Instant, after
from lucius.ports.audit import new_entry_id
from lucius.ports.database import Fetch, Run, Script

_MAKE_CAUSE = (
    "INSERT INTO notification_causes (cause_key, last_id, last_due_at, free_at) VALUES ($1, '', 0, 0)"
    " ON CONFLICT (cause_key) DO NOTHING"
)
_LOCK_CAUSES = (
    "SELECT cause_key, last_id, last_due_at, free_at FROM notification_causes WHERE cause_key = ANY($1::text[])"
    " ORDER BY cause_key FOR UPDATE"
)
_MOVE_CAUSE = "UPDATE notification_causes SET last_id = $2, last_due_at = $3, free_at = $4 WHERE cause_key = $1"
_WAITING = (  # A claim moves `next_at`: a notification that is being sent takes nothing more.
    "SELECT notification_id, facts FROM notifications WHERE notification_id = ANY($1::text[]) AND status = 'PENDING'"
    " AND next_at = due_at FOR UPDATE"
)
_ADD_TO = "UPDATE notifications SET facts = $2 WHERE notification_id = $1"
_INSERT = (
    "INSERT INTO notifications (notification_id, owner, recipient_name, cause, tenant_id, runbook_name, batch_id,"
    " job_id, facts, recipient, status, attempts, created_at, due_at, next_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'PENDING', 0, $11, $12, $13)"
)
_NEW_MARKS = (
    "INSERT INTO notification_causes (cause_key, last_id, last_due_at, free_at) VALUES ($1, '', 0, $2)"
    " ON CONFLICT (cause_key) DO NOTHING RETURNING cause_key"
)
_encode = msgspec.json.Encoder().encode
_decode_facts = msgspec.json.Decoder(Facts).decode


class _CauseRow(NamedTuple):
    key: str
    last_id: str
    last_due_at: Instant
    free_at: Instant


class Recorded(NamedTuple):
    notification_id: str
    due_at: Instant


def record(notices: Sequence[Notice], now: Instant) -> Script[list[Recorded]]:
    """Write these notices; returns those that became notifications of their own. Call it as late as possible in a
    transaction: it locks the rows of the causes, by key."""
    if not notices:
        return []
    keys = sorted({notice.key for notice in notices})
    yield Run(_MAKE_CAUSE, [(key,) for key in keys])
    causes = {row[0]: _CauseRow(*row) for row in (yield Fetch(_LOCK_CAUSES, [keys]))}
    open_ids = sorted({row.last_id for row in causes.values() if row.last_due_at > now})
    found = (yield Fetch(_WAITING, [open_ids])) if open_ids else []
    waiting = {row[0]: _decode_facts(row[1]) for row in found}
    rows: dict[str, tuple[Recorded, Notice]] = {}
    grown: dict[str, Facts] = {}
    for notice in notices:
        cause = causes[notice.key]
        if cause.last_id in rows:
            was = rows[cause.last_id]
            rows[cause.last_id] = was[0], Notice(_with_more(was[1].facts, notice.facts), notice.recipient)
            continue
        if cause.last_due_at > now and cause.last_id in waiting:
            grown[cause.last_id] = _with_more(grown.get(cause.last_id, waiting[cause.last_id]), notice.facts)
            continue
        due_at = max(now, cause.free_at)
        recorded = Recorded(new_entry_id(now), due_at)
        rows[recorded.notification_id] = recorded, notice
        free_at = after(due_at, notice.recipient.interval_seconds)
        causes[notice.key] = _CauseRow(notice.key, recorded.notification_id, due_at, free_at)
    if grown:
        yield Run(_ADD_TO, [(key, _encode(facts).decode()) for key, facts in sorted(grown.items())])
    if rows:
        yield Run(_INSERT, [_values(recorded, notice, now) for recorded, notice in rows.values()])
        yield Run(_MOVE_CAUSE, [row for row in sorted(causes.values()) if row.last_id in rows])
    return [recorded for recorded, _ in rows.values()]


def first_time(marks: Sequence[tuple[str, Instant]]) -> Script[set[str]]:
    """Of these marks, each with the time until which it is kept, those that nobody has set before; sets them."""
    new = set()
    for key, until in sorted(marks):
        for row in (yield Fetch(_NEW_MARKS, (key, until))):
            new.add(row[0])
    return new


def _with_more(was: Facts, now: Facts) -> Facts:
    """The newest facts, and how often they have occurred."""
    return replace(now, count=was.count + now.count)


def _values(recorded: Recorded, notice: Notice, now: Instant) -> tuple[object, ...]:
    facts, recipient = notice.facts, notice.recipient
    return (
        recorded.notification_id, facts.owner, recipient.name, facts.cause.value, facts.tenant_id, facts.runbook,
        facts.batch_id, facts.job_id, _encode(facts).decode(), _encode(recipient).decode(), now, recorded.due_at,
        recorded.due_at,
    )  # fmt: skip

"""What is kept of a runbook beside its versions: whether automation is on, and how its source was last found."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.sql.database import Fetch, Run, Script

OK = "ok"
HELD = "held"
FAILED = "failed"
NEVER = "never_read"


class Control(Struct, frozen=True):
    automation: bool = True
    source_state: str = NEVER
    source_detail: str | None = None
    source_count: int | None = None
    held_count: int | None = None
    confirmed_count: int | None = None
    checked_at: Instant | None = None


_READ = (
    "SELECT automation, source_state, source_detail, source_count, held_count, confirmed_count, checked_at"
    " FROM runbook_controls WHERE name = $1"
)
CREATE = (
    "INSERT INTO runbook_controls (name, automation, source_state) VALUES ($1, TRUE, 'never_read')"
    " ON CONFLICT (name) DO NOTHING"
)
_WRITE = (
    "UPDATE runbook_controls SET source_state = $2, source_detail = $3, source_count = $4, held_count = $5,"
    " checked_at = $6, confirmed_count = CASE WHEN $2 = 'ok' THEN NULL ELSE confirmed_count END WHERE name = $1"
)
SET_AUTOMATION = "UPDATE runbook_controls SET automation = $2, checked_at = NULL WHERE name = $1"
CONFIRM = (
    "UPDATE runbook_controls SET confirmed_count = held_count, checked_at = NULL"
    " WHERE name = $1 AND held_count IS NOT NULL"
)
READ_AGAIN = "UPDATE runbook_controls SET checked_at = NULL WHERE name = $1"


def read(name: str) -> Script[Control]:
    rows = yield Fetch(_READ, [name])
    return Control(*rows[0]) if rows else Control()


def write_source(
    name: str, state: str, detail: str | None, count: int | None, held: int | None, now: Instant
) -> Script[None]:
    yield Run(_WRITE, [(name, state, detail, count, held, now)])

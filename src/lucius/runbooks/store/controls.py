"""The table `runbook_controls`: whether automation is on, and the outcome of the last reading of the source."""

from __future__ import annotations

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Control
from lucius.runbooks.store.columns import columns_of

_READ = f"SELECT {columns_of(Control, {})} FROM runbook_controls WHERE name = $1"
_LOCK = "SELECT name FROM runbook_controls WHERE name = $1 FOR UPDATE"
_CREATE = (
    "INSERT INTO runbook_controls (name, automation, source_state) VALUES ($1, TRUE, 'never_read')"
    " ON CONFLICT (name) DO NOTHING"
)
_WRITE = (
    "UPDATE runbook_controls SET source_state = $2, source_detail = $3, source_count = $4, held_count = $5,"
    " checked_at = $6, confirmed_count = CASE WHEN $2 = 'ok' THEN NULL ELSE confirmed_count END WHERE name = $1"
)
_SET_AUTOMATION = "UPDATE runbook_controls SET automation = $2, checked_at = NULL WHERE name = $1"
_CONFIRM = (
    "UPDATE runbook_controls SET confirmed_count = held_count, checked_at = NULL"
    " WHERE name = $1 AND held_count IS NOT NULL"
)
_READ_AGAIN = "UPDATE runbook_controls SET checked_at = NULL WHERE name = $1"


def read(name: str) -> Script[Control]:
    rows = yield Fetch(_READ, [name])
    return Control(*rows[0]) if rows else Control()


def lock(name: str) -> Script[bool]:
    """Lock a runbook for this transaction; returns whether it exists."""
    return bool((yield Fetch(_LOCK, [name])))


def create(name: str) -> Script[None]:
    """Unless it exists."""
    yield Run(_CREATE, [(name,)])


def write_source(
    name: str, state: str, detail: str | None, count: int | None, held: int | None, now: Instant
) -> Script[None]:
    yield Run(_WRITE, [(name, state, detail, count, held, now)])


def set_automation(name: str, on: bool) -> Script[None]:
    yield Run(_SET_AUTOMATION, [(name, on)])


def confirm(name: str) -> Script[None]:
    yield Run(_CONFIRM, [(name,)])


def read_again(name: str) -> Script[None]:
    """Read the source in the next round."""
    yield Run(_READ_AGAIN, [(name,)])

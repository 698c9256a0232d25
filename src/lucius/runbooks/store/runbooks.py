"""The table `runbooks`: one row per version."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import RunbookLine, RunbookRow, Version
from lucius.runbooks.store.columns import columns_of, insert_of, values_of


class NewVersion(Struct, frozen=True, kw_only=True):
    name: str
    tenant_id: str | None
    version: int
    yaml: str
    data_table: str
    overdue_behavior: str
    rerun_init: bool
    created_at: Instant
    created_by: str


_NAMED = {"data_table": "data_table_name", "yaml": "yaml_content"}
_CONTROL = {name: f"c.{name}" for name in ("automation", "source_state", "source_detail", "source_count", "checked_at")}
_OPEN_BATCHES = "(SELECT COUNT(*) FROM batches b WHERE b.runbook_name = r.name AND b.completed_at IS NULL)"

RUNBOOK = f"SELECT {columns_of(RunbookRow, _NAMED)} FROM runbooks"
_ACTIVE = f"{RUNBOOK} WHERE is_active = TRUE ORDER BY name"
_ACTIVE_BY_NAME = f"{RUNBOOK} WHERE name = $1 AND is_active = TRUE"
_BY_VERSION = f"{RUNBOOK} WHERE name = $1 AND version = $2"
_OF_BATCH = f"{RUNBOOK} WHERE id = (SELECT b.runbook_id FROM batches b WHERE b.id = $1)"
_VERSIONS = f"SELECT {columns_of(Version, _NAMED)} FROM runbooks WHERE name = $1 ORDER BY version DESC"
_TEXT = "SELECT yaml_content FROM runbooks WHERE name = $1 AND version = $2"
_PUBLISHER = "SELECT created_by FROM runbooks WHERE name = $1 AND version = $2"
_TEXTS_IN_USE = (
    "SELECT r.yaml_content FROM runbooks r WHERE r.is_active = TRUE OR r.id IN"
    " (SELECT b.runbook_id FROM batches b WHERE b.completed_at IS NULL)"
)
_NAMES = "SELECT DISTINCT name FROM runbooks"
_LINES = (
    f"SELECT {columns_of(RunbookLine, {**_CONTROL, 'open_batches': _OPEN_BATCHES}, 'r')} FROM runbooks r"
    " LEFT JOIN runbook_controls c ON c.name = r.name WHERE r.version = (SELECT MAX(o.version) FROM runbooks o"
    " WHERE o.name = r.name)"
)
_ALL_LINES = f"{_LINES} ORDER BY r.name"
LINES_OF_TENANTS = f"{_LINES} AND r.tenant_id = ANY($1::text[]) ORDER BY r.name"
_NEW = insert_of("runbooks", NewVersion, _NAMED, {"is_active": "TRUE", "ignore_overdue_applied": "FALSE"})
_INSERT = f"{_NEW} ON CONFLICT (name, version) DO NOTHING"
_DEACTIVATE = "UPDATE runbooks SET is_active = FALSE WHERE name = $1 AND is_active = TRUE"
_APPLIED = "UPDATE runbooks SET ignore_overdue_applied = TRUE WHERE id = $1 AND ignore_overdue_applied = FALSE"


def active() -> Script[list[RunbookRow]]:
    return [RunbookRow(*row) for row in (yield Fetch(_ACTIVE))]


def active_by_name(name: str) -> Script[RunbookRow | None]:
    rows = yield Fetch(_ACTIVE_BY_NAME, [name])
    return RunbookRow(*rows[0]) if rows else None


def by_version(name: str, version: int) -> Script[RunbookRow | None]:
    rows = yield Fetch(_BY_VERSION, (name, version))
    return RunbookRow(*rows[0]) if rows else None


def of_batch(batch_id: int) -> Script[RunbookRow | None]:
    """The version of a batch."""
    rows = yield Fetch(_OF_BATCH, [batch_id])
    return RunbookRow(*rows[0]) if rows else None


def versions(name: str) -> Script[list[Version]]:
    """Newest first; empty if there is no such runbook."""
    return [Version(*row) for row in (yield Fetch(_VERSIONS, [name]))]


def text(name: str, version: int) -> Script[str | None]:
    rows = yield Fetch(_TEXT, (name, version))
    return rows[0][0] if rows else None


def publisher(name: str, version: int) -> Script[str | None]:
    rows = yield Fetch(_PUBLISHER, (name, version))
    return rows[0][0] if rows else None


def texts_in_use() -> Script[list[str]]:
    """Of every active version, and of every version used by an open batch."""
    return [row[0] for row in (yield Fetch(_TEXTS_IN_USE))]


def names() -> Script[list[str]]:
    return [row[0] for row in (yield Fetch(_NAMES))]


def lines(tenants: Sequence[str] | None = None) -> Script[list[RunbookLine]]:
    """Of every runbook, or of those of these tenants."""
    fetch = Fetch(_ALL_LINES) if tenants is None else Fetch(LINES_OF_TENANTS, [list(tenants)])
    return [RunbookLine(*row) for row in (yield fetch)]


def add(version: NewVersion) -> Script[None]:
    yield Run(_INSERT, [values_of(version)])


def deactivate(name: str) -> Script[None]:
    yield Run(_DEACTIVATE, [(name,)])


def set_overdue_applied(runbook_id: int) -> Script[None]:
    """`ignore` was applied to every existing batch."""
    yield Run(_APPLIED, [(runbook_id,)])

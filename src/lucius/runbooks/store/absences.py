"""Members missing from their source: since when, and from when on they are removed if they stay missing.

A single reading removes no member: it may have met a file or a table while it was being written. A row exists here from
the first reading without the member until one has it again or confirms that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Absence

_READ = "SELECT member_key, missing_since, removal_at FROM runbook_absences WHERE runbook_name = $1"
_ADD = (
    "INSERT INTO runbook_absences (runbook_name, member_key, missing_since, removal_at) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (runbook_name, member_key) DO NOTHING"
)
_DROP = "DELETE FROM runbook_absences WHERE runbook_name = $1 AND member_key = $2"
# The source does not remove members that an operator added.
_OF_BATCH = (
    "SELECT COUNT(*), MIN(a.missing_since), MIN(a.removal_at) FROM batch_members m JOIN runbook_absences a"
    " ON a.member_key = m.member_key WHERE m.batch_id = $1 AND m.status = 'active' AND m.added_by_source = TRUE"
    " AND a.runbook_name = $2"
)
_OF_MEMBERS = (
    "SELECT m.id, a.missing_since, a.removal_at FROM batch_members m JOIN runbook_absences a"
    " ON a.member_key = m.member_key WHERE m.id = ANY($1::bigint[]) AND m.status = 'active'"
    " AND m.added_by_source = TRUE AND a.runbook_name = $2"
)


def read(runbook_name: str) -> Script[dict[str, Absence]]:
    """By member key."""
    return {row[0]: Absence(row[1], row[2]) for row in (yield Fetch(_READ, [runbook_name]))}


def add(runbook_name: str, missing: Iterable[tuple[str, Absence]]) -> Script[None]:
    yield Run(_ADD, [(runbook_name, key, absence.since, absence.removal_at) for key, absence in missing])


def drop(runbook_name: str, keys: Iterable[str]) -> Script[None]:
    yield Run(_DROP, [(runbook_name, key) for key in keys])


def of_batch(batch_id: int, runbook_name: str) -> Script[tuple[int, Absence] | None]:
    """How many active members of a batch from the source are missing, and the earliest times of any."""
    count, since, removal_at = (yield Fetch(_OF_BATCH, (batch_id, runbook_name)))[0]
    return (count, Absence(since, removal_at)) if count else None


def of_members(member_ids: Sequence[int], runbook_name: str) -> Script[dict[int, Absence]]:
    rows = yield Fetch(_OF_MEMBERS, (list(member_ids), runbook_name))
    return {row[0]: Absence(row[1], row[2]) for row in rows}

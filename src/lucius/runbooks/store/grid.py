"""The grid of a batch, read from its members and steps.

The whole grid is read as a few long texts instead of many rows: SQLite's library gives up Python's interpreter lock for
every row, and in a busy process each time waits for it. SQLite has no order inside of `STRING_AGG` before version 3.44;
there the steps of a member come in the order of the index that the statement reads along, which a test looks at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from lucius.ports.database import Fetch, Script
from lucius.runbooks.core.grid import (
    CELLS,
    KEY_CHARS_SHOWN,
    MEMBER_ACTIVE,
    MEMBER_FAILED,
    MEMBER_HELD,
    MEMBER_REMOVED,
    RETRYING,
)

_BY_STATUS = " ".join(f"WHEN e.status = '{status}' THEN '{cell}'" for status, cell in CELLS.items())
_CELL = f"CASE WHEN e.retry_at IS NOT NULL THEN '{RETRYING}' {_BY_STATUS} END"
_STATE = (
    f"CASE WHEN m.status <> 'active' THEN '{MEMBER_REMOVED}' WHEN m.move_held_at IS NOT NULL THEN '{MEMBER_HELD}'"
    f" WHEN m.failed_at IS NOT NULL THEN '{MEMBER_FAILED}' ELSE '{MEMBER_ACTIVE}' END"
)
_KEY = f"SUBSTR(m.member_key, 1, {KEY_CHARS_SHOWN})"
OF_PHASE = (
    "SELECT STRING_AGG(g.one, ',') FROM (SELECT e.batch_member_id || ':' ||"
    f" STRING_AGG({_CELL}, '' ORDER BY e.step_index) AS one FROM step_executions e"
    " WHERE e.phase_execution_id = $1 GROUP BY e.batch_member_id) g"
)
MEMBERS = (
    f"SELECT STRING_AGG(m.id || ':' || {_STATE} || LENGTH({_KEY}) || ':' || {_KEY}, '') FROM batch_members m"
    " WHERE m.batch_id = $1"
)
MEMBERS_BY_IDS = f"SELECT m.id, {_STATE}, {_KEY} FROM batch_members m WHERE m.id = ANY($1::bigint[]) ORDER BY m.id"
_PLACED_CELL = f"SELECT e.batch_member_id, e.phase_execution_id, e.step_index, {_CELL} FROM step_executions e"
CELLS_BY_IDS = f"{_PLACED_CELL} WHERE e.id = ANY($1::bigint[])"
CELLS_OF_MEMBERS = f"{_PLACED_CELL} WHERE e.batch_member_id = ANY($1::bigint[])"

_NAMED = re.compile(rf"(\d+):([{MEMBER_ACTIVE}{MEMBER_FAILED}{MEMBER_HELD}{MEMBER_REMOVED}])(\d+):")


class GridMember(Struct, frozen=True):
    id: int
    state: str
    """One of `MEMBER_MEANINGS`."""
    key: str


class PlacedCell(Struct, frozen=True):
    member_id: int
    phase_id: int
    step_index: int
    cell: str


def members(batch_id: int) -> Script[list[GridMember]]:
    """In the order in which they joined."""
    text: str = (yield Fetch(MEMBERS, [batch_id]))[0][0] or ""
    found, place = [], 0
    while place < len(text):
        named = _NAMED.match(text, place)
        assert named is not None, text[place : place + 40]
        end = named.end() + int(named[3])
        found.append(GridMember(int(named[1]), named[2], text[named.end() : end]))
        place = end
    return sorted(found, key=lambda member: member.id)


def cells_of_phase(phase_id: int) -> Script[dict[int, str]]:
    """The cells of each member in this phase, in the order of its steps."""
    text: str = (yield Fetch(OF_PHASE, [phase_id]))[0][0] or ""
    parted = (one.partition(":") for one in text.split(",") if one)
    return {int(member_id): cells for member_id, _, cells in parted}


def members_by_ids(ids: Sequence[int]) -> Script[list[GridMember]]:
    return [GridMember(*row) for row in (yield Fetch(MEMBERS_BY_IDS, [list(ids)]))] if ids else []


def cells(step_ids: Sequence[int], member_ids: Sequence[int]) -> Script[list[PlacedCell]]:
    """The cells of these steps, and every cell of these members."""
    found = {}
    for sql, ids in ((CELLS_BY_IDS, step_ids), (CELLS_OF_MEMBERS, member_ids)):
        if ids:
            for row in (yield Fetch(sql, [list(ids)])):
                found[tuple(row[:3])] = PlacedCell(*row)
    return list(found.values())

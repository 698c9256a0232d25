"""The members of a rehearsal: from a CSV, or generated with the columns that the runbook's templates use."""

from __future__ import annotations

import msgspec

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.columns import columns_needed
from lucius.runbooks.core.definition.model import DataSource, Runbook
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.source_members import Member, Members
from lucius.runbooks.sources.csv_text import read_csv
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.rows import read_members

COUNT_MAX = 100_000


def csv_members(content: bytes, runbook: Runbook, start: Instant | None, limits: SourceLimits | None = None) -> Members:
    """The members of a CSV, with their batch times if no start is given and the runbook names a column for them.

    Raises SourceError.
    """
    column = runbook.source.batch_time_column if runbook.source else None
    several = runbook.source.multi_valued if runbook.source else ()
    if start is None and column is None:
        raise SourceError("the runbook has no batch_time_column: set the batch's start with --start")
    source = DataSource(
        type="csv",
        connection="",
        primary_key=runbook.primary_key,
        batch_time_column=column if start is None else None,
        multi_valued=several,
    )
    found = read_members(read_csv(content, limits or SourceLimits()), source)
    if not found.members:
        first = f": {found.faults[0].place}: {found.faults[0].message}" if found.faults else ""
        raise SourceError(f"the CSV has no usable member{first}")
    return found


def made_up_members(runbook: Runbook, count: int, start: Instant) -> Members:
    columns = columns_wanted(runbook)
    several = {column.name for column in runbook.source.multi_valued} if runbook.source else set()
    time_column = runbook.source.batch_time_column if runbook.source else None

    def value(column: str, number: int) -> str:
        if column == runbook.primary_key:
            return f"member-{number:05d}"
        if column == time_column:
            return utc(start)
        text = f"{column}-{number:05d}"
        return msgspec.json.encode([text]).decode() if column in several else text

    members: dict[str, Member] = {}
    for number in range(1, count + 1):
        values = tuple(value(column, number) for column in columns)
        members[values[0]] = Member(values[0], None, values, b"")
    return Members(columns=columns, members=members)


def columns_wanted(runbook: Runbook) -> tuple[str, ...]:
    """The primary key, and every variable that only a column can provide, in text order."""
    wanted = dict.fromkeys([runbook.primary_key, *columns_needed(runbook)])
    return tuple(wanted)


def by_start(members: Members, start: Instant | None) -> dict[Instant, list[str]]:
    """Starts of batches, in order, with the keys of their members."""
    found: dict[Instant, list[str]] = {}
    for key, member in members.members.items():
        moment = start if start is not None else member.batch_time
        if moment is None:
            raise SourceError(f"member {key} has no batch time: set the batch's start with --start")
        found.setdefault(moment, []).append(key)
    return dict(sorted(found.items()))

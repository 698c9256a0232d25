"""The table `runbook_freezes`: the events of calendar files, as they were when a version was published."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.definition.calendar import Freeze

_OF_VERSION = (
    "SELECT from_at, until_at, freeze_name FROM runbook_freezes WHERE name = $1 AND version = $2 ORDER BY place"
)
_ADD = (
    "INSERT INTO runbook_freezes (name, version, place, from_at, until_at, freeze_name) VALUES ($1, $2, $3, $4, $5, $6)"
)


def of_version(name: str, version: int) -> Script[list[Freeze]]:
    return [Freeze(*row) for row in (yield Fetch(_OF_VERSION, (name, version)))]


def add(name: str, version: int, freezes: Sequence[Freeze]) -> Script[None]:
    rows = [(name, version, place, one.from_at, one.until_at, one.name) for place, one in enumerate(freezes)]
    if rows:
        yield Run(_ADD, rows, in_one_statement=True)

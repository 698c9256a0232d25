"""Scripts that run side by side, in as few round trips as the longest of them needs.

A write returns nothing, so a script can go on to its next read before the write is run. What several scripts want up to
their next reads leaves as one `Together`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lucius.sql.database import Check, Fetch, Run, RunAgain, Script, Together


def together(scripts: Sequence[Script[None]], at_once: bool) -> Script[None]:
    """Run these scripts: one after another, or with `at_once` side by side. Their reads are answered in their order.
    Side by side, no statement may depend on what another one writes, and no two may write the same row."""
    if not at_once:
        for script in scripts:
            yield from script
        return
    waiting: list[tuple[Script[None], Any]] = [(script, None) for script in scripts]
    while waiting:
        statements: list[Fetch | Run | Check] = []
        reading: list[tuple[Script[None], int | slice]] = []
        for script, rows in waiting:
            place = _to_next_read(script, rows, statements)
            if place is not None:
                reading.append((script, place))
        if not statements:
            return
        answers = yield cast("Fetch", Together(statements))
        waiting = [(script, answers[place]) for script, place in reading]


def in_one_round_trip(scripts: Sequence[Script[None]], writes: bool) -> Script[None]:
    """Run these scripts with one statement by itself, outside a transaction. With `writes` none of them may read:
    there would be nothing left to undo."""
    statements: list[Fetch | Run | Check] = []
    reading: list[tuple[Script[None], int | slice]] = []
    for script in scripts:
        place = _to_next_read(script, None, statements)
        if place is not None:
            reading.append((script, place))
    if writes and reading:
        raise RunAgain("something has to be read before this is written")
    if not statements:
        return
    answers: Any = yield cast("Fetch", Together(statements, is_alone=True))
    for script, place in reading:
        if _to_next_read(script, answers[place], []) is not None:
            raise RunAgain("something more has to be read")


def _to_next_read(script: Script[None], rows: Any, statements: list[Fetch | Run | Check]) -> int | slice | None:
    """Add what the script wants up to its next read; where the answer to that will be, or None at the script's end."""
    try:
        while True:
            statement: Fetch | Run | Check | Together = script.send(rows)
            first = len(statements)
            if isinstance(statement, Together):  # The script has others inside that run side by side.
                statements.extend(statement.statements)
                return slice(first, len(statements))
            statements.append(statement)
            if isinstance(statement, Fetch):
                return first
            rows = ()
    except StopIteration:
        return None

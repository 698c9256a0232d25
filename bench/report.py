"""Tables: as aligned text, as Markdown, and between marks of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Rows = list[tuple[str, ...]]


def yes_or_no(reached: bool) -> str:
    return "yes" if reached else "no"


def aligned(rows: Rows) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def markdown(rows: Rows) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(rows[0]), line(["---"] * len(rows[0])), *map(line, rows[1:])])


def replace_between(path: Path, name: str, content: str) -> None:
    """Only what lies between the marks of this name is replaced."""
    marks = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begin, rest = path.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{path.name} has no lines {marks[0]} and {marks[1]}")
    path.write_text(f"{before}{begin}\n{content}\n{end}{after}")

"""Tables: plain aligned lines for any program, and the same with colour, fitted to its width, for a terminal.

A row may have a note, text of unknown length such as an error. In plain lines it is the last column. On a terminal it
is printed below its row if it does not fit beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lucius.cli.output.formatting import STYLES, clipped

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

GAP = "  "
NOTE_INDENT = 4


@dataclass(frozen=True)
class Column:
    name: str
    dispensable: int = 0
    """On a narrow terminal, the column with the highest number is left out first; 0 is never left out."""


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]
    note_name: str = ""
    notes: Sequence[str] = ()
    """One per row, or empty."""
    notes_apart: bool = False
    """On a terminal each note is placed separately; otherwise all are beside their rows, or all below."""


def aligned(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> list[str]:
    """Columns of equal width, two spaces apart."""
    every = [*([[name.upper() for name in header]] if header else []), *rows]
    widths = [max((len(row[index]) for row in every), default=0) for index in range(len(every[0]) if every else 0)]
    return [GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]


def table_lines(table: Table) -> list[str]:
    names = [column.name for column in table.columns]
    if not table.notes:
        return aligned(table.rows, names)
    rows = [(*row, note) for row, note in zip(table.rows, table.notes, strict=True)]
    return aligned(rows, [*names, table.note_name])


def table_view(
    table: Table, width: int, painted: dict[str, list[Text]] | None = None, note_chars_max: int | None = None
) -> RenderableType:
    """The table in at most `width` cells. `painted` replaces a column's cells with coloured ones."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    columns: dict[str, list[Text]] = {
        column.name: [Text(row[index], STYLES.get(row[index], "")) for row in table.rows]
        for index, column in enumerate(table.columns)
    } | (painted or {})
    widths = _fitting(table.columns, columns, width)
    left = width - sum(widths.values()) - len(GAP) * len(widths)
    beside = [len(note) <= left for note in table.notes]
    if not table.notes_apart and not all(beside):
        beside = [False] * len(beside)
    header = [Text(name, "dim") for name in widths]
    lines: list[RenderableType] = [_joined(header, widths, Text(table.note_name if any(beside) else "", "dim"))]
    for index in range(len(table.rows)):
        note = table.notes[index] if table.notes else ""
        row = [columns[name][index] for name in widths]
        if not note or beside[index]:
            lines.append(_joined(row, widths, Text(note, "dim")))
            continue
        cut = note if note_chars_max is None else clipped(note, note_chars_max)
        lines += [_joined(row, widths), Padding(Text(cut, "dim"), (0, 0, 0, NOTE_INDENT))]
    return Group(*lines)


def _fitting(columns: tuple[Column, ...], cells: dict[str, list[Text]], width: int) -> dict[str, int]:
    """The columns that are shown, with their widths."""
    shown = list(columns)
    while True:
        widths = {
            column.name: max([len(column.name), *(cell.cell_len for cell in cells[column.name])]) for column in shown
        }
        least = max(shown, key=lambda column: column.dispensable)
        if sum(widths.values()) + len(GAP) * (len(shown) - 1) <= width or least.dispensable == 0:
            return widths
        shown.remove(least)


def _joined(cells: list[Text], widths: dict[str, int], note: Text | None = None) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    for cell, width in zip(cells, widths.values(), strict=True):
        line.append_text(cell).append(" " * (width - cell.cell_len) + GAP)
    if note:
        line.append_text(note)
    line.rstrip()
    return line

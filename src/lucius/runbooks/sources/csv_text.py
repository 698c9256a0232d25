"""Reads and writes CSV. A cell that a spreadsheet would run as a formula needs a leading apostrophe.

`write_csv` quotes every cell and adds an apostrophe to each that any spreadsheet could run, whatever it skips at the
start or treats as an operator; plain numbers such as -5 stay unchanged. `read_csv` removes one apostrophe again, so
that written text is read back unchanged; text that begins with apostrophes before such a start gets one more. None is
written as an empty cell, and an empty cell is read as empty text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lucius.runbooks.core.definition.names import columns_faults
from lucius.runbooks.sources.limits import FAULTS_KEPT, SourceError, SourceLimits, of_faults, too_many_rows
from lucius.runbooks.sources.rows import Rows
from lucius.runbooks.sources.texts import value_text

_STARTS = "=+\\-@\t\r\n＝＋－＠"
_RUNS = re.compile(f"[{_STARTS}]")
_SKIPPED = '\\s\\x00-\\x20\\x7f-\\xa0\\u200b-\\u200f\\u2060\\ufeff"'
"""Characters a spreadsheet may skip at the start of a cell."""
_COULD_RUN = re.compile(f"[\t\r\n]|[{_SKIPPED}]*[{_STARTS}﹦﹢﹣﹫\u2212|]|[^|]*\\|.*!", re.DOTALL)
"""A start that some spreadsheet treats as a formula, or a DDE link (`program|topic!item`) anywhere."""
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*")
_HARMLESS = re.compile(r"[+-]?[0-9][0-9 .,()-]*")
_FIRST = frozenset("=+-@\t\r\n＝＋－＠'")
_UNCLOSED = "a quotation mark is opened and never closed"
_FORMULA = "would be run as a formula by a spreadsheet: prefix it with an apostrophe if it is text"


def read_csv(text: bytes | str, limits: SourceLimits, rows_first: int | None = None) -> Rows:
    """All rows, or the first few. Raises SourceError, whose `faults` have the line of each."""
    decoded = _decoded(text, limits)
    reader = csv.reader(io.StringIO(decoded, newline=""), strict=True)
    records = _records(reader)
    line, header = next(records, (1, []))
    columns = _columns(header, line, limits)
    rows: list[tuple[Any, ...]] = []
    lines: list[int] = []
    faults: list[str] = []
    fault_count = 0
    for line, cells in records:
        if rows_first is not None and len(rows) >= rows_first:
            break
        if len(rows) >= limits.rows_max:
            raise too_many_rows(limits.rows_max)
        found = _row_faults(cells, columns, limits)
        fault_count += len(found)
        faults += [f"line {line}: {fault}" for fault in found][: FAULTS_KEPT - len(faults)]
        rows.append(tuple(cells))
        lines.append(line)
    if faults:
        raise of_faults("the CSV cannot be used", faults, fault_count)
    return Rows(columns, rows, lines)


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lines end with CR LF. Values become text like those of a source; raises `Unfit` for one without a text form."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow([_safe(column) for column in columns])
    writer.writerows([_safe(value_text(value)) for value in row] for row in rows)
    return out.getvalue()


def _safe(cell: str | None) -> str:
    if not cell or _NUMBER.fullmatch(cell) or not _COULD_RUN.match(cell.lstrip("'")):
        return cell or ""
    return "'" + cell


def _decoded(text: bytes | str, limits: SourceLimits) -> str:
    if len(text) > limits.file_bytes_max:
        raise SourceError(f"the CSV has more than {limits.file_bytes_max} bytes: split it")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise SourceError(f"line {line}: not UTF-8: save the file as CSV UTF-8") from None
    if "\0" in decoded:
        line = decoded.count("\n", 0, decoded.index("\0")) + 1
        raise SourceError(f"line {line}: there is a NUL character: remove it")
    return decoded.removeprefix("\ufeff")


def _records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Each record with its first line; empty lines are skipped."""
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as fault:
            reason = _UNCLOSED if str(fault) == "unexpected end of data" else f"not readable as CSV: {fault}"
            raise SourceError(f"line {line}: {reason}") from None
        if cells is None:
            return
        if cells:
            yield line, cells
        line = reader.line_num + 1


def _columns(header: list[str], line: int, limits: SourceLimits) -> tuple[str, ...]:
    if not header:
        raise SourceError("the CSV is empty: its first line must name the columns")
    if len(header) > limits.columns_max:
        raise SourceError(f"the CSV has {len(header)} columns; at most {limits.columns_max} are allowed")
    columns = tuple(name.strip() for name in header)
    faults = [f"column {at} has no name" for at, name in enumerate(columns, 1) if not name]
    faults += [f"column {at} {_FORMULA}" for at, name in enumerate(columns, 1) if name and _RUNS.match(name)]
    faults += [f"duplicate column {name!r}" for name in sorted({*columns}) if name and columns.count(name) > 1]
    faults = faults or columns_faults(columns)
    if faults:
        raise of_faults("the CSV cannot be used", [f"line {line}: {fault}" for fault in faults], len(faults))
    return columns


def _row_faults(cells: list[str], columns: tuple[str, ...], limits: SourceLimits) -> list[str]:
    """Removes the protective apostrophe from cells, in place."""
    if len(cells) != len(columns):
        return [f"{len(cells)} cell{'' if len(cells) == 1 else 's'}, but the header has {len(columns)}"]
    faults = []
    for at, cell in enumerate(cells):
        if len(cell) > limits.cell_chars_max:
            faults.append(f"column {columns[at]!r} has more than {limits.cell_chars_max} characters")
        elif cell and cell[0] in _FIRST:
            if cell[0] == "'":
                cells[at] = cell[1:] if _COULD_RUN.match(cell.lstrip("'")) else cell
            elif _RUNS.match(cell) and not _HARMLESS.fullmatch(cell):
                faults.append(f"column {columns[at]!r} {_FORMULA}")
    return faults

"""Rows of a source and their members: text only, one key each.

Conversion is by column, since most columns are already text and pass unchanged. A row that cannot be used is a fault of
that row: the others are used, and its member does not count as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant, from_datetime
from lucius.runbooks.core.definition.model import DataSource
from lucius.runbooks.core.source_members import Member, Members, RowFault
from lucius.runbooks.sources.limits import FAULTS_KEPT, SourceError
from lucius.runbooks.sources.texts import Unfit, array_text, value_text

KEY_CHARS_MAX = 256
DIGEST_BYTES = 16
COLUMNS_SHOWN = 20
BATCH_YEARS = range(1971, 9999)
"""Years of a batch's start: a phase a year before or after it is still a valid instant."""
_ESCAPED_NUL = b"\\u0000"


class Rows(Struct, frozen=True):
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Values from the driver; each row as long as `columns`."""
    lines: Sequence[int] = ()
    """Of a CSV: the line on which each row begins. Empty for other sources."""

    def line(self, at: int) -> int | None:
        return self.lines[at] if self.lines else None


def read_members(rows: Rows, source: DataSource) -> Members:
    """Raises SourceError if a column named by the source is missing."""
    columns = rows.columns
    is_csv = source.type == "csv"
    key_at = _position(columns, source.primary_key, "primary_key", is_csv)
    time_at = None
    if source.batch_time_column is not None:
        time_at = _position(columns, source.batch_time_column, "batch_time_column", is_csv)
    formats = {
        _position(columns, many.name, "multi_valued_columns", is_csv): many.format for many in source.multi_valued
    }
    if not rows.rows:
        return Members(columns=columns, members={})

    bad: dict[int, str] = {}
    raw = list(zip(*rows.rows, strict=True))
    times: Sequence[Instant | None] = [None] * len(rows.rows)
    if time_at is not None:
        times = _moments(columns[time_at], raw[time_at], bad)
    texts = []
    for at, column in enumerate(raw):
        read = array_text(formats[at]) if at in formats else value_text
        texts.append(_texts(columns[at], column, read, bad, is_plain=at not in formats))
    return _gathered(rows, [_key(text) for text in texts[key_at]], times, texts, bad)


def _gathered(
    rows: Rows,
    keys: list[str | None],
    times: Sequence[Instant | None],
    texts: list[Sequence[str | None]],
    bad: dict[int, str],
) -> Members:
    members: dict[str, Member] = {}
    faults: list[RowFault] = []
    unusable: set[str] = set()
    fault_count = keyless_count = 0
    encode = msgspec.json.Encoder().encode
    for at, values in enumerate(zip(*texts, strict=True)):
        key, fault, encoded = keys[at], bad.get(at), b""
        if fault is None and key is None:
            fault = f"the primary key is missing, blank, or longer than {KEY_CHARS_MAX} characters"
        elif fault is None and (key in members or key in unusable):
            fault = _duplicate(rows, keys.index(key))
        elif fault is None:
            encoded, fault = _encoded(encode, values)
        if fault is None and key is not None:
            members[key] = Member(key, times[at], values, blake2b(encoded, digest_size=DIGEST_BYTES).digest())
            continue
        fault_count += 1
        if key is None:
            keyless_count += 1
        else:
            unusable.add(key)
        if len(faults) < FAULTS_KEPT:
            faults.append(RowFault(at + 1, key, fault or "", rows.line(at)))
    return Members(
        columns=rows.columns,
        members=members,
        faults=tuple(faults),
        fault_count=fault_count,
        unusable=frozenset(unusable),
        keyless_count=keyless_count,
    )


def _duplicate(rows: Rows, first_at: int) -> str:
    first_line = rows.line(first_at)
    if first_line is None:
        return "duplicate primary key, the first row is used: make the query return each key once"
    return f"duplicate primary key; it is in line {first_line} already: keep one of them"


def _encoded(encode: Callable[[Any], bytes], values: tuple[str | None, ...]) -> tuple[bytes, str | None]:
    """The values as unambiguous JSON, and why they cannot be stored, if so."""
    try:
        encoded = encode(values)
    except UnicodeEncodeError:
        return b"", "a value contains half of a surrogate pair, which is not valid text"
    if _ESCAPED_NUL in encoded and any("\0" in value for value in values if value):
        return b"", "a value contains a NUL character, which PostgreSQL cannot store: remove it in the query"
    return encoded, None


def _position(columns: tuple[str, ...], name: str, setting: str, is_csv: bool) -> int:
    if name in columns:
        return columns.index(name)
    alike = next((column for column in columns if column.casefold() == name.casefold()), None)
    if alike is not None:
        advice = f"there is {alike!r}: use that in the runbook, or " + (
            "rename the column" if is_csv else "quote the name in the query"
        )
    else:
        more = ", …" if len(columns) > COLUMNS_SHOWN else ""
        advice = f"it has {', '.join(columns[:COLUMNS_SHOWN]) or 'none'}{more}"
    what = "line 1: there is no column" if is_csv else "the source has no column"
    raise SourceError(f"{what} {name!r}, which {setting} names; {advice}")


def _texts(
    name: str, column: tuple[Any, ...], read: Callable[[Any], str | None], bad: dict[int, str], *, is_plain: bool
) -> Sequence[str | None]:
    kinds = {*map(type, column)}
    if is_plain and kinds <= {str, type(None)}:
        return column
    if is_plain and kinds <= {int, float}:
        return [*map(str, column)]
    texts: list[str | None] = []
    for at, value in enumerate(column):
        try:
            texts.append(read(value))
        except Unfit as fault:
            texts.append(None)
            bad.setdefault(at, f"column {name!r} {fault}")
    return texts


def _key(text: str | None) -> str | None:
    key = text.strip() if text else ""
    # PostgreSQL cannot look up such a key, so it matches no member.
    return key if 0 < len(key) <= KEY_CHARS_MAX and "\0" not in key else None


def _moments(name: str, column: tuple[Any, ...], bad: dict[int, str]) -> list[Instant | None]:
    """Cached: members come in batches, so the same few times repeat."""
    known: dict[Any, Instant] = {}
    moments: list[Instant | None] = []
    for at, value in enumerate(column):
        moment = known.get(value) if isinstance(value, str | date) else None
        if moment is None:
            try:
                moment = _moment(value)
                known[value] = moment
            except Unfit as fault:
                bad.setdefault(at, f"column {name!r} {fault}")
        moments.append(moment)
    return moments


def _moment(value: Any) -> Instant:
    """A time without a zone is UTC, and a date is its midnight."""
    if value is None or value == "":
        raise Unfit("has no batch time: give the row one, or leave it out")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise Unfit("has text that is not an ISO 8601 date or time such as 2026-03-15T08:00:00Z") from None
    elif not isinstance(value, date):
        raise Unfit(f"has the type {type(value).__name__}: a batch time is a date, a time or ISO 8601 text")
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if value.year not in BATCH_YEARS:
        raise Unfit(f"has a batch time outside the years {BATCH_YEARS.start} to {BATCH_YEARS.stop - 1}")
    return from_datetime(value if value.tzinfo is not None else value.replace(tzinfo=UTC))

"""Rows of a source, and the members that they are: text alone, one key each.

The work is done column by column, since most columns are text already and pass as they are. A row that cannot be used
is a fault of that row: the others go on, and its member is not taken for gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant, from_datetime
from lucius.runbooks.definition.model import DataSource
from lucius.runbooks.sources.limits import FAULTS_KEPT, SourceError
from lucius.runbooks.sources.texts import Unfit, array_text, value_text

KEY_CHARS_MAX = 256
DIGEST_BYTES = 16
COLUMNS_SHOWN = 20
_YEARS = range(1970, 9999)
_ESCAPED_NUL = b"\\u0000"


class Rows(Struct, frozen=True):
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Values as the driver gave them; each row as long as `columns`."""


class Member(Struct, frozen=True, gc=False):
    key: str
    batch_time: Instant | None
    """None where the source says `batch_time: immediate`."""
    values: tuple[str | None, ...]
    """In the order of the columns."""
    digest: bytes
    """Of the values: two rows with the same one need not be compared further."""


class RowFault(Struct, frozen=True):
    row: int
    """Counted from 1, without the header of a CSV."""
    key: str | None
    message: str


class Members(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    members: dict[str, Member]
    faults: tuple[RowFault, ...] = ()
    """The first of them; `fault_count` is of all."""
    fault_count: int = 0
    unusable: frozenset[str] = frozenset()
    """Keys of rows with a fault. Of a key that stands here nothing is known for certain, least of all that it is gone.
    A key that came twice stands in `members` too, with its first row."""
    keyless_count: int = 0
    """Rows whose key could not be read. While there are any, a key that is missing may be one of them."""


def read_members(rows: Rows, source: DataSource) -> Members:
    """Raises SourceError if a column that the source names is not there."""
    columns = rows.columns
    key_at = _position(columns, source.primary_key, "primary_key")
    time_at = None
    if source.batch_time_column is not None:
        time_at = _position(columns, source.batch_time_column, "batch_time_column")
    formats = {_position(columns, many.name, "multi_valued_columns"): many.format for many in source.multi_valued}
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
    return _gathered(columns, [_key(text) for text in texts[key_at]], times, texts, bad)


def _gathered(
    columns: tuple[str, ...],
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
            fault = f"the primary key is missing, blank or longer than {KEY_CHARS_MAX} characters"
        elif fault is None and (key in members or key in unusable):
            fault = "an earlier row has the same primary key, and that one counts: make the query return each key once"
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
            faults.append(RowFault(at + 1, key, fault or ""))
    return Members(
        columns=columns,
        members=members,
        faults=tuple(faults),
        fault_count=fault_count,
        unusable=frozenset(unusable),
        keyless_count=keyless_count,
    )


def _encoded(encode: Callable[[Any], bytes], values: tuple[str | None, ...]) -> tuple[bytes, str | None]:
    """The values as JSON, in which no two rows look alike; and why they cannot be kept, if they cannot."""
    try:
        encoded = encode(values)
    except UnicodeEncodeError:
        return b"", "a value holds half of a surrogate pair, which is no text"
    if _ESCAPED_NUL in encoded and any("\0" in value for value in values if value):
        return b"", "a value holds a NUL character, which PostgreSQL cannot keep: take it out in the query"
    return encoded, None


def _position(columns: tuple[str, ...], name: str, setting: str) -> int:
    if name in columns:
        return columns.index(name)
    alike = next((column for column in columns if column.casefold() == name.casefold()), None)
    if alike is not None:
        advice = f"there is {alike!r}: write it so in the runbook, or put the name in quotes in the query"
    else:
        more = ", …" if len(columns) > COLUMNS_SHOWN else ""
        advice = f"it has {', '.join(columns[:COLUMNS_SHOWN]) or 'none'}{more}"
    raise SourceError(f"the source has no column {name!r}, which {setting} names; {advice}")


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
    # PostgreSQL could not be asked for such a key, so it belongs to nobody.
    return key if 0 < len(key) <= KEY_CHARS_MAX and "\0" not in key else None


def _moments(name: str, column: tuple[Any, ...], bad: dict[int, str]) -> list[Instant | None]:
    """Members come in batches, so the same few moments come again and again."""
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
    """A moment without a zone is UTC, and a date is its midnight."""
    if value is None or value == "":
        raise Unfit("holds no batch time: leave rows that have none out of the query")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise Unfit("holds a text that is no ISO 8601 date or moment, such as 2026-03-15T08:00:00Z") from None
    elif not isinstance(value, date):
        raise Unfit(f"is of the type {type(value).__name__}: a batch time is a date, a moment or ISO 8601 text")
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if value.year not in _YEARS:
        raise Unfit(f"holds a batch time outside the years {_YEARS.start} to {_YEARS.stop - 1}")
    return from_datetime(value if value.tzinfo is not None else value.replace(tzinfo=UTC))

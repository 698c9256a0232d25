"""Limits on reading a source, and the error for a source that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

FAULTS_SHOWN = 3
FAULTS_KEPT = 100
SQLITE_VALUE_BYTES_MAX = 262_144
"""The largest value or row that SQLite may build for a query: twice a cell's limit in any script."""


class SourceLimits(Struct, frozen=True, kw_only=True):
    query_seconds: float = 30.0
    rows_max: int = 200_000
    columns_max: int = 200
    cell_chars_max: int = 32_768
    result_chars_max: int = 134_217_728
    """Total text of one result: what the other limits allow together would not fit in memory."""
    file_bytes_max: int = 67_108_864
    still_seconds: float = 2.0
    """How long a file must be unchanged before members are read from it."""


class SourceError(Exception):
    """A source could not be read, so no member may change.

    The message is for operators and is stored in events, so it contains no address, password or row data.
    """

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        """If a text has several faults, each with its line; the first are also in the message."""


class ConnectionMissing(SourceError):
    """There is no address for the name that a runbook gives as its connection."""


def too_many_rows(rows_max: int) -> SourceError:
    return SourceError(
        f"the source has more than {rows_max} rows: narrow the query or raise LUCIUS_SOURCE_ROWS_MAX, or split the file"
    )


def of_faults(what: str, faults: Sequence[str], count: int) -> SourceError:
    """One error for many faults: the first ones in full, and the number of the rest."""
    shown = "; ".join(faults[:FAULTS_SHOWN])
    more = count - min(len(faults), FAULTS_SHOWN)
    return SourceError(f"{what}: {shown}" + (f"; and {more} more" if more else ""), faults)

"""How much of a source is read, how long for, and the error of one that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

FAULTS_SHOWN = 3
FAULTS_KEPT = 100


class SourceLimits(Struct, frozen=True, kw_only=True):
    query_seconds: float = 30.0
    rows_max: int = 200_000
    columns_max: int = 200
    cell_chars_max: int = 32_768
    result_chars_max: int = 134_217_728
    """All the text of one answer: what the other limits would allow together fits in no memory."""
    file_bytes_max: int = 67_108_864


class SourceError(Exception):
    """A source could not be read, and nobody's state may follow from it.

    The message is for operators and goes into events, so it holds no address, no password and nothing out of a row.
    """

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        """Where a text has several, each with its line; the first of them stand in the message too."""


def too_many_rows(rows_max: int) -> SourceError:
    return SourceError(
        f"the source has more than {rows_max} rows: narrow the query or raise LUCIUS_SOURCE_ROWS_MAX, "
        "or cut the file into several"
    )


def of_faults(what: str, faults: Sequence[str], count: int) -> SourceError:
    """One error for many faults: the first ones in words, and how many more there are."""
    shown = "; ".join(faults[:FAULTS_SHOWN])
    more = count - min(len(faults), FAULTS_SHOWN)
    return SourceError(f"{what}: {shown}" + (f"; and {more} more" if more else ""), faults)

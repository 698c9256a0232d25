"""Members as read from a data source."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.json_types import WholeNumber
from lucius.domain.time import Instant


class Member(Struct, frozen=True, gc=False):
    key: str
    batch_time: Instant | None
    """None with `batch_time: immediate`."""
    values: tuple[str | None, ...]
    """In column order."""
    digest: bytes
    """Digest of the values: equal digests need no further comparison."""


class RowFault(Struct, frozen=True):
    row: WholeNumber
    """Counted from 1, without the CSV header."""
    key: str | None
    message: str
    line: WholeNumber | None = None
    """Of a CSV: the line on which the row begins, counted from 1."""

    @property
    def place(self) -> str:
        return f"row {self.row}" if self.line is None else f"line {self.line}"


class Members(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    members: dict[str, Member]
    faults: tuple[RowFault, ...] = ()
    """The first faults; `fault_count` counts all."""
    fault_count: int = 0
    unusable: frozenset[str] = frozenset()
    """Keys of rows with a fault. Nothing is certain about such a key, especially not that it is gone. A duplicate key
    is also in `members`, with its first row."""
    keyless_count: int = 0
    """Rows whose key could not be read. If there are any, a missing key may be one of them."""

"""The table of what is beside the ledger: bulk operations, what people did, sign-ins and views of the console, who asks
for work, lanes over time.

Bulk operations and the audit share a partition, so that an act and its entry are one transaction. Azure serves some
2,000 rows of a partition a second, which is enough for what people do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lucius.azure.tables import TableFailed, TableNotFound
from lucius.ports.database import DatabaseUnavailable

OPERATIONS = "operations"
"""The partition of bulk operations and of the audit."""
CONSOLE = "console"
WORKERS = "workers"
WORKER_FAILURES = "worker-failures"
VIEWS = "views"
"""The first part of the partitions of saved views."""
LANES = "lanes"
TRIES_MAX = 20
"""Of a change that others get in the way of."""

DOCUMENT = "document"
COLUMN_BYTES_MAX = 64 * 1024
_INVERTED = str.maketrans("0123456789abcdef", "fedcba9876543210")


@contextmanager
def unavailable() -> Iterator[None]:
    """A failure of the table as one of the ports."""
    try:
        yield
    except TableFailed as error:
        raise DatabaseUnavailable(str(error)) from error


def crowded_out(what: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"{what}: gave up after {TRIES_MAX} changes of others in between")


def descending(hex_text: str) -> str:
    """A text of lower-case hexadecimal digits and hyphens, as one that sorts the other way round."""
    return hex_text.translate(_INVERTED)


def document_columns(document: bytes) -> dict[str, bytes]:
    """A document may be larger than a column."""
    parts = [document[start : start + COLUMN_BYTES_MAX] for start in range(0, len(document), COLUMN_BYTES_MAX)]
    return {f"{DOCUMENT}_{place}": part for place, part in enumerate(parts)}


def read_document(values: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    while (part := values.get(f"{DOCUMENT}_{len(parts)}")) is not None:
        parts.append(part)
    return b"".join(parts)


def is_missing_table(error: TableFailed) -> bool:
    return isinstance(error, TableNotFound) and "TableNotFound" in str(error)

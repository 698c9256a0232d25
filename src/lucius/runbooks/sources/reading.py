"""Reads a source of any kind: in a thread, within its limits, and read-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lucius.runbooks.core.definition.model import DataSource
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.sources.csv_text import read_csv
from lucius.runbooks.sources.deadline import Stop, in_thread
from lucius.runbooks.sources.files import FileStamps, Stillness, read_bytes
from lucius.runbooks.sources.limits import ConnectionMissing, SourceError, SourceLimits
from lucius.runbooks.sources.rows import Rows, read_members
from lucius.runbooks.sources.sql import read_sql

__all__ = ["PREVIEW_ROWS", "SourceError", "SourceLimits", "preview", "read_source", "read_source_members"]

PREVIEW_ROWS = 20


async def read_source(
    source: DataSource, environ: Mapping[str, str], limits: SourceLimits, own_files: Sequence[Path]
) -> Rows:
    """Every row. `own_files` are LUCIUS's own databases, which are refused. Raises SourceError."""
    return await in_thread(_work(source, environ, limits, own_files, None), limits.query_seconds)


async def read_source_members(
    source: DataSource,
    environ: Mapping[str, str],
    limits: SourceLimits,
    own_files: Sequence[Path],
    stamps: FileStamps | None = None,
) -> Members:
    """`read_source` and `read_members` in one thread, to keep the event loop free. With `stamps`, a file is read only
    once it is unchanged and ends with a complete line. Raises SourceError."""
    read = _work(source, environ, limits, own_files, None, stamps)
    return await in_thread(lambda stop: read_members(read(stop), source), limits.query_seconds)


async def preview(
    source: DataSource,
    environ: Mapping[str, str],
    limits: SourceLimits,
    own_files: Sequence[Path],
    limit: int = PREVIEW_ROWS,
) -> Rows:
    """The first rows, with the checks of `read_source` on those. Raises SourceError."""
    return await in_thread(_work(source, environ, limits, own_files, limit), limits.query_seconds)


def _work(
    source: DataSource,
    environ: Mapping[str, str],
    limits: SourceLimits,
    own_files: Sequence[Path],
    rows_first: int | None,
    stamps: FileStamps | None = None,
) -> Callable[[Stop], Rows]:
    variable = source.connection

    def csv_work(stop: Stop) -> Rows:
        address = _address(source, environ)
        stillness = Stillness(stamps, limits.still_seconds, stop.pause) if stamps is not None else None
        content = read_bytes(Path(address), own_files, variable, limits.file_bytes_max, stillness)
        stop.check()
        return read_csv(content, limits, rows_first)

    def sql_work(stop: Stop) -> Rows:
        return read_sql(_address(source, environ), source.query, variable, limits, own_files, stop, rows_first)

    return csv_work if source.type == "csv" else sql_work


def _address(source: DataSource, environ: Mapping[str, str]) -> str:
    address = environ.get(source.connection, "").strip()
    if not address:
        kind = "path of the CSV file" if source.type == "csv" else "SQLAlchemy URL of the database"
        raise ConnectionMissing(
            f"the environment variable {source.connection} is not set: set it to the {kind}, or list it in the file"
            " that LUCIUS_SOURCES_FILE names"
        )
    return address

"""Reads a SQL source through SQLAlchemy: one statement, in a read-only transaction that is rolled back.

Access is limited twice where possible: by how the database is opened or by the transaction, and by the rights of the
role in the address, which the operator chooses. Driver errors do not leave this module, since they may quote the
address or a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from lucius.runbooks.core.definition.names import columns_faults
from lucius.runbooks.core.definition.query import query_fault, statement
from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.dialects import connect_options, fence, sqlite_options, unfenced_fault, wake_of
from lucius.runbooks.sources.driver_errors import reason
from lucius.runbooks.sources.limits import SQLITE_VALUE_BYTES_MAX, SourceError, SourceLimits, of_faults, too_many_rows
from lucius.runbooks.sources.rows import Rows

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, CursorResult, Engine

FETCH_ROWS = 500
FETCH_BYTES_MAX = 67_108_864
"""Upper limit of one fetch, as SQLite bounds each value; its actual size is checked before the next."""
_SHORT_KINDS = {int, float, bool, date, datetime, UUID}
_SHORT_CHARS = 8
"""Size assumed for each of these."""


def read_sql(
    address: str,
    query: str,
    variable: str,
    limits: SourceLimits,
    own_files: Sequence[Path],
    stop: Stop,
    rows_first: int | None = None,
) -> Rows:
    """Every row, or the first few. Raises SourceError."""
    refused = query_fault(query)
    if refused is not None or "\0" in query:
        raise SourceError(refused or "the query contains a NUL character: remove it")
    engine = _engine(_url(address, variable), variable, limits, own_files)
    fault: Exception
    what = f"the database that {variable} names cannot be reached"
    try:
        with engine.connect() as connection:
            what = f"the query of the source {variable} failed"
            return _rows(connection, query, limits, stop, rows_first)
    except SourceError:
        raise
    except Exception as raised:
        fault = raised
    finally:
        stop.wakes(None)
        engine.dispose()
    # Raised outside the handler, so that not even the error's context has the driver's message.
    if stop.is_due():
        raise stop.error()
    raise SourceError(f"{what}: {reason(fault)}")


def _url(address: str, variable: str) -> URL:
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError:
        raise SourceError(
            "SQL sources need SQLAlchemy: pip install '.[sources]' in a clone of LUCIUS, and add the database's driver"
        ) from None
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise SourceError(f"{variable} is not a SQLAlchemy URL such as postgresql+psycopg://user@host/name") from None
    if any(option.lower() == "autocommit" for option in url.query):
        raise SourceError(f"the address in {variable} sets autocommit: remove it, a source is always rolled back")
    # Before 2.1 SQLAlchemy would use another driver for these.
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _engine(url: URL, variable: str, limits: SourceLimits, own_files: Sequence[Path]) -> Engine:
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    options: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    if url.get_backend_name() == "sqlite":
        url, creator = sqlite_options(url, variable, own_files)
        options["creator"] = creator
    message = ""
    try:
        options["connect_args"] = connect_options(url.get_driver_name(), limits.query_seconds)
        engine = create_engine(url, **options)
    except ModuleNotFoundError as fault:
        message = f"the driver of {variable} is missing: install the Python package {fault.name!r}"
    except NoSuchModuleError:
        message = f"SQLAlchemy does not know the database {url.drivername!r} in {variable}: install its dialect"
    except (ArgumentError, TypeError, ValueError):
        message = f"the address in {variable} has options that its driver does not know"
    if message:
        raise SourceError(message)
    if engine.dialect.is_async:
        raise SourceError(
            f"the driver {url.drivername!r} in {variable} is asynchronous: use a synchronous one, "
            "such as postgresql+psycopg"
        )
    return engine


def _rows(connection: Connection, query: str, limits: SourceLimits, stop: Stop, rows_first: int | None) -> Rows:
    refused = unfenced_fault(connection.dialect.name, query)
    if refused is not None:
        raise SourceError(refused)
    stop.wakes(wake_of(connection))
    fence(connection, stop, limits.query_seconds)
    stop.check()
    streamed = connection.execution_options(stream_results=True, max_row_buffer=FETCH_ROWS, no_parameters=True)
    with streamed.exec_driver_sql(statement(query)) as result:
        columns = _columns(result, limits)
        return Rows(columns, _fetched(result, columns, limits, stop, rows_first))


def _columns(result: CursorResult[Any], limits: SourceLimits) -> tuple[str, ...]:
    if not result.returns_rows:
        raise SourceError("the query returns no rows: it must be a SELECT")
    columns = tuple(result.keys())
    if len(columns) > limits.columns_max:
        raise SourceError(
            f"the query returns {len(columns)} columns; at most {limits.columns_max} are allowed: select fewer"
        )
    faults = columns_faults(columns)
    if faults:
        raise of_faults("the columns of the query cannot be used", faults, len(faults))
    return columns


def _fetched(
    result: CursorResult[Any], columns: tuple[str, ...], limits: SourceLimits, stop: Stop, rows_first: int | None
) -> list[tuple[Any, ...]]:
    """Fetches one row more than the limit, to detect that there are more."""
    wanted = limits.rows_max + 1 if rows_first is None else min(rows_first, limits.rows_max)
    at_once = max(1, min(FETCH_ROWS, FETCH_BYTES_MAX // (SQLITE_VALUE_BYTES_MAX * len(columns))))
    rows: list[tuple[Any, ...]] = []
    chars = 0
    while len(rows) < wanted:
        chunk = [tuple(row) for row in result.fetchmany(min(at_once, wanted - len(rows)))]
        if not chunk:
            break
        chars += _chars(chunk, columns, limits)
        if chars > limits.result_chars_max:
            raise SourceError(
                f"the query returns more than {limits.result_chars_max} characters in all: "
                "narrow it, or select fewer columns"
            )
        rows += chunk
        stop.check()
    if len(rows) > limits.rows_max:
        raise too_many_rows(limits.rows_max)
    return rows


def _chars(chunk: list[tuple[Any, ...]], columns: tuple[str, ...], limits: SourceLimits) -> int:
    total = 0
    for name, column in zip(columns, zip(*chunk, strict=True), strict=True):
        kinds = {*map(type, column)} - {type(None)}
        if kinds == {str}:
            lengths = [*map(len, filter(None, column))]
        elif kinds <= _SHORT_KINDS:
            total += _SHORT_CHARS * len(column)
            continue
        else:
            lengths = [_length(value) for value in column if value is not None]
        if lengths and max(lengths) > limits.cell_chars_max:
            raise SourceError(
                f"the query returns more than {limits.cell_chars_max} characters in one cell of the column {name!r}: "
                "shorten it in the query, or leave the column out"
            )
        total += sum(lengths)
    return total


def _length(value: Any) -> int:
    if type(value) in _SHORT_KINDS:
        return _SHORT_CHARS
    return len(value if isinstance(value, str | bytes | bytearray) else str(value))

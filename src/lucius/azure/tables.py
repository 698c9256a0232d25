"""Rows of Azure Tables: read by key or by range, written in transactions of one partition.

Azure's SDK tries writes again, and then a write can be refused because of its own first try, or its answer can be lost.
So every write stamps its rows with an id, `op_id`; after a refusal or a lost answer one of those rows is read back, and
if it has the id, the write has succeeded.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from lucius.azure.keys import key_fault
from lucius.azure.table_errors import (
    TableConflict,
    TableFailed,
    TableNotFound,
    TableRefused,
    TableUnavailable,
    is_broken_connection,
    is_uncertain,
    sorted_out,
)

__all__ = [
    "Delete",
    "Insert",
    "Page",
    "Put",
    "Row",
    "Table",
    "TableAccount",
    "TableConflict",
    "TableFailed",
    "TableNotFound",
    "TableRefused",
    "TableUnavailable",
    "Write",
]

CALL_SECONDS = 10.0
"""One call with its retries."""
CONNECT_SECONDS = 5
IDLE_SECONDS_MAX = 3.0
"""How long an idle connection is kept."""
CONNECTIONS_MAX = 100
QUEUE_SECONDS_MAX = 30.0
"""How long a call waits for one of them, before its own time begins."""
BROKEN_CONNECTION_TRIES = 3
"""How often a write is sent whose connection ends before its answer. A server closes connections that it thinks idle,
and the SDK sends an insert or a transaction only once then."""
RETRIES: dict[str, Any] = {"retry_total": 3, "retry_backoff_factor": 0.2, "retry_backoff_max": 5}
TRANSACTION_ROWS_MAX = 100
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024
TEXT_CHARS_MAX = 32 * 1024
"""Of one property, in UTF-16."""
PAGE_ROWS_MAX = 1_000
OP_ID = "op_id"

Value = str | int | float | bool | bytes
Sent = Callable[[str, str, Any], None]
"""Told of every request on the wire, retries among them: its method, its URL and its body."""


class Row(NamedTuple):
    partition: str
    key: str
    values: Mapping[str, Any]
    etag: str


class Insert(NamedTuple):
    """A new row: `TableConflict` if there is one."""

    key: str
    values: Mapping[str, Value | None]


class Put(NamedTuple):
    """The whole row. With `etag`, only if the row has not changed since; without, whether or not there is one."""

    key: str
    values: Mapping[str, Value | None]
    etag: str | None = None


class Delete(NamedTuple):
    """With `etag`, only if the row has not changed since. In a transaction a row that is missing is `TableNotFound`."""

    key: str
    etag: str | None = None


Write = Insert | Put | Delete


class Page(NamedTuple):
    rows: list[Row]
    next: str | None
    """Where the next page begins: hand it to `page` again; None after the last one."""


class TableAccount:
    """The tables of one storage account; an async context manager. Every call raises a `TableFailed`, which names the
    table and nothing secret."""

    def __init__(self, open_service: Callable[[dict[str, Any]], Any]) -> None:
        """Use one of the constructors below."""
        self.observers: list[Sent] = []
        self.skew_seconds = 0.0
        """How far this machine's clock was ahead of Azure's at the last answer, give or take a second."""
        hooks = {"raw_request_hook": self._note_request, "raw_response_hook": self._note_response}
        self._service = open_service({**_options(), **hooks})
        self.account = str(self._service.account_name)
        self._tables: dict[str, Table] = {}
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)

    @classmethod
    def connected(cls, connection: str) -> TableAccount:
        """By connection string, for emulators and tests. Raises `ValueError` for one that is not."""
        from azure.data.tables.aio import TableServiceClient

        try:
            return cls(lambda options: TableServiceClient.from_connection_string(connection, **options))
        except (ValueError, KeyError, AttributeError):
            raise ValueError("this is not a connection string of a storage account") from None

    @classmethod
    def named(cls, account: str, credential: Any, url: str = "") -> TableAccount:
        """By name. `credential` is an async credential, which the caller closes; `url` is where the account is if not
        at `https://ACCOUNT.table.core.windows.net`."""
        from azure.data.tables.aio import TableServiceClient

        url = url or f"https://{account}.table.core.windows.net"
        return cls(lambda options: TableServiceClient(url, credential=credential, **options))

    async def __aenter__(self) -> TableAccount:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._service.close()

    def table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(
                f"table {name} of {self.account}", self._service.get_table_client(name), self._slots
            )
        return self._tables[name]

    async def create_table(self, name: str) -> bool:
        """Whether it is new."""
        try:
            async with _call(f"table {name} of {self.account}", self._slots):
                await self._service.create_table(name)
        except TableConflict:
            return False
        return True

    async def delete_table(self, name: str) -> None:
        async with _call(f"table {name} of {self.account}", self._slots):
            await self._service.delete_table(name)

    async def table_names(self) -> set[str]:
        async with _call(f"tables of {self.account}", self._slots):
            return {table.name async for table in self._service.list_tables()}

    def _note_request(self, request: Any) -> None:
        sent = request.http_request
        for observer in self.observers:
            observer(sent.method, sent.url, sent.content)

    def _note_response(self, response: Any) -> None:
        date = response.http_response.headers.get("Date")
        try:
            at = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError):
            return  # Something on the way has answered.
        # The header has whole seconds, rounded down.
        self.skew_seconds = time.time() - at - 0.5


class Table:
    def __init__(self, place: str, client: Any, slots: asyncio.Semaphore) -> None:
        self.place = place
        self._client = client
        self._slots = slots

    async def get(self, partition: str, key: str, select: Sequence[str] | None = None) -> Row | None:
        """`select` names the columns that are read; None is all."""
        try:
            async with _call(self.place, self._slots):
                return _read(await self._client.get_entity(partition, key, **_select(select)))
        except TableNotFound as error:
            if "TableNotFound" in str(error):
                raise
            return None

    async def page(
        self,
        partition: str,
        first: str = "",
        end: str | None = None,
        *,
        limit: int = PAGE_ROWS_MAX,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        """Rows of one partition by key, from `first` up to, not including, `end`. One request. A page can have fewer
        rows than `limit`, even none, and still be followed by others."""
        conditions = "PartitionKey eq @partition and RowKey ge @first"
        values = {"partition": partition, "first": first}
        if end is not None:
            conditions += " and RowKey lt @end"
            values["end"] = end
        async with _call(self.place, self._slots):
            found = self._client.query_entities(
                conditions, parameters=values, results_per_page=min(limit, PAGE_ROWS_MAX), **_select(select)
            ).by_page(_continuation(continuation))
            async for page in found:
                rows = [_read(entity) async for entity in page]
                return Page(rows, _continuation_text(found.continuation_token))
        return Page([], None)

    async def rows(
        self,
        partition: str,
        first: str = "",
        end: str | None = None,
        *,
        limit: int,
        select: Sequence[str] | None = None,
    ) -> list[Row]:
        """Up to `limit` rows of a range, in as many requests as Azure needs."""
        found: list[Row] = []
        continuation: str | None = None
        while len(found) < limit:
            page = await self.page(
                partition, first, end, limit=limit - len(found), select=select, continuation=continuation
            )
            found += page.rows
            continuation = page.next
            if continuation is None:
                break
        return found[:limit]

    async def write(self, partition: str, writes: Sequence[Write]) -> dict[str, str]:
        """All of them or none, in one request; returns the new ETags by key. If the answer was lost and the rows prove
        that the write succeeded, ETags may be missing. Raises `TableConflict`, `TableNotFound`, `TableRefused`, and
        `TableUnavailable`."""
        self._check(partition, writes)
        op_id = uuid.uuid4().hex
        tries_left = BROKEN_CONNECTION_TRIES
        while True:
            tries_left -= 1
            try:
                async with _connection(self.place, self._slots), asyncio.timeout(CALL_SECONDS):
                    if len(writes) == 1:
                        return {writes[0].key: await self._send_one(partition, writes[0], op_id)}
                    return await self._send(partition, writes, op_id)
            except Exception as error:
                failure = sorted_out(error, self.place)
                if failure is None:
                    raise
                if is_uncertain(error):
                    etags = await self._written(partition, writes, op_id, failure)
                    if etags is not None:
                        return etags
                # Deletions alone leave nothing to tell a first try by.
                if tries_left and is_broken_connection(error) and _witness(writes) is not None:
                    continue
                raise failure from (None if isinstance(failure, TableRefused) else error)

    def _check(self, partition: str, writes: Sequence[Write]) -> None:
        if not 1 <= len(writes) <= TRANSACTION_ROWS_MAX:
            raise TableRefused(f"{self.place}: a transaction has 1 to {TRANSACTION_ROWS_MAX} rows, not {len(writes)}")
        for key in (partition, *(one.key for one in writes)):
            fault = key_fault(key)
            if fault is not None:
                raise TableRefused(f"{self.place}: the key {key[:100]!r} is not allowed: {fault}")

    async def _send_one(self, partition: str, write: Write, op_id: str) -> str:
        if isinstance(write, Delete):
            await self._client.delete_entity(partition, write.key, **_unless_changed(write.etag))
            return ""
        entity = _entity(partition, write.key, write.values, op_id)
        if isinstance(write, Insert):
            written = await self._client.create_entity(entity)
        elif write.etag is None:
            written = await self._client.upsert_entity(entity, mode=_replace())
        else:
            written = await self._client.update_entity(entity, mode=_replace(), **_unless_changed(write.etag))
        return str(written["etag"])

    async def _send(self, partition: str, writes: Sequence[Write], op_id: str) -> dict[str, str]:
        operations = [_operation(partition, write, op_id) for write in writes]
        answers = await self._client.submit_transaction(operations)
        return {write.key: str(answer.get("etag", "")) for write, answer in zip(writes, answers, strict=True)}

    async def _written(
        self, partition: str, writes: Sequence[Write], op_id: str, failure: TableFailed
    ) -> dict[str, str] | None:
        """The ETags that are known, if the write has succeeded; None if it has not. A row that was inserted is the best
        witness, because rows that are only inserted are never written over by somebody else."""
        witness = _witness(writes)
        if witness is None:
            return None
        try:
            found = await self.get(partition, witness.key, [OP_ID])
        except TableNotFound:  # Of the table itself.
            raise
        except TableFailed:
            raise TableUnavailable(f"{failure}; and it cannot be read back", is_unknown=True) from failure
        if found is None or found.values.get(OP_ID) != op_id:
            if isinstance(failure, TableUnavailable):
                failure.is_unknown = False
            return None
        return {witness.key: found.etag}


def _witness(writes: Iterable[Write]) -> Insert | Put | None:
    kept = [write for write in writes if not isinstance(write, Delete)]
    return next((write for write in kept if isinstance(write, Insert)), kept[0] if kept else None)


def _operation(partition: str, write: Write, op_id: str) -> tuple[Any, ...]:
    if isinstance(write, Delete):
        return "delete", {"PartitionKey": partition, "RowKey": write.key}, _unless_changed(write.etag)
    entity = _entity(partition, write.key, write.values, op_id)
    if isinstance(write, Insert):
        return "create", entity
    if write.etag is None:
        return "upsert", entity, {"mode": _replace()}
    return "update", entity, {"mode": _replace(), **_unless_changed(write.etag)}


def _entity(partition: str, key: str, values: Mapping[str, Value | None], op_id: str) -> dict[str, Any]:
    from azure.data.tables import EdmType, EntityProperty

    entity: dict[str, Any] = {"PartitionKey": partition, "RowKey": key, OP_ID: op_id}
    for name, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            # Without its type, one beyond 32 bits comes back as another number.
            entity[name] = EntityProperty(value, EdmType.INT64)
        elif value is not None:
            entity[name] = value
    return entity


def _read(entity: Any) -> Row:
    values = {
        name: getattr(value, "value", value) for name, value in entity.items() if name not in ("PartitionKey", "RowKey")
    }
    return Row(entity["PartitionKey"], entity["RowKey"], values, str(entity.metadata.get("etag", "")))


def _select(columns: Sequence[str] | None) -> dict[str, Any]:
    return {} if columns is None else {"select": ["PartitionKey", "RowKey", *columns]}


def _unless_changed(etag: str | None) -> dict[str, Any]:
    from azure.core import MatchConditions

    return {} if etag is None else {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _replace() -> Any:
    from azure.data.tables import UpdateMode

    return UpdateMode.REPLACE


def _continuation(text: str | None) -> dict[str, str | None] | None:
    if text is None:
        return None
    partition, _, key = text.partition(" ")
    return {"PartitionKey": partition or None, "RowKey": key or None}


def _continuation_text(token: Mapping[str, str | None] | None) -> str | None:
    if not token:
        return None
    return f"{token.get('PartitionKey') or ''} {token.get('RowKey') or ''}"


def _options() -> dict[str, Any]:
    # It would write a line for every request.
    logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)
    return {**RETRIES, "timeout": CALL_SECONDS, "transport": _transport()}


def _transport() -> Any:
    """The SDK's own, but for how long connections are kept: a request on one that the server is just closing fails, and
    several of its retries may meet such a connection. Azurite closes them after 5 idle seconds."""
    import aiohttp
    from azure.core.pipeline.transport import AioHttpTransport

    class Transport(AioHttpTransport):  # type: ignore[misc]
        session: Any

        async def open(self) -> None:
            if self.session is None and not self._has_been_opened:
                self.session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_SECONDS_MAX),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    trust_env=True,
                )
            await super().open()

    return Transport(connection_timeout=CONNECT_SECONDS, read_timeout=CALL_SECONDS)


@asynccontextmanager
async def _connection(place: str, slots: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(QUEUE_SECONDS_MAX):
            await slots.acquire()
    except TimeoutError:
        detail = f"{place}: {CONNECTIONS_MAX} calls are under way, and none has ended for {QUEUE_SECONDS_MAX:g} s"
        raise TableUnavailable(detail) from None
    try:
        yield
    finally:
        slots.release()


@asynccontextmanager
async def _call(place: str, slots: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with _connection(place, slots), asyncio.timeout(CALL_SECONDS):
            yield
    except Exception as error:
        failure = sorted_out(error, place)
        if failure is None:
            raise
        raise failure from error

"""PostgreSQL databases at the current schema that tests use one after another.

To make a database and to drop it costs more than most tests that need one. So the database of the test before is
emptied and used again, unless that test has left more in it than rows and tables: another schema, statistics, settings,
or somebody who is still connected. Such a database is dropped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg

_numbers = count(1)
LEAVE_SECONDS_MAX = 0.5
"""How long after a test its connections may take to end."""
FIRST_OWN_OID = 16_384
"""What has a lower one comes with PostgreSQL."""

_SCHEMA = f"""
    SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
        SELECT concat('relation ', oid, relname, relkind, reloptions, relacl) FROM pg_class WHERE oid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('column ', attrelid, attname, atttypid, attnotnull, attisdropped)
            FROM pg_attribute WHERE attrelid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('default ', adrelid, adnum, adbin) FROM pg_attrdef
        UNION ALL SELECT concat('index ', indexrelid, indisvalid) FROM pg_index WHERE indexrelid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('constraint ', oid) FROM pg_constraint WHERE oid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('trigger ', oid, tgenabled) FROM pg_trigger
        UNION ALL SELECT concat('function ', oid, prosrc) FROM pg_proc WHERE oid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('namespace ', oid, nspname, nspacl)
            FROM pg_namespace WHERE nspname !~ '^pg_temp|^pg_toast'
        UNION ALL SELECT concat('extension ', oid) FROM pg_extension
        UNION ALL SELECT concat('statistics ', starelid) FROM pg_statistic WHERE starelid >= {FIRST_OWN_OID}
        UNION ALL SELECT concat('settings ', setrole, setconfig) FROM pg_db_role_setting
            WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
        UNION ALL SELECT concat('database ', datallowconn, datconnlimit, datacl)
            FROM pg_database WHERE datname = current_database()
    ) AS everything (line)"""
_TABLES = "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND oid >= $1"
_USED_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences WHERE last_value IS NOT NULL"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class _Fresh(NamedTuple):
    """A copy of the template that nobody has used."""

    schema: str
    tables: list[str]
    contents: dict[str, str]
    """Of those tables that are not empty."""


class Databases:
    """Copies of a template, for one test at a time each."""

    def __init__(self, server: str, template: str, strategy: str) -> None:
        self._server = server
        self._template = template
        self._strategy = strategy
        self._idle: list[str] = []
        self._fresh: _Fresh | None = None

    @asynccontextmanager
    async def one(self) -> AsyncIterator[str]:
        """The URL of a database without any jobs. Whatever the test leaves open may be closed after this ends."""
        name = self._idle.pop() if self._idle else None
        if name is not None and not await self._is_emptied(name):
            await administer(self._server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            name = None
        if name is None:
            name = f"lucius_test_{os.getpid()}_{next(_numbers)}"
            await administer(self._server, f"CREATE DATABASE {name} TEMPLATE {self._template} {self._strategy}")
            await self._look(name)
        yield with_database(self._server, name)
        self._idle.append(name)

    async def drop(self) -> None:
        for name in self._idle:
            await administer(self._server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def _look(self, name: str) -> None:
        """Copies are alike down to the numbers in the catalog, so the first one tells about all."""
        if self._fresh is not None:
            return
        async with _connected(with_database(self._server, name)) as connection:
            assert not await connection.fetch(_USED_SEQUENCES), "the template must not have used its sequences"
            tables = await _tables(connection)
            contents = {table: await _contents(connection, table) for table in await _filled(connection, tables)}
            self._fresh = _Fresh(await connection.fetchval(_SCHEMA), tables, contents)

    async def _is_emptied(self, name: str) -> bool:
        """Empty it, and say whether it is then as it was when it was made."""
        assert self._fresh is not None
        _, known, contents = self._fresh
        try:
            async with _connected(with_database(self._server, name)) as connection:
                if not await _is_alone(connection):
                    return False
                if added := [table for table in await _tables(connection) if table not in known]:
                    await connection.execute(f"DROP TABLE {', '.join(added)} CASCADE")
                if await connection.fetchval(_SCHEMA) != self._fresh.schema:
                    return False
                for table, content in contents.items():
                    if await _contents(connection, table) != content:
                        return False
                if filled := [table for table in await _filled(connection, known) if table not in contents]:
                    await connection.execute(f"TRUNCATE {', '.join(filled)} RESTART IDENTITY")
                for (sequence,) in await connection.fetch(_USED_SEQUENCES):
                    await connection.execute(f"ALTER SEQUENCE {sequence} RESTART")
                return True
        except (asyncpg.PostgresError, OSError):
            return False  # The test has dropped it, or closed it to everybody.


async def _is_alone(connection: asyncpg.Connection) -> bool:
    end = asyncio.get_running_loop().time() + LEAVE_SECONDS_MAX
    while await connection.fetchval(_OTHERS):
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.01)
    return True


async def _tables(connection: asyncpg.Connection) -> list[str]:
    return [row[0] for row in await connection.fetch(_TABLES, FIRST_OWN_OID)]


async def _filled(connection: asyncpg.Connection, tables: list[str]) -> list[str]:
    looks = " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in tables)
    return [row[0] for row in await connection.fetch(looks)]


async def _contents(connection: asyncpg.Connection, table: str) -> str:
    found = await connection.fetchval(f"SELECT md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {table} AS t")
    return str(found)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        with suppress(OSError):
            await connection.close()


async def administer(url: str, statement: str) -> None:
    async with _connected(url) as connection:
        await connection.execute(statement)


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

from __future__ import annotations

import asyncpg
import pytest

from lucius.runbooks.core.definition.model import DataSource, MultiValued
from lucius.runbooks.sources import deadline, dialects, sql
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview, read_source, read_source_members
from lucius.runbooks.sources.rows import Rows

LIMITS = SourceLimits()


@pytest.fixture
async def members_url(postgres_url: str, psycopg_url: str) -> str:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "CREATE TABLE people (upn text, moves timestamptz, aliases text[], size numeric, raw bytea);"
        "INSERT INTO people SELECT 'user' || n, timestamptz '2026-03-15 00:00+02', ARRAY['a', 'b'], n, 'x'"
        " FROM generate_series(1, 5) AS n; CREATE SEQUENCE counter"
    )
    await connection.close()
    return psycopg_url


async def read(url: str, query: str, limits: SourceLimits = LIMITS) -> Rows:
    source = DataSource(type="sql", connection="MEMBERS_DB", query=query, primary_key="upn")
    return await read_source(source, {"MEMBERS_DB": url}, limits, [])


async def message_of(url: str, query: str, limits: SourceLimits = LIMITS) -> str:
    with pytest.raises(SourceError) as caught:
        await read(url, query, limits)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


async def test_members_of_a_server_are_read(members_url: str) -> None:
    source = DataSource(
        type="sql",
        connection="MEMBERS_DB",
        query="SELECT upn, moves, aliases, size FROM people ORDER BY size;",
        primary_key="upn",
        batch_time_column="moves",
        multi_valued=(MultiValued("aliases", "json_array"),),
    )
    members = await read_source_members(source, {"MEMBERS_DB": members_url}, LIMITS, [])
    assert list(members.members) == [f"user{number}" for number in range(1, 6)]
    first = members.members["user1"]
    assert first.values == ("user1", "2026-03-14T22:00:00Z", '["a","b"]', "1")
    assert first.batch_time == 1_773_525_600_000
    assert len((await preview(source, {"MEMBERS_DB": members_url}, LIMITS, [], limit=2)).rows) == 2


async def test_an_address_without_a_driver_means_psycopg(members_url: str) -> None:
    url = members_url.replace("postgresql+psycopg", "postgresql")
    assert len((await read(url, "SELECT upn FROM people")).rows) == 5


async def test_signs_of_parameters_are_text_for_psycopg_too(members_url: str) -> None:
    query = "SELECT '100% :x ? %s %(y)s' AS upn FROM people WHERE upn LIKE '%1' AND size % 2 = 1 -- 5% {z}"
    assert (await read(members_url, query)).rows == [("100% :x ? %s %(y)s",)]


@pytest.mark.parametrize(
    "query",
    [
        "WITH added AS (INSERT INTO people (upn) VALUES ('x') RETURNING upn) SELECT upn FROM added",
        "WITH gone AS (DELETE FROM people RETURNING upn) SELECT upn FROM gone",
        "DELETE FROM people RETURNING upn",
        "SELECT nextval('counter')::text AS upn",
        "SELECT set_config('transaction_read_only', 'off', false) AS upn",
        "SELECT upn FROM people; DELETE FROM people",
        "SELECT upn FROM people; COMMIT; DELETE FROM people",
        "SELECT upn FROM people FOR UPDATE",
        "COPY people TO PROGRAM 'true'",
        "SET TRANSACTION READ WRITE",
    ],
)
async def test_nothing_but_one_reading_statement_runs(unchecked: None, members_url: str, query: str) -> None:
    assert "the query of the source MEMBERS_DB failed: " in await message_of(members_url, query)
    assert (await read(members_url, "SELECT count(*) AS upn FROM people")).rows == [(5,)]
    assert (await read(members_url, "SELECT is_called AS upn FROM counter")).rows == [(False,)]


async def test_a_write_within_a_function_is_refused_as_one(members_url: str) -> None:
    message = await message_of(members_url, "SELECT nextval('counter')::text AS upn")
    assert "the query would write, and sources are read-only" in message
    message = await message_of(members_url, "WITH gone AS (DELETE FROM people RETURNING upn) SELECT upn FROM gone")
    assert "the query would write, and sources are read-only" in message


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT nonesuch FROM people", 'column "nonesuch" does not exist (UndefinedColumn, SQLSTATE 42703)'),
        ("SELECT upn::int AS upn FROM (SELECT 'secret' || upn AS upn FROM people) AS s", "SQLSTATE 22P02"),
        ("SELECT 1 / (size - size) AS upn FROM people", "DivisionByZero"),
        ("SELECT timestamp 'infinity' AS upn", "DataError"),
        ("SELECT upn, upn FROM people", "at most in letter case"),
        ("SELECT upn, 1 FROM people", "?column?"),
    ],
)
async def test_a_query_that_fails_says_why_without_a_row(members_url: str, query: str, told: str) -> None:
    message = await message_of(members_url, query)
    assert told in message
    assert "secret" not in message


async def test_bytes_are_a_fault_of_their_rows(members_url: str) -> None:
    source = DataSource(type="sql", connection="X", query="SELECT upn, raw FROM people", primary_key="upn")
    members = await read_source_members(source, {"X": members_url}, LIMITS, [])
    assert members.members == {}
    assert members.fault_count == len(members.unusable) == 5


async def test_the_row_limit_is_kept_while_rows_stream(members_url: str) -> None:
    query = "SELECT n::text AS upn FROM generate_series(1, 2500) AS n"
    assert len((await read(members_url, query, SourceLimits(rows_max=2_500))).rows) == 2_500
    assert "more than 2499 rows" in await message_of(members_url, query, SourceLimits(rows_max=2_499))


async def test_a_query_that_takes_too_long_is_stopped_by_the_server(
    members_url: str, monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(sql, "wake_of", lambda connection: None)
    message = await message_of(members_url, "SELECT pg_sleep(120)::text AS upn", SourceLimits(query_seconds=0.5))
    assert "ran longer than 0.5 s and was stopped" in message
    assert "left behind" not in message


async def test_a_query_that_the_server_does_not_stop_is_cancelled(
    members_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(dialects, "fence_statements", lambda *_, **__: ["SET TRANSACTION READ ONLY"])
    monkeypatch.setattr(deadline, "MARGIN_SECONDS", 0.5)
    message = await message_of(members_url, "SELECT pg_sleep(121)::text AS upn", SourceLimits(query_seconds=0.5))
    assert "ran longer than 0.5 s and was stopped" in message


async def test_an_address_is_never_in_a_message(members_url: str) -> None:
    for url in (
        "postgresql+psycopg://someone:s3cret@127.0.0.1:1/nonesuch",
        "postgresql+psycopg://someone:s3cret@/nonesuch?host=/nowhere/s3cret",
        "postgresql+psycopg://someone:s3cret@127.0.0.1:1/nonesuch?s3cret=1",
        "postgresql+psycopg://someone:s3cret@127.0.0.1:s3cret/nonesuch",
    ):
        message = await message_of(url, "SELECT 1 AS upn")
        assert "s3cret" not in message
        assert "someone" not in message
        assert "127.0.0.1" not in message
        assert "MEMBERS_DB" in message

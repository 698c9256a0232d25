"""A PostgreSQL server that becomes read-only, and one that freezes: 503 meanwhile, and work goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.postgres_servers import Server, primary, standby

from lucius.sql.database import DatabaseUnavailable, Fetch
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade

FROZEN_ANSWER_SECONDS_MAX = 10.0
READS_AT_ONCE = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="lucius-failover-"))
    try:
        with primary(folder / "data") as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database(server: Server) -> AsyncIterator[str]:
    server.sql("CREATE DATABASE lucius")
    async with PostgresDatabase(server.url("lucius"), pool_max=1) as opened:
        await upgrade(opened)
    yield "lucius"
    server.sql("DROP DATABASE lucius WITH (FORCE)")


async def every_kind(api: Any, job_id: str) -> list[httpx.Response]:
    """A submit, a read, a list, a pull and an operation, all at once."""
    return list(
        await asyncio.gather(
            api.submit(),
            api.client.get(f"/v1/jobs/{job_id}"),
            api.client.get("/v1/jobs"),
            api.client.post("/v1/directives:pull", json={"service": "ocr", "max": 1, "wait_seconds": 0}),
            api.operate(job_id, "pause"),
        )
    )


async def until_ready(api: Any) -> None:
    async with asyncio.timeout(60):
        while (await api.readiness())[0] != 200:
            await asyncio.sleep(0.05)


async def test_frozen_server_is_answered_for_in_time_and_given_up_for_another(
    server: Server, database: str, open_api: Any
) -> None:
    with standby(server) as other:
        api = await open_api(ledger=f"postgresql://postgres@{server.host},{other.host}/{database}")
        job_id = await api.accepted()
        server.signal(signal.SIGSTOP)
        try:
            for _ in range(2):
                began = time.monotonic()
                calls = asyncio.create_task(every_kind(api, job_id))
                assert (await api.look("/healthz")).status_code == 200
                answers = await calls
                assert time.monotonic() - began < FROZEN_ANSWER_SECONDS_MAX
                for answer in answers:
                    api.assert_problem(answer, 503, "UNAVAILABLE")
                assert (await api.readiness())[0] == 503
        finally:
            server.signal(signal.SIGCONT)
        await until_ready(api)
        await api.work()
        assert (await api.ended(job_id))["status"] == "SUCCEEDED"

        later = await api.accepted()
        other.wait_for_replay(server)
        server.signal(signal.SIGSTOP)
        try:
            other.promote()
            # More than there are connections: those that connect anew find the other server, and must not use it while
            # the rest still waits for the frozen one.
            answers = await asyncio.gather(*(api.client.get(f"/v1/jobs/{later}") for _ in range(READS_AT_ONCE)))
            assert {answer.status_code for answer in answers} == {503}
            await until_ready(api)
            await api.work()
            assert (await api.ended(later))["status"] == "SUCCEEDED"
        finally:
            server.signal(signal.SIGCONT)


async def test_slow_statement_is_not_taken_for_a_frozen_server(server: Server) -> None:
    def script() -> Any:
        yield Fetch("SELECT pg_sleep(3)")
        return "done"

    async with PostgresDatabase(server.url(), pool_max=2) as opened:
        assert await opened.write(script) == "done"


async def test_connection_cut_in_the_middle_of_a_statement_is_unavailable(server: Server) -> None:
    def script() -> Any:
        yield Fetch("SELECT pg_terminate_backend(pg_backend_pid())")

    async with PostgresDatabase(server.url(), pool_max=1) as opened:
        with pytest.raises(DatabaseUnavailable):
            await opened.write(script)
        assert await opened.read(one) == 1


def one() -> Any:
    return (yield Fetch("SELECT 1"))[0][0]


async def test_failover_to_the_standby_needs_no_restart(
    server: Server, database: str, open_api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with standby(server) as other:
        api = await open_api(ledger=f"postgresql://postgres@{server.host},{other.host}/{database}")
        job_id = await api.accepted()
        directive = await api.take()
        server.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        server.sql("SELECT pg_reload_conf()")
        try:
            async with asyncio.timeout(60):
                while (await api.readiness())[0] == 200:
                    await asyncio.sleep(0.02)
            for _ in range(20):
                for answer in await every_kind(api, job_id):
                    api.assert_problem(answer, 503, "UNAVAILABLE")
                api.assert_problem(await api.ack(directive), 503, "UNAVAILABLE")
            assert (await api.client.get("/readyz")).status_code == 503
            checks = (await api.readiness())[2]
            assert "read-only" in checks["ledger"]["detail"]
            other.wait_for_replay(server)
            other.promote()
            await until_ready(api)
            assert (await api.ack(directive)).json()["outcome"] == "APPLIED"
            assert (await api.result(directive)).json()["outcome"] == "APPLIED"
            assert (await api.ended(job_id))["status"] == "SUCCEEDED"
            later = await api.accepted()
            await api.work()
            assert (await api.ended(later))["status"] == "SUCCEEDED"
        finally:
            server.sql("ALTER SYSTEM RESET default_transaction_read_only")
            server.sql("SELECT pg_reload_conf()")
        assert not [record for record in caplog.records if "never retrieved" in record.getMessage()]
        lost = [record for record in caplog.records if "looking for a server" in record.getMessage()]
        assert len(lost) == 1

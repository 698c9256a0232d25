"""Two applications on one PostgreSQL: what waits in one is woken by what happens in the other, without polling.

Looks by themselves are an hour apart here as long as wakeups work, and every wait is longer than the test's patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.conftest import CALLBACK_KEYS, KEY, Api, new_client
from tests.api.event_streams import follow
from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller

from lucius.api import holding
from lucius.bootstrap import open_app
from lucius.settings import Settings
from lucius.sql import postgres_wakeups, wakeups
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.postgres_wakeups import PostgresWakeups
from lucius.testing.samples import ShiftedClock

PATIENCE_SECONDS = 20.0
WAIT_SECONDS = 60.0

OpenOne = Callable[..., Awaitable[Api]]


@pytest.fixture(autouse=True)
def an_hour_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "FALLBACK_SECONDS", 3600.0)
    monkeypatch.setattr(
        holding, "LOOK_SECONDS", 3600.0
    )  # How often a long poll looks whether its caller is still there.


@pytest.fixture
async def open_one(tmp_path: Path, postgres_url: str) -> AsyncIterator[OpenOne]:
    """Open an application on the same database as the others of this test; its roles and settings may differ."""
    async with AsyncExitStack() as stack:

        async def open_(roles: dict[str, bool] | None = None, **settings: Any) -> Api:
            known = {"data": str(tmp_path), "api_key": KEY, "callback_keys": CALLBACK_KEYS, "ledger": postgres_url}
            clock = ShiftedClock()
            context = await stack.enter_async_context(
                open_app(Settings(**known | settings), clock=clock, **roles or {})
            )
            return Api(context, await stack.enter_async_context(new_client(context, KEY)), clock)

        yield open_


@pytest.fixture
async def two(open_one: OpenOne) -> tuple[Api, Api]:
    first, second = await open_one(), await open_one()
    await until_they_hear_each_other(first, second)
    return first, second


def wakeups_in(api: Api) -> PostgresWakeups:
    database = api.context.bus.database  # type: ignore[attr-defined]
    assert isinstance(database, PostgresDatabase)
    return database.wakeups


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def until_they_hear_each_other(*apis: Api) -> None:
    found = [wakeups_in(api) for api in apis]
    tokens = {one._token for one in found}
    await until(lambda: all(one.is_working and {*one._peers, one._token} >= tokens for one in found))


async def waiting_pull(api: Api) -> asyncio.Task[list[dict[str, Any]]]:
    """A pull that has looked, found nothing, and sleeps; nobody will look again for an hour."""
    task = asyncio.create_task(api.pull(wait_seconds=WAIT_SECONDS))
    await until(lambda: bool(api.context.bus._waiting._asleep))  # type: ignore[attr-defined]
    return task


async def test_a_waiting_pull_is_answered_by_a_submit_elsewhere(two: tuple[Api, Api]) -> None:
    here, there = two
    for _ in range(3):
        pull = await waiting_pull(here)
        job_id = await there.accepted()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [directive["jobId"] for directive in await pull] == [job_id]


async def test_wait_seconds_and_an_event_stream_see_an_end_elsewhere(two: tuple[Api, Api]) -> None:
    here, there = two
    job_id = await here.accepted()
    ended = asyncio.create_task(here.job(job_id, wait_seconds=WAIT_SECONDS))
    async with follow(here, job_id) as stream:
        await until(lambda: len(here.context.engine._watchers._by_job.get(job_id, ())) == 2)  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await there.work()
            assert (await ended)["status"] == "SUCCEEDED"
            assert (await stream.rest())[-1]["event"] == "end"


async def test_an_orchestrator_is_woken_by_a_scheduler_elsewhere_and_a_worker_by_the_orchestrator(
    open_one: OpenOne,
) -> None:
    scheduling = await open_one({"orchestrates": False}, **QUICK)
    orchestrating = await open_one({"schedules": False}, **QUICK)
    await until_they_hear_each_other(scheduling, orchestrating)
    orchestrator = orchestrating.context.runbooks.orchestrator
    orchestrator._settings = replace(orchestrator._settings, wait_seconds=WAIT_SECONDS)
    caller = RunbookCaller(scheduling)
    await caller.publish(PLAIN)
    pull = asyncio.create_task(caller.pull(wait_seconds=WAIT_SECONDS))
    await caller.create("ann", runbook="plain")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [job["parameters"] for job in await pull] == [{"Upn": "ann"}]


async def test_a_listener_that_loses_its_connection_looks_again_and_listens_again(two: tuple[Api, Api]) -> None:
    here, there = two
    pull = await waiting_pull(here)
    killed = wakeups_in(here)._connection.get_server_pid()
    await terminate(there, killed)
    job_id = await there.accepted()  # Nobody here can be told of it.
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [directive["jobId"] for directive in await pull] == [job_id]
    await until_they_hear_each_other(here, there)
    assert wakeups_in(here)._connection.get_server_pid() != killed
    pull = await waiting_pull(here)
    async with asyncio.timeout(PATIENCE_SECONDS):
        later = await there.accepted()
        assert [directive["jobId"] for directive in await pull] == [later]


async def terminate(api: Api, process_id: int) -> None:
    async with api.context.bus.database._acquire() as connection:  # type: ignore[attr-defined]
        assert await connection.fetchval("SELECT pg_terminate_backend($1)", process_id)


class Deaf:
    """A connection through a pooler that drops notifications."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def add_listener(self, channel: str, callback: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_behind_a_pooler_that_drops_notifications_they_poll_and_say_so(
    open_one: OpenOne, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect = PostgresDatabase._connect_wakeups

    async def connect_deaf(database: PostgresDatabase) -> Any:
        return Deaf(await connect(database))

    monkeypatch.setattr(PostgresDatabase, "_connect_wakeups", connect_deaf)
    monkeypatch.setattr(postgres_wakeups, "ANSWER_SECONDS", 0.2)
    here, there = await open_one(), await open_one()
    await until(lambda: wakeups_in(here).problem is not None)
    assert wakeups_in(here).is_working is False
    assert "session pooling" in caplog.text
    status, said, checks = await here.readiness()
    assert (status, said, checks["wakeups"]["ok"]) == (200, "degraded", False)
    assert "session pooling" in checks["wakeups"]["detail"]
    assert "lucius_wakeups_working 0" in (await here.look("/metrics")).text

    pull = await waiting_pull(here)
    async with asyncio.timeout(PATIENCE_SECONDS):
        job_id = await there.accepted()
        assert [directive["jobId"] for directive in await pull] == [job_id]


async def test_switched_off_there_is_no_connection_for_it(open_one: OpenOne) -> None:
    here, there = await open_one(postgres_listen="off"), await open_one(postgres_listen="off")
    pull = await waiting_pull(here)
    async with asyncio.timeout(PATIENCE_SECONDS):
        job_id = await there.accepted()
        assert [directive["jobId"] for directive in await pull] == [job_id]
    assert wakeups_in(here)._task is None
    assert "wakeups" not in (await here.readiness())[2]


async def test_readiness_and_metrics_say_that_wakeups_work(two: tuple[Api, Api]) -> None:
    status, said, checks = await two[0].readiness()
    assert (status, said, checks["wakeups"]["detail"]) == (200, "ok", "woken by other processes")
    assert "lucius_wakeups_working 1" in (await two[0].look("/metrics")).text

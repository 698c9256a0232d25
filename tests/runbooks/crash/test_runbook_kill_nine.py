"""`kill -9` of orchestrators, schedulers, workers and of `lucius up`, while batches run through them."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.crash.brokers import open_broker
from tests.crash.client import Client
from tests.crash.processes import CALLBACK_KEYS, Process, free_port
from tests.long_form import IS_LONG, sized
from tests.runbooks.crash.crash_story import rows
from tests.runbooks.crash.under_fire import (
    END_SECONDS_MAX,
    QUICK,
    Killer,
    WorkerProcess,
    audit,
    make_batch,
    members,
    publish,
    runbook,
    start_all,
    until_ended,
)

from lucius.bootstrap import open_bus
from lucius.bootstrap.bus_plan import bus_subscriptions
from lucius.settings import read_settings
from lucius.sql.postgres import PostgresDatabase

SEED = 20_250_315
SOURCE = "LUCIUS_SOURCE_MOVES"
PORTIONS = sized(2, 5)
KILLS_A_PORTION = sized(3, 5)
HAND_PORTION = 30
SOURCE_PORTION = 20
UP_PORTIONS = sized(2, 4)
UP_KILLS_A_PORTION = sized(2, 3)
UP_PORTION = 20
BUSES = ("sql", "nats", "servicebus") if IS_LONG else ("sql",)
WORKERS = ("http-pool", "bus-pool")


class Csv:
    """A source that grows: half of those who come later belong to a batch that has begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: list[str] = []
        self._now = datetime.now(UTC).replace(microsecond=0)
        self._rows: list[str] = []
        self.grow(0)

    def grow(self, count: int) -> None:
        for key in members("source", len(self.keys), count):
            start = self._now - timedelta(minutes=len(self.keys) // (2 * SOURCE_PORTION))
            self._rows.append(f"{key},{start.isoformat()}\n")
            self.keys.append(key)
        draft = self.path.with_suffix(".draft")
        draft.write_text("Upn,Start\n" + "".join(self._rows))
        draft.replace(self.path)


async def until_empty(settings: Mapping[str, str]) -> None:
    """Until no message waits on the broker, and none is dead."""
    known = read_settings(settings)
    async with open_bus(known) as bus, asyncio.timeout(END_SECONDS_MAX):
        await bus.declare(await bus_subscriptions(known, WORKERS))
        while left := [depth for depth in await bus.depths() if depth.ready or depth.locked or depth.dead]:
            assert not any(depth.dead for depth in left), left
            await asyncio.sleep(0.2)


@pytest.mark.timeout(420)
@pytest.mark.parametrize("bus", BUSES)
async def test_runbooks_lose_and_double_nothing_when_killed_on_postgres(
    tmp_path: Path, postgres_url: str, bus: str
) -> None:
    rng, port = random.Random(SEED), free_port()
    csv = Csv(tmp_path / "members.csv")
    settings = {**QUICK, "LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS, SOURCE: str(csv.path)}
    worker_of = {"one": "http-pool", "two": "bus-pool", "three": "http-pool"}
    source = {"type": "csv", "connection": SOURCE, "primary_key": "Upn", "batch_time_column": "Start"}
    keys: list[str] = []
    with ExitStack() as stack:
        if bus != "sql":
            settings |= stack.enter_context(open_broker(bus, tmp_path, settings, WORKERS)).settings
        over = {**settings, "LUCIUS_URL": f"http://127.0.0.1:{port}"}
        api = Process("api", settings=settings, folder=tmp_path / "api", port=port)
        roles = [
            Process(role, settings=settings, folder=tmp_path / f"{role}-{number}")
            for role in ("runbooks", "scheduler")
            for number in (1, 2)
        ]
        start_all(stack, [api])
        start_all(stack, roles)  # Now that the bytecode is there.
        async with PostgresDatabase(postgres_url, pool_max=1) as database, Client([port], rng) as client:
            await publish(client, runbook("by-hand", {"type": "manual", "primary_key": "Upn"}, worker_of))
            await publish(client, runbook("from-source", source, worker_of))
            workers = [WorkerProcess(way, over, tmp_path / way) for way in ("http", "bus")]
            start_all(stack, workers)

            async def look(sql: str) -> Sequence[Sequence[Any]]:
                return await rows(database, sql)

            killer = Killer(look, rng)
            for portion in range(PORTIONS):
                more = members("hand", portion * HAND_PORTION, HAND_PORTION)
                await make_batch(client, "by-hand", more)
                keys += more
                csv.grow(SOURCE_PORTION)
                for _ in range(KILLS_A_PORTION):
                    await killer.kill_one(roles)
                await killer.kill_one(workers)

            await until_ended(look, len(keys) + len(csv.keys), [api, *roles, *workers])
            await audit(look, keys + csv.keys, [worker.journal for worker in workers])
            if bus != "sql":
                await until_empty(settings)
        assert sum(role.lives for role in roles) == len(roles) + PORTIONS * KILLS_A_PORTION
        assert killer.kills_at_work > killer.kills // 2
        for process in (api, *roles, *workers):
            assert "Traceback" not in process.log, process.log[-3000:]


@pytest.mark.timeout(420)
async def test_runbooks_lose_and_double_nothing_when_the_embedded_default_is_killed(tmp_path: Path) -> None:
    rng, port = random.Random(SEED), free_port()
    data = tmp_path / "data"
    words = ("up", "--no-services", "--data", str(data))
    over = {**QUICK, "LUCIUS_URL": f"http://127.0.0.1:{port}"}
    worker_of = dict.fromkeys(("one", "two", "three"), "http-pool")
    keys: list[str] = []
    with ExitStack() as stack:
        server = stack.enter_context(Process(*words, settings=QUICK, folder=tmp_path, port=port))
        async with Client([port], rng) as client:
            await publish(client, runbook("by-hand", {"type": "manual", "primary_key": "Upn"}, worker_of))
            worker = stack.enter_context(WorkerProcess("http", over, tmp_path))

            async def look(sql: str) -> Sequence[Sequence[Any]]:
                with closing(sqlite3.connect(f"file:{data / 'lucius.db'}?mode=ro", uri=True)) as connection:
                    return connection.execute(sql).fetchall()

            killer = Killer(look, rng)
            for portion in range(UP_PORTIONS):
                more = members("hand", portion * UP_PORTION, UP_PORTION)
                await make_batch(client, "by-hand", more)
                keys += more
                for _ in range(UP_KILLS_A_PORTION):
                    await killer.kill_one([server])
                await asyncio.to_thread(server.wait_ready)

            await until_ended(look, len(keys), [server, worker])
            await audit(look, keys, [worker.journal])
        assert server.lives == 1 + UP_PORTIONS * UP_KILLS_A_PORTION
        assert killer.kills_at_work > killer.kills // 2
        for process in (server, worker):
            assert "Traceback" not in process.log, process.log[-3000:]

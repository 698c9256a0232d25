"""Databases that keep notifications, a receiver that really listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.volatile import VolatileDatabase


@pytest.fixture
async def volatile() -> AsyncIterator[Database]:
    async with VolatileDatabase() as database:
        await schema.upgrade(database)
        yield database


@pytest.fixture(params=["volatile", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


class Receiver:
    """Keeps every call; answers with the statuses it is given, the last one for ever."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.statuses = [200]
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        return web.Response(status=self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])

    async def received(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.calls) < count:
                await asyncio.sleep(0.005)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield receiver
    await runner.cleanup()

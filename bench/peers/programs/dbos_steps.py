"""DBOS: a durable workflow of three steps that do nothing, on PostgreSQL, started and awaited in one process."""

from __future__ import annotations

import asyncio

from dbos import DBOS, DBOSConfig
from steps_load import measure, options

POOL = 20
"""Connections: its default."""


@DBOS.step()
async def ocr(name: str) -> str:
    return name


@DBOS.step()
async def embedding(name: str) -> str:
    return name


@DBOS.step()
async def sis(name: str) -> str:
    return name


@DBOS.workflow()
async def three(name: str) -> str:
    return await sis(await embedding(await ocr(name)))


async def one(name: str) -> None:
    handle = await DBOS.start_workflow_async(three, name)
    # Without it, a result is asked for once a second, and a job alone takes as long.
    await handle.get_result(polling_interval_sec=0.005)


async def main() -> None:
    wanted = options()
    DBOS(config=DBOSConfig(name="peers", system_database_url=wanted.url, sys_db_pool_size=POOL, log_level="ERROR"))
    DBOS.launch()
    try:
        await measure(one, wanted)
    finally:
        DBOS.destroy()


asyncio.run(main())

"""Procrastinate: three tasks, each of which defers the next, on PostgreSQL; worker and client in one process."""

from __future__ import annotations

import asyncio

from procrastinate import App, PsycopgConnector
from steps_load import measure, options

wanted = options()
app = App(connector=PsycopgConnector(conninfo=wanted.url, min_size=4, max_size=20))
ended: dict[str, asyncio.Event] = {}


@app.task(queue="steps")
async def ocr(name: str) -> None:
    await embedding.defer_async(name=name)


@app.task(queue="steps")
async def embedding(name: str) -> None:
    await sis.defer_async(name=name)


@app.task(queue="steps")
async def sis(name: str) -> None:
    ended[name].set()


async def one(name: str) -> None:
    ended[name] = asyncio.Event()
    await ocr.defer_async(name=name)
    await ended[name].wait()
    del ended[name]


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(
            app.run_worker_async(queues=["steps"], concurrency=wanted.inflight, install_signal_handlers=False)
        )
        try:
            await measure(one, wanted)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


asyncio.run(main())

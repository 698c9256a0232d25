"""Celery: a chain of three tasks over Redis; `celery -A celery_steps worker` is the worker, this program the client.

Celery's own results are asked for by polling and cost the client more than the work. They are off: the last task puts
its name on a list, on which the client waits.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
from celery import Celery, chain
from steps_load import measure, options

ENDED = "ended"
SENDERS = 8
app = Celery("celery_steps", broker=os.environ["PEER_URL"])
# A task is acknowledged when it has ended, so that a worker's death loses none: what the others do by default.
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=4)
server = redis.Redis.from_url(os.environ["PEER_URL"])
waiting: dict[str, asyncio.Future[None]] = {}


@app.task
def ocr(name: str) -> str:
    return name


@app.task
def embedding(name: str) -> str:
    return name


@app.task
def sis(name: str) -> None:
    server.rpush(ENDED, name)


def send(name: str) -> None:
    chain(ocr.s(name), embedding.s(), sis.s()).apply_async()


async def hear_endings(url: str) -> None:
    async with redis.asyncio.from_url(url, decode_responses=True) as listening:
        while True:
            heard = await listening.blpop([ENDED], timeout=1)
            if heard is not None:
                waiting.pop(heard[1]).set_result(None)


async def main() -> None:
    wanted = options()
    loop = asyncio.get_running_loop()
    hearing = asyncio.create_task(hear_endings(wanted.url))
    with ThreadPoolExecutor(SENDERS) as threads:

        async def one(name: str) -> None:
            waiting[name] = loop.create_future()
            ended = waiting[name]
            await loop.run_in_executor(threads, send, name)
            await ended

        await measure(one, wanted)
    hearing.cancel()


if __name__ == "__main__":
    asyncio.run(main())

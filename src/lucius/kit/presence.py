"""Tells the server now and then that an instance is there whose work comes from the bus: a broker does not tell who
waits for messages, so nobody would see an idle one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lucius.client.call import Call, Response
from lucius.client.errors import ClientError, content_of

REPORT_SECONDS = 10.0
"""A third of the time after which the server takes an instance for absent."""


@asynccontextmanager
async def reporting(
    name: str, send: Callable[[Call], Awaitable[Response]], call: Call, log: logging.Logger
) -> AsyncIterator[None]:
    """Reports while it is open. Nothing depends on whether the server can be reached."""
    task = asyncio.create_task(_report_forever(name, send, call, log), name="presence")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _report_forever(
    name: str, send: Callable[[Call], Awaitable[Response]], call: Call, log: logging.Logger
) -> None:
    was_told = True
    while True:
        try:
            content_of(await send(call))
            was_told = True
        except ClientError as error:
            if was_told:
                log.warning(
                    "%s works, but the server does not know that this instance is there: %s: %s", name, call.path, error
                )
            was_told = False
        await asyncio.sleep(REPORT_SECONDS)

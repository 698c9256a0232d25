"""Lists share a few slots, so that one caller's lists wait for each other and do not delay other requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import wraps

import msgspec
from starlette.responses import Response

from lucius.api.endpoint import Call, Handler
from lucius.api.job_views import show_listed_job
from lucius.domain.errors import CallerError
from lucius.domain.job import Job
from lucius.ports.ledger import UnreadableJob
from lucius.usecases.fair_slots import NoSlot
from lucius.usecases.query import SLICE_JOBS

RETRY_AFTER_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode


async def shown(call: Call, jobs: Sequence[Job | UnreadableJob]) -> list[msgspec.Raw]:
    """Jobs as callers see them, encoded a slice at a time: other requests are served in between."""
    items: list[msgspec.Raw] = []
    absent = call.context.sightings.absent_service
    for first in range(0, len(jobs), SLICE_JOBS):
        items += [msgspec.Raw(_encode(show_listed_job(job, absent))) for job in jobs[first : first + SLICE_JOBS]]
        await asyncio.sleep(0)
    return items


@asynccontextmanager
async def list_slot(call: Call) -> AsyncIterator[None]:
    """One of the list slots, shared fairly between callers. Raises `CallerError` (LISTS_SATURATED)."""
    try:
        async with call.context.list_slots.slot(call.caller.name):
            yield
    except NoSlot as error:
        raise CallerError.of(
            "LISTS_SATURATED",
            f"too many lists are being read for this caller: {error}; request them one after another",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        ) from None


def listing(handler: Handler) -> Handler:
    """Decorates a handler that reads a list: it waits for one of the list slots."""

    @wraps(handler)
    async def run(call: Call) -> Response:
        async with list_slot(call):
            return await handler(call)

    return run

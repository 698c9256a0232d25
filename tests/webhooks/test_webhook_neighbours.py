"""Neighbours: receivers that hang hold up their own tenant's calls and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

HANGING = 80
QUICK_SECONDS = 5.0
"""Generous for a call that takes some milliseconds, and half of what one hanging call takes."""


@pytest.fixture
async def hanging() -> AsyncIterator[list[str]]:
    """Addresses that take a call and never answer."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(-1)
        finally:
            writer.close()

    servers = [await asyncio.start_server(hang, "127.0.0.1", 0) for _ in range(HANGING)]
    yield [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook" for server in servers]
    for server in servers:
        server.close()


async def delivered(rig: Any, count: int = 1) -> None:
    async with asyncio.timeout(QUICK_SECONDS):
        while len(rig.receiver.calls) < count:
            await asyncio.sleep(0.005)


async def test_a_tenants_hanging_receivers_hold_up_no_other_tenant(
    rig: Any, hanging: list[str], job_ids: Callable[[int], list[str]]
) -> None:
    rig.set(webhook_timeout_seconds=2 * QUICK_SECONDS, stop_seconds=0.01)
    *slow, quick = job_ids(HANGING + 1)
    for url, job_id in zip(hanging, slow, strict=True):
        await rig.owe(url, job_id, tenant_id="slow")
    async with rig.sender():
        await asyncio.sleep(0.1)
        await rig.owe(job_id=quick, tenant_id="quick")
        await delivered(rig)


async def test_a_hanging_host_holds_up_no_other_host(
    rig: Any, hanging: list[str], job_ids: Callable[[int], list[str]]
) -> None:
    """Whoever its callers are: here each has one."""
    rig.set(webhook_timeout_seconds=2 * QUICK_SECONDS, stop_seconds=0.01)
    *slow, quick = job_ids(HANGING + 1)
    for place, job_id in enumerate(slow):
        await rig.owe(hanging[0], job_id, tenant_id=f"tenant-{place:03d}")
    async with rig.sender():
        await asyncio.sleep(0.1)
        await rig.owe(job_id=quick, tenant_id="tenant-zzz")
        await delivered(rig)


async def test_tenants_are_called_in_turn(rig: Any, job_ids: Callable[[int], list[str]]) -> None:
    """One that has much to be told does not go before one that has little."""
    rig.set(webhook_calls_max=2)
    rig.receiver.delay_seconds = 0.02
    many = job_ids(42)
    for job_id in many[:40]:
        await rig.owe(job_id=job_id, tenant_id="many")
    for job_id in many[40:]:
        await rig.owe(job_id=job_id, tenant_id="few")
    async with rig.sender():
        await delivered(rig, 42)
    called = [headers["webhook-id"].removeprefix("msg_") for _, headers, _ in rig.receiver.calls]
    assert max(called.index(job_id) for job_id in many[40:]) < 8

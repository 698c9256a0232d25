"""The event streams of one caller take turns at reading the ledger."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.api.event_streams import Stream, follow


async def test_streams_of_one_caller_read_one_after_another(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await api.accepted()
    await api.operate(job_id, "cancel")
    await api.ended(job_id)
    queries, at_once, most = api.context.queries, 0, 0
    read = queries.events

    async def counting(*args: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.002)
        try:
            return await read(*args)
        finally:
            at_once -= 1

    monkeypatch.setattr(queries, "events", counting)
    headers = {"Accept": "text/event-stream"}
    streams = [api.client.get(f"/v1/jobs/{job_id}/events", headers=headers) for _ in range(20)]
    answers = await asyncio.gather(*streams)
    assert all("event: end" in answer.text for answer in answers)
    assert most == 1


async def test_streams_of_one_job_share_what_they_read(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await api.accepted()
    ledger, read = api.context.ledger, api.context.ledger.events
    reads = 0

    async def counting(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0.002)
        return await read(*args)

    monkeypatch.setattr(ledger, "events", counting)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(follow(api, job_id)) for _ in range(50)]
        begun = await asyncio.gather(*(_begun(stream, 3) for stream in streams))
        assert reads < len(streams)
        reads = 0
        await api.operate(job_id, "cancel")
        ended = await asyncio.gather(*(stream.rest() for stream in streams))
    assert all(trail == begun[0] for trail in begun)
    assert all(trail == ended[0] for trail in ended)
    assert ended[0][-1]["event"] == "end"
    assert reads < len(streams) / 2


async def _begun(stream: Stream, count: int) -> list[dict[str, str] | None]:
    return [await stream.event() for _ in range(count)]

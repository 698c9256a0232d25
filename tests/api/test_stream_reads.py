"""The event streams of one caller take turns at reading the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


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

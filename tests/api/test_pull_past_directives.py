"""A pull hands out no directive whose attempt the ledger knows to be over, though the bus still has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


@pytest.fixture
async def api(open_api: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """On a bus outside the ledger's database, which loses what it is told to settle until a test says otherwise."""
    api = await open_api(bus="memory", ack_timeout_seconds=10.0)
    settle = api.context.bus.settle

    async def lost(refs: object) -> None:
        return None

    monkeypatch.setattr(api.context.bus, "settle", lost)
    api.mend = lambda: monkeypatch.setattr(api.context.bus, "settle", settle)
    return api


async def test_superseded_attempt_is_not_handed_out_beside_the_current_one(api: Any) -> None:
    job_id = await api.accepted()
    assert (await api.take())["attempt_no"] == 1
    api.clock.shift_seconds = 8  # Its lock has run out: the next to pull has it when the ack deadline comes.
    assert (await api.take())["attempt_no"] == 1
    api.clock.shift_seconds = 11
    while (await api.job(job_id))["steps"][0]["attempt_no"] < 2:
        await asyncio.sleep(0.01)
    api.mend()
    api.clock.shift_seconds = 15
    directives: list[dict[str, Any]] = []
    while not directives:
        directives = await api.pull(max_=10)
    assert [directive["attempt_no"] for directive in directives] == [2]
    assert (await api.result(directives[0])).json()["outcome"] == "APPLIED"


async def test_job_that_has_ended_has_nothing_handed_out(api: Any) -> None:
    await api.accepted()
    await api.result(await api.take())
    api.clock.shift_seconds = 5
    api.mend()
    assert await api.pull(wait_seconds=0.2) == []
    depths = await api.context.bus.depths()
    assert sum(depth.ready + depth.locked for depth in depths) == 0, "it is settled, and not met again"


async def test_pull_while_the_ledger_is_away_leaves_the_directive_to_the_next(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lucius.ports.ledger import LedgerUnavailable

    await api.accepted()
    while not any(depth.ready for depth in await api.context.bus.depths()):
        await asyncio.sleep(0.01)

    async def away(job_ids: object) -> None:
        raise LedgerUnavailable("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(api.context.ledger, "load", away)
        answer = await api.client.post("/v1/directives:pull", json={"service": "ocr", "max": 1})
        api.assert_problem(answer, 503, "UNAVAILABLE")
    assert len(await api.pull(wait_seconds=0)) == 1

"""Callbacks over the bus on the Temporal engine: signalled once checked, and the trail says what came of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.api.conftest import Api
from tests.api.reply_service import ACK, FAILED, PATIENCE_SECONDS, SUCCEEDED, BusService

from lucius.bootstrap import open_app
from lucius.settings import Settings


async def test_a_job_on_temporal_is_done_by_replies_alone(temporal_address: str, tmp_path: Path) -> None:
    settings = Settings(
        ledger="memory",
        bus="memory",
        bus_replies=True,
        engine="temporal",
        temporal_address=temporal_address,
        temporal_task_queue="replies",
        data=str(tmp_path),
        callback_keys=("k1:0123456789abcdef0123456789abcdef",),
    )
    async with open_app(settings, orchestrates=False, schedules=False) as context:
        service = BusService(context)
        directive = await service.take(Api.envelope())
        forged = {**directive, "lease_id": "another"}
        await service.answer(forged, SUCCEEDED)
        await service.answer(directive, ACK, SUCCEEDED)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await service.job(directive)).is_terminal:
                await asyncio.sleep(0.02)
        await service.answer(directive, FAILED, ACK)
        reasons = await service.settled()
        assert [reason.partition(":")[0] for reason in reasons] == ["UNAUTHENTICATED"]
        job = await service.job(directive)
        assert (job.status, job.steps[0].attempt_no) == ("SUCCEEDED", 1)
        callbacks = await service.callbacks(directive)
        assert callbacks[:2] == [("ACK", "APPLIED"), ("RESULT", "APPLIED")]
        assert ("RESULT", "LATE") in callbacks

"""Readiness on Temporal: the bus is looked at by itself, not taken for granted."""

from __future__ import annotations

import asyncio

import asyncpg

from lucius.bootstrap import open_app
from lucius.settings import Settings


async def test_bus_that_does_not_work_is_named_while_ledger_and_temporal_do(
    temporal_address: str, postgres_url: str
) -> None:
    settings = Settings(
        ledger=postgres_url,
        engine="temporal",
        temporal_address=temporal_address,
        temporal_task_queue="readiness",
        callback_keys=("k1:0123456789abcdef0123456789abcdef",),
    )
    connection = await asyncpg.connect(postgres_url)
    async with open_app(settings, orchestrates=False, schedules=False) as context:
        readiness = context.management.readiness
        report = await readiness.look()
        assert report.status == "ok", report
        assert {"ledger", "bus", "temporal", "temporal_worker"} <= set(report.checks)
        await connection.execute("ALTER TABLE messages RENAME TO messages_elsewhere")
        try:
            async with asyncio.timeout(30):
                while (report := await readiness.look()).checks["bus"].ok:
                    await asyncio.sleep(0.05)
            assert report.status == "degraded"
            assert {name for name in ("ledger", "temporal", "temporal_worker") if report.checks[name].ok} == {
                "ledger", "temporal", "temporal_worker",
            }  # fmt: skip
        finally:
            await connection.execute("ALTER TABLE messages_elsewhere RENAME TO messages")
            await connection.close()

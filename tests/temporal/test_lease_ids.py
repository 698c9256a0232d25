"""A lease id is used once, also where a workflow task is tried again after its worker was killed."""

from __future__ import annotations

import asyncio
import signal
import sys

from msgspec.structs import replace
from tests.temporal.away_harness import AwayHarness

from lucius.testing.engine_harness import QUICK

DEATH_SECONDS_MAX = 30.0


async def test_next_attempt_does_not_get_the_lease_of_one_whose_worker_was_killed(
    temporal_address: str, postgres_url: str
) -> None:
    """The first try creates an attempt because a backoff has ended, and dies. The second try begins with the callbacks
    of that attempt, so it creates the next step's attempt without having drawn the id that the first try used."""
    async with AwayHarness.open(temporal_address, postgres_url, is_bus_outside=False) as harness:
        await harness.start_api()
        policy = replace(QUICK, execution_backoff_seconds=(0.5,))
        job_id = await harness.submit(steps=["ocr", "sis"], policy=policy)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.temporal.mortal_worker", temporal_address, harness.task_queue, postgres_url
        )
        try:
            await harness.fail(await harness.take("ocr"))
            assert await asyncio.wait_for(worker.wait(), DEATH_SECONDS_MAX) == -signal.SIGKILL
        finally:
            if worker.returncode is None:
                worker.kill()
        work = await harness.take("ocr")
        await harness.ack(work)
        await harness.succeed(work)
        await harness.start_worker()
        await harness.until(job_id, lambda job: job.current_index == 1)
        await harness.finish(job_id)
        attempts = await harness.ledger.attempts(job_id)
        leases = [attempt.lease_id for of_step in attempts.values() for attempt in of_step]
        assert len(leases) == len(set(leases)) == 3

"""Drift repair on a ledger that is in use: it mends what is wrong, and puts nothing wrong that was right."""

from __future__ import annotations

import asyncio
import random
import time

import asyncpg
from tests.cluster.conftest import StartRole
from tests.crash.audit import audit, until_all_ended
from tests.crash.client import Client
from tests.crash.processes import QUICK
from tests.crash.run import MAX_ATTEMPTS, Submitter
from tests.crash.worker import Worker

JOBS = 60
STEADY = {"together": 6, "one by one": 2, "retryable": 1}


async def _until_right(client: Client, count: int) -> None:
    """The count of all jobs, and those of the tenants, which are read after it."""
    end = time.monotonic() + 10
    while True:
        tenants = await client.read("/v1/admin/tenants")
        if tenants["inflight"] == count == sum(one["inflight"] for one in tenants["items"]):
            return
        assert time.monotonic() < end, tenants
        await asyncio.sleep(0.05)


async def test_counters_are_repaired_while_jobs_come_and_go(start_role: StartRole, postgres_url: str) -> None:
    settings = {**QUICK, "LUCIUS_REPAIR_INTERVAL": "0.02"}
    api = start_role("api", **settings)
    start_role("reconciler", **settings)
    rng = random.Random(1)
    database = await asyncpg.connect(postgres_url)
    try:
        async with Client([api.port or 0], rng) as client:
            submitter = Submitter(client, rng)
            await asyncio.gather(*(submitter.send(f"early-{place}") for place in range(10)))
            await _until_right(client, 10)
            await database.execute("UPDATE inflight SET jobs = jobs + 7")
            await _until_right(client, 10)
            async with Worker(client, rng, STEADY) as worker:
                for place in range(10, JOBS):
                    await submitter.send(f"job-{place}")
                await until_all_ended(client, worker, JOBS)
            await audit(client, worker, submitter.accepted, MAX_ATTEMPTS)
    finally:
        await database.close()


async def test_job_that_lost_its_timer_gets_it_back(start_role: StartRole, postgres_url: str) -> None:
    """The process that answered the ACK remembers the job with its timer; the ledger has none any more."""
    settings = {**QUICK, "LUCIUS_REPAIR_INTERVAL": "0.1"}
    api = start_role("api", **settings)
    rng = random.Random(2)
    database = await asyncpg.connect(postgres_url)
    try:
        async with Client([api.port or 0], rng) as client:
            submitter = Submitter(client, rng)
            await submitter.send("job")
            pull = {"service": "ocr", "max": 1, "wait_seconds": 5}
            (directive,) = (await client.ask("POST", "/v1/directives:pull", pull)).body["directives"]
            ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
            token = directive["callback_token"]
            acked = await client.ask("POST", "/v1/callbacks/ack", ids, Lucius_Callback_Token=token)
            assert acked.body["outcome"] == "APPLIED"
            await database.execute("UPDATE job_states SET wake_at = NULL, revision = revision + 1")
            start_role("reconciler", **settings)
            # Its service is never heard of again: only the timer can bring the next attempt.
            async with Worker(client, rng, {"together": 1}) as worker:
                await until_all_ended(client, worker, 1, timeout_seconds=20)
            (job,) = await audit(client, worker, submitter.accepted, MAX_ATTEMPTS)
            assert job["steps"][0]["attempt_no"] == 2
    finally:
        await database.close()

"""What is done to a ledger while nobody serves it: pruning; and drift, which the next start repairs."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import apsw
from tests.crash.audit import until_all_ended
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import QUICK, Process, free_port, run_lucius
from tests.crash.worker import Worker

WELL_BEHAVED = {"together": 1}
JOBS = 12


def _server(tmp_path: Path, **settings: str) -> Process:
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    return Process(*words, settings={**QUICK, **settings}, folder=tmp_path, port=free_port())


def _prune(tmp_path: Path, older_than: str) -> subprocess.CompletedProcess[str]:
    return run_lucius("prune", "--yes", "--older-than", older_than, "--data", str(tmp_path / "data"), settings=QUICK)


def _count(tmp_path: Path, table: str) -> int:
    """Only while nobody owns the file."""
    connection = apsw.Connection(str(tmp_path / "data" / "lucius.db"))
    try:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchall()[0][0])
    finally:
        connection.close()


async def test_prune_removes_what_has_ended_and_nothing_else(tmp_path: Path) -> None:
    rng = random.Random(1)
    server = _server(tmp_path)
    with server:
        async with Client([server.port or 0], rng) as client:
            ended = [await submit(client, envelope(f"job-{place}")) for place in range(JOBS)]
            async with Worker(client, rng, WELL_BEHAVED) as worker:
                await until_all_ended(client, worker, JOBS)
            is_open = await submit(client, envelope("open"))
        server.terminate()
    assert _count(tmp_path, "jobs") == JOBS + 1
    early = _prune(tmp_path, "1h")
    assert (early.returncode, early.stdout.strip()) == (0, "0 jobs removed."), early
    time.sleep(1.1)
    pruned = _prune(tmp_path, "1s")
    assert (pruned.returncode, pruned.stdout.strip()) == (0, f"{JOBS} jobs removed."), pruned
    assert {table: _count(tmp_path, table) for table in ("jobs", "steps", "attempts", "claims")} == {
        "jobs": 1, "steps": 3, "attempts": 1, "claims": 1,
    }  # fmt: skip
    with server:
        async with Client([server.port or 0], rng) as client:
            assert [job["jobId"] for job in await client.pages("/v1/jobs", "items")] == [is_open]
            assert (await client.ask("GET", f"/v1/jobs/{ended[0]}")).status == 404
            again = await submit(client, envelope("job-0"))
            assert again not in ended, "the claim went with its job"
            assert await submit(client, envelope("open")) == is_open
            async with Worker(client, rng, WELL_BEHAVED) as worker:
                await until_all_ended(client, worker, 2)
            assert (await client.read("/v1/admin/tenants"))["inflight"] == 0


async def test_drift_is_repaired_at_the_next_start(tmp_path: Path) -> None:
    rng = random.Random(2)
    server = _server(tmp_path, LUCIUS_REPAIR_INTERVAL="0.2")
    with server:
        async with Client([server.port or 0], rng) as client:
            job_ids = {await submit(client, envelope(f"job-{place}")) for place in range(3)}
        server.terminate()
    connection = apsw.Connection(str(tmp_path / "data" / "lucius.db"))
    connection.execute("UPDATE inflight SET jobs = 77")
    connection.execute("INSERT INTO inflight (scope, jobs) VALUES ('tenant:nobody', 5)")
    connection.execute("UPDATE job_states SET wake_at = NULL")
    connection.close()
    with server:
        async with Client([server.port or 0], rng) as client:
            end = time.monotonic() + 10
            while True:
                tenants = await client.read("/v1/admin/tenants")
                counts = {one["tenant_id"]: one["inflight"] for one in tenants["items"]}
                if (tenants["inflight"], counts) == (3, {"acme": 3}):
                    break
                assert time.monotonic() < end, tenants
            async with Worker(client, rng, WELL_BEHAVED) as worker:
                await until_all_ended(client, worker, 3)
            assert {job["jobId"] for job in await client.pages("/v1/jobs?status=SUCCEEDED", "items")} == job_ids
            tenants = await client.read("/v1/admin/tenants")
            counts = {one["tenant_id"]: one["inflight"] for one in tenants["items"]}
            assert (tenants["inflight"], counts) == (0, {"acme": 0})

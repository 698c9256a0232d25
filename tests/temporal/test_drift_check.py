"""`lucius temporal check` finds what differs between ledger and Temporal, `lucius temporal heal` mends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from tests.temporal.roles_harness import RolesHarness, client_of, ended, finish, pull, roles_harness, submit_one_step

WAIT_SECONDS_MAX = 60.0


def check(harness: RolesHarness, code: int) -> list[tuple[str, str]]:
    """Job and kind of every drift."""
    ran = harness.lucius("temporal", "check", "--all", "--output", "json")
    assert ran.returncode == code, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["revisions_compared"], ran.stderr
    return [(item["jobId"], item["kind"]) for item in found["items"]]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.fixture
def harness(tmp_path: Path, postgres_url: str) -> Any:
    with roles_harness(tmp_path, postgres_url) as harness:
        yield harness


async def test_each_kind_of_drift_is_found_and_mended(harness: RolesHarness) -> None:
    api = harness.start("api")
    harness.start("worker")  # And no reconciler, which would mend it all by itself.
    temporal = await TemporalClient.connect(harness.temporal.address)
    async with client_of(api) as client:
        jobs = {kind: await submit_one_step(client, kind) for kind in ("NO_WORKFLOW", "WORKFLOW_OVER", "NO_ROW")}
        directives: dict[str, dict[str, Any]] = {}
        while len(directives) < len(jobs):
            directives |= {one["jobId"]: one for one in await pull(client)}
        assert await _check_until(harness, []) == []

        await temporal.get_workflow_handle(jobs["WORKFLOW_OVER"]).terminate()
        await _delete_workflow(temporal, jobs["NO_WORKFLOW"])
        await _delete_row(harness.settings["LUCIUS_LEDGER"], jobs["NO_ROW"])
        planted = sorted((job_id, kind) for kind, job_id in jobs.items())
        assert await _check_until(harness, planted) == planted
        shown = harness.lucius("temporal", "check", "--all")
        assert shown.returncode == 1
        assert sorted(line.split()[:2] for line in shown.stdout.splitlines()) == [list(pair) for pair in planted]

        healed = harness.lucius("temporal", "heal", "--all")
        assert (healed.returncode, healed.stdout) == (0, "3 jobs repaired.\n"), healed.stderr
        assert await _check_until(harness, []) == []
        assert "Nothing to repair" in harness.lucius("temporal", "heal", "--all").stdout
        for job_id in jobs.values():
            assert (await finish(client, directives[job_id]))["status"] == "SUCCEEDED"


async def test_ledger_that_has_fallen_behind_is_found_and_brought_up_by_the_next_write(harness: RolesHarness) -> None:
    api = harness.start("api")
    harness.start("worker")
    async with client_of(api) as client:
        job_id = await submit_one_step(client, "one")
        directive = (await pull(client))[0]
        connection = await asyncpg.connect(harness.settings["LUCIUS_LEDGER"])
        await connection.execute("UPDATE job_states SET revision = revision - 1 WHERE job_id = $1", job_id)
        await connection.close()
        assert check(harness, 1) == [(job_id, "BEHIND")]
        assert (await finish(client, directive))["status"] == "SUCCEEDED"
        assert check(harness, 0) == []


async def test_job_that_no_worker_drives_is_no_drift_and_check_says_that_it_could_not_look_inside(
    harness: RolesHarness,
) -> None:
    api = harness.start("api")
    async with client_of(api) as client:
        job_id = await submit_one_step(client, "one")
        ran = harness.lucius("temporal", "check", "--all")
        assert ran.returncode == 0, ran.stderr
        assert "No worker responds, so revisions were not compared" in ran.stderr
        harness.start("worker")
        assert check(harness, 0) == []
        await finish(client, (await pull(client))[0])
        assert (await ended(client, job_id))["status"] == "SUCCEEDED"


async def test_reconciler_mends_by_itself(harness: RolesHarness) -> None:
    api = harness.start("api")
    harness.start("worker")
    temporal = await TemporalClient.connect(harness.temporal.address)
    async with client_of(api) as client:
        job_id = await submit_one_step(client, "one")
        directive = (await pull(client))[0]
        handle = temporal.get_workflow_handle(job_id)
        await handle.terminate()
        harness.start("reconciler")

        async def runs() -> bool:
            return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

        await until(runs)
        assert (await finish(client, directive))["status"] == "SUCCEEDED"


async def test_temporal_out_of_reach_is_said_with_its_exit_code(harness: RolesHarness) -> None:
    harness.temporal.kill()
    for command in ("check", "heal"):
        ran = harness.lucius("temporal", command)
        assert ran.returncode == 4, ran.stderr
        assert f"Temporal at {harness.temporal.address} is unreachable" in ran.stderr
        assert "Traceback" not in ran.stderr


async def _check_until(harness: RolesHarness, wanted: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What check finds, once it is as wanted: Temporal's lists follow what happens with some delay."""
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS_MAX
    while True:
        ran = await asyncio.to_thread(harness.lucius, "temporal", "check", "--all", "--output", "json")
        assert ran.returncode in (0, 1), ran.stderr
        items = json.loads(ran.stdout)["items"]
        assert ran.returncode == (1 if items else 0)
        found = sorted((item["jobId"], item["kind"]) for item in items)
        if found == wanted or loop.time() > end:
            return found


async def _delete_workflow(temporal: TemporalClient, job_id: str) -> None:
    execution = WorkflowExecution(workflow_id=job_id)
    request = DeleteWorkflowExecutionRequest(namespace=temporal.namespace, workflow_execution=execution)
    await temporal.workflow_service.delete_workflow_execution(request)

    async def is_gone() -> bool:
        try:
            await temporal.get_workflow_handle(job_id).describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    await until(is_gone)


async def _delete_row(ledger: str, job_id: str) -> None:
    connection = await asyncpg.connect(ledger)
    try:
        for table in ("job_attempts", "job_outputs", "job_events", "claims", "job_specs", "job_states"):
            await connection.execute(f"DELETE FROM {table} WHERE job_id = $1", job_id)
    finally:
        await connection.close()

"""The roles on Temporal: the API starts jobs, workers drive them, the reconciler mends; and old jobs stay where they
began."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.crash.management import look, metrics_of
from tests.crash.processes import CALLBACK_KEYS, free_port, run_lucius
from tests.temporal.roles_harness import client_of, finish, pull, roles_harness, submit_one_step

from lucius.domain.errors import InfrastructureError
from lucius.ports.observer import Observer
from lucius.ports.readiness import Check, NotReady
from lucius.roles import single_role as roles
from lucius.usecases.readiness import Readiness

STOP_SECONDS_MAX = 25.0


async def test_job_runs_over_api_worker_and_reconciler_and_only_the_worker_polls(
    tmp_path: Path, postgres_url: str
) -> None:
    with roles_harness(tmp_path, postgres_url) as harness:
        api, reconciler = harness.start("api"), harness.start("reconciler")
        async with client_of(api) as client:
            job_id = await submit_one_step(client, "one")
            assert await pull(client, wait_seconds=3.0) == [], "neither the API nor the reconciler drives jobs"
            worker = harness.start("worker")
            assert "LUCIUS worker is running: task queue lucius" in worker.log
            directives = await pull(client)
            assert [one["jobId"] for one in directives] == [job_id]
            job = await finish(client, directives[0])
            assert (job["status"], job["engine"]) == ("SUCCEEDED", "temporal")
        common = {"ledger", "bus", "temporal", "outbox", "dispatcher", "registry", "api_keys", "runbooks", "clock"}
        common |= {"notifications", "wakeups"}
        for process, own in ((api, set()), (worker, {"temporal_worker"}), (reconciler, set())):
            status, found = look(process)
            assert (status, set(found["checks"])) == (200, common | own)
            assert found["status"] == "ok", found
            assert "lucius_turn_seconds" in metrics_of(process)
        harness.temporal.kill()
        for process in (api, worker):
            status, found = look(process)
            assert (status, found["status"], found["checks"]["temporal"]["ok"]) == (503, "unavailable", False)
            assert found["checks"]["ledger"]["ok"]
            assert found["checks"]["bus"]["ok"]
        harness.temporal.start()
        harness.temporal.wait_ready()
        for process in (api, worker, reconciler):
            assert process.terminate() < STOP_SECONDS_MAX
            assert "Traceback" not in process.log, process.log[-3000:]


async def test_jobs_of_the_outbox_engine_end_there_while_new_ones_go_to_temporal(
    tmp_path: Path, postgres_url: str
) -> None:
    with roles_harness(tmp_path, postgres_url) as harness:
        before = harness.start("api", LUCIUS_ENGINE="outbox")
        async with client_of(before) as client:
            old = await submit_one_step(client, "old")
        before.terminate()
        api, _, _ = harness.start("api"), harness.start("worker"), harness.start("reconciler")
        async with client_of(api) as client:
            assert await submit_one_step(client, "old") == old, "the same command finds the same job"
            new = await submit_one_step(client, "new")
            assert {job["jobId"]: job["engine"] for job in await client.pages("/v1/jobs", "items")} == {
                old: "outbox",
                new: "temporal",
            }
            waiting = {old, new}
            while waiting:
                directives = await pull(client)
                assert directives, f"no directive of {waiting}"
                for directive in directives:
                    assert (await finish(client, directive))["status"] == "SUCCEEDED"
                    waiting.discard(directive["jobId"])


async def test_up_on_sqlite_has_every_role_in_one_process(tmp_path: Path) -> None:
    with roles_harness(tmp_path, "sqlite") as harness:
        server = harness.start("up", "--no-services", "--data", str(tmp_path / "data"))
        assert f"Temporal    {harness.temporal.address}" in server.log
        async with client_of(server) as client:
            await submit_one_step(client, "one")
            assert (await finish(client, (await pull(client))[0]))["status"] == "SUCCEEDED"
        assert server.terminate() < STOP_SECONDS_MAX
        assert "Traceback" not in server.log, server.log[-3000:]


def test_worker_says_what_it_needs(postgres_url: str) -> None:
    shared = {"LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS}
    ran = run_lucius("worker", settings=shared)
    assert (ran.returncode, "LUCIUS_ENGINE is outbox: set it to temporal" in ran.stderr) == (2, True), ran.stderr
    ran = run_lucius("worker", settings={"LUCIUS_ENGINE": "temporal"})
    assert (ran.returncode, "needs a shared ledger" in ran.stderr) == (2, True), ran.stderr
    nowhere = f"127.0.0.1:{free_port()}"
    ran = run_lucius("worker", settings=shared | {"LUCIUS_ENGINE": "temporal", "LUCIUS_TEMPORAL_ADDRESS": nowhere})
    assert (ran.returncode, f"Temporal at {nowhere} is unreachable" in ran.stderr) == (4, True), ran.stderr
    assert "Traceback" not in ran.stderr


async def test_worker_that_is_unwell_for_long_ends_and_a_short_while_is_forgiven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roles, "HEALTH_SECONDS", 0.01)
    monkeypatch.setattr(roles, "UNHEALTHY_SECONDS_MAX", 0.5)
    looks: list[bool] = []

    async def look() -> str:
        looks.append(len(looks) == 5)
        if looks[-1]:
            return "polls"
        raise NotReady("the Temporal worker has stopped")

    readiness = Readiness([Check(name="temporal_worker", look=look)])
    context: Any = SimpleNamespace(management=SimpleNamespace(readiness=readiness), observer=Observer())
    with pytest.raises(InfrastructureError, match="the Temporal worker has stopped"):
        await roles._until_unhealthy(context)
    assert len(looks) > 6, "it was looked at again after it had been well"

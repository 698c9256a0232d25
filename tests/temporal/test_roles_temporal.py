"""The roles on Temporal: the API starts jobs, workers drive them, the reconciler mends; and old jobs stay where they
began."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.crash.processes import CALLBACK_KEYS, free_port, run_lucius
from tests.temporal.roles_stand import client_of, finish, pull, roles_stand, submit_one_step

from lucius.domain.errors import InfrastructureError
from lucius.ports.observer import Observer
from lucius.roles import parts as roles

STOP_SECONDS_MAX = 25.0


async def test_job_runs_over_api_worker_and_reconciler_and_only_the_worker_polls(
    tmp_path: Path, postgres_url: str
) -> None:
    with roles_stand(tmp_path, postgres_url) as stand:
        api, reconciler = stand.start("api"), stand.start("reconciler")
        async with client_of(api) as client:
            job_id = await submit_one_step(client, "one")
            assert await pull(client, wait_seconds=3.0) == [], "neither the API nor the reconciler drives jobs"
            worker = stand.start("worker")
            assert "LUCIUS worker is running: task queue lucius" in worker.log
            directives = await pull(client)
            assert [one["jobId"] for one in directives] == [job_id]
            job = await finish(client, directives[0])
            assert (job["status"], job["engine"]) == ("SUCCEEDED", "temporal")
        for process in (api, worker, reconciler):
            assert process.terminate() < STOP_SECONDS_MAX
            assert "Traceback" not in process.log, process.log[-3000:]


async def test_jobs_of_the_outbox_engine_end_there_while_new_ones_go_to_temporal(
    tmp_path: Path, postgres_url: str
) -> None:
    with roles_stand(tmp_path, postgres_url) as stand:
        before = stand.start("api", LUCIUS_ENGINE="outbox")
        async with client_of(before) as client:
            old = await submit_one_step(client, "old")
        before.terminate()
        api, _, _ = stand.start("api"), stand.start("worker"), stand.start("reconciler")
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
    with roles_stand(tmp_path, "sqlite") as stand:
        server = stand.start("up", "--no-services", "--data", str(tmp_path / "data"))
        assert f"Temporal  {stand.temporal.address}" in server.log
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
    assert (ran.returncode, f"Temporal at {nowhere} is out of reach" in ran.stderr) == (4, True), ran.stderr
    assert "Traceback" not in ran.stderr


async def test_worker_that_is_unwell_for_long_ends_and_a_short_while_is_forgiven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roles, "HEALTH_SECONDS", 0.01)
    monkeypatch.setattr(roles, "SICK_SECONDS_MAX", 0.5)
    looks: list[bool] = []

    async def health() -> dict[str, Any]:
        looks.append(len(looks) == 5)
        if looks[-1]:
            return {}
        raise InfrastructureError.unavailable("the Temporal worker has stopped")

    desk: Any = SimpleNamespace(engine=SimpleNamespace(health=health), observer=Observer())
    with pytest.raises(InfrastructureError, match="the Temporal worker has stopped"):
        await roles._until_sick(desk)
    assert len(looks) > 6, "it was looked at again after it had been well"

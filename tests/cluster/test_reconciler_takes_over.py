"""Who does what when somebody is gone: another API serves, the reconciler alone keeps time, a file has one owner."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import StartRole
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import QUICK, Process, free_port, run_lucius

QUIET_SECONDS = 2.5
"""Longer than the ack timeout, its backoff and a few sweeps."""


async def test_other_api_serves_a_job_whose_api_was_killed_before_its_ack(start_role: StartRole) -> None:
    first, second = start_role("api", **QUICK), start_role("api", **QUICK)
    async with Client([first.port or 0], random.Random(1)) as client:
        job_id = await submit(client, envelope("job"))
        taken = await _pull(client, "ocr")
        first.kill()
    async with Client([second.port or 0], random.Random(2)) as client:
        # Its ACK never came; the lock that the dead process took runs out, and the directive comes again.
        again = await _pull(client, "ocr")
        assert (again["jobId"], again["attempt_no"], again["lease_id"]) == (job_id, 1, taken["lease_id"])
        for service in ("ocr", "embedding", "sis"):
            directive = again if service == "ocr" else await _pull(client, service)
            assert await _call_back(client, directive, "ack", status="ACKED") == "APPLIED"
            assert await _call_back(client, directive, "result", status="SUCCEEDED") == "APPLIED"
        # What the first worker has in hand is the same attempt: it is told so, and nothing is done twice.
        assert await _call_back(client, taken, "result", status="SUCCEEDED") == "DUPLICATE"
        assert (await client.read(f"/v1/jobs/{job_id}"))["status"] == "SUCCEEDED"
        assert (await client.read("/v1/admin/tenants"))["inflight"] == 0


async def test_deadlines_are_kept_by_the_reconciler_alone(start_role: StartRole) -> None:
    api = start_role("api", **QUICK)
    async with Client([api.port or 0], random.Random(3)) as client:
        job_id = await submit(client, envelope("job"))
        held = await _pull(client, "ocr")
        await _call_back(client, held, "ack", status="ACKED")
        await asyncio.sleep(QUIET_SECONDS)
        step = (await client.read(f"/v1/jobs/{job_id}"))["steps"][0]
        assert (step["status"], step["attempt_no"]) == ("PROCESSING", 1), "nobody sweeps where no reconciler runs"

        reconciler = start_role("reconciler", **QUICK)
        second = await _pull(client, "ocr")
        assert second["attempt_no"] == 2, "the lease ran out, and the reconciler saw it"
        assert await _call_back(client, held, "result", status="SUCCEEDED") == "STALE_ATTEMPT"

        # And again, with the job as two processes have moved it on by turns: nobody works on an old memory of it.
        await _call_back(client, second, "ack", status="ACKED")
        reconciler.kill()
        reconciler.start()
        third = await _pull(client, "ocr")
        assert third["attempt_no"] == 3
        await _call_back(client, third, "result", status="SUCCEEDED")
        assert (await _pull(client, "embedding"))["attempt_no"] == 1
        events = await client.pages(f"/v1/jobs/{job_id}/events", "events")
        assert [event["type"] for event in events].count("LEASE_EXPIRED") == 2


async def test_reconciler_retries_a_job_that_another_process_has_moved_on(start_role: StartRole) -> None:
    """It remembers the job from the last retry, with hours to go; the failure since then came in elsewhere."""
    patient = {**QUICK, "LUCIUS_ACK_TIMEOUT_SECONDS": "3600", "LUCIUS_LEASE_SECONDS": "3600"}
    api = start_role("api", **patient)
    start_role("reconciler", **patient)
    async with Client([api.port or 0], random.Random(4)) as client:
        job_id = await submit(client, envelope("job"))
        for attempt_no in range(1, 5):
            directive = await _pull(client, "ocr")
            assert directive["attempt_no"] == attempt_no
            failed = {"status": "FAILED", "failure_class": "RETRYABLE"}
            assert await _call_back(client, directive, "result", **failed) == "APPLIED"
        directive = await _pull(client, "ocr")
        await _call_back(client, directive, "result", status="SUCCEEDED")
        assert (await client.read(f"/v1/jobs/{job_id}"))["current_step_id"] == "embedding"


def test_second_owner_of_a_sqlite_file_is_refused_by_name(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Process("up", "--no-services", "--data", data, settings=QUICK, folder=tmp_path, port=free_port()) as owner:
        for words in (("up", "--no-services"), ("prune", "--yes", "--older-than", "1d"), ("db", "verify")):
            refused = run_lucius(*words, "--data", data, settings={**QUICK, "LUCIUS_PORT": str(free_port())})
            assert refused.returncode != 0
            assert f"process {owner.pid}" in refused.stderr
            assert "one owner" in refused.stderr
            assert "Traceback" not in refused.stderr
        assert owner.is_ready()


@pytest.mark.parametrize("role", ["api", "reconciler"])
def test_role_that_needs_a_shared_ledger_says_so(tmp_path: Path, role: str) -> None:
    refused = run_lucius(role, "--data", str(tmp_path), settings={})
    assert refused.returncode != 0
    assert "LUCIUS_LEDGER=postgresql://" in refused.stderr
    assert "Traceback" not in refused.stderr


async def _pull(client: Client, service: str) -> dict[str, Any]:
    answer = await client.ask("POST", "/v1/directives:pull", {"service": service, "max": 1, "wait_seconds": 14})
    assert answer.status == 200, answer
    (directive,) = answer.body["directives"]
    return dict(directive)


async def _call_back(client: Client, directive: dict[str, Any], kind: str, **fields: Any) -> str:
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    token = directive["callback_token"]
    answer = await client.ask("POST", f"/v1/callbacks/{kind}", {**ids, **fields}, Lucius_Callback_Token=token)
    return str(answer.body.get("outcome") or answer.body["code"])

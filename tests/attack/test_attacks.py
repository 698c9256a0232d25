"""Strangers and limited callers against every deployment: nothing gets through, and nothing of it leaves a trace."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.attack.authorization import check_every_route_is_listed, try_foreign_job, try_foreign_runbook, try_matrix
from tests.attack.credentials import OWN, write_credentials
from tests.attack.forged_callbacks import IDS, send_forgeries
from tests.attack.targets import DEPLOYMENTS, Target, started
from tests.long_form import sized

from lucius.registries.files import SHIPPED

RUNBOOK = """\
name: NAME
data_source: {type: manual, primary_key: Upn}
phases:
  - {name: only, offset: T-0, steps: [{name: a, worker_id: mover, function: A, params: {Upn: "{{Upn}}"}}]}
"""
JOBS = 8
FORGERIES = sized(1_500, 20_000)
SEED = 2026


async def _submit(session: aiohttp.ClientSession, target: Target, key: str) -> str:
    command = {
        "tenant_id": OWN, "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
        "output_ref": "https://a.example/out", "schema_version": "1", "idempotency_key": key,
    }  # fmt: skip
    async with session.post(f"{target.urls[0]}/v1/commands", json=command, headers=_own(target)) as answer:
        assert answer.status == 202, await answer.text()
        return str((await answer.json())["jobId"])


def _own(target: Target) -> dict[str, str]:
    return {"Authorization": f"Bearer {target.key}"}


async def _get(session: aiohttp.ClientSession, target: Target, path: str) -> Any:
    async with session.get(target.urls[-1] + path, headers=_own(target)) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def _pull(session: aiohttp.ClientSession, target: Target, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        wanted = {"service": "ocr", "max": count, "wait_seconds": 20}
        async with session.post(f"{target.urls[0]}/v1/directives:pull", json=wanted, headers=_own(target)) as answer:
            taken = (await answer.json())["directives"]
        assert taken, f"only {len(found)} of {count} directives came"
        found += taken
    return found


async def _finish(session: aiohttp.ClientSession, target: Target, directive: dict[str, Any]) -> None:
    body = {name: directive[name] for name in IDS} | {"status": "SUCCEEDED"}
    headers = {"Lucius-Callback-Token": directive["callback_token"]}
    async with session.post(f"{target.urls[-1]}/v1/callbacks/result", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    job = await _get(session, target, f"/v1/jobs/{directive['jobId']}?wait_seconds=30")
    assert job["status"] == "SUCCEEDED"


def _write_registry(folder: Path) -> Path:
    """The one that ships, with a tenant that may have runbooks."""
    shutil.copytree(SHIPPED, folder)
    (folder / "tenants").mkdir(exist_ok=True)
    (folder / "tenants" / f"{OWN}.yaml").write_text(f"id: {OWN}\nrunbooks: {{workers: [mover]}}\n")
    return folder


async def _publish(session: aiohttp.ClientSession, target: Target) -> tuple[str, int]:
    """A runbook of OWN, and a batch of it that waits."""
    name = f"{OWN}.moves"
    batch = {"runbook": name, "csv": "Upn\nann\n", "start": "2031-01-01T00:00:00Z"}
    for path, body in (("runbooks", {"yaml": RUNBOOK.replace("NAME", name)}), ("batches", batch)):
        async with session.post(f"{target.urls[0]}/v1/{path}", json=body, headers=_own(target)) as answer:
            assert answer.status == 201, await answer.text()
            made = await answer.json()
    return name, made["batch_id"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
async def test_strangers_get_nowhere(deployment: str, tmp_path: Path, postgres_url: str) -> None:
    settings, credentials = write_credentials(tmp_path)
    settings["LUCIUS_REGISTRY"] = str(_write_registry(tmp_path / "registry"))
    timeout = aiohttp.ClientTimeout(total=60)
    with started(deployment, tmp_path, postgres_url, settings) as target:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            check_every_route_is_listed(await _get(session, target, "/openapi.json"))
            foreign = await _submit(session, target, "foreign")
            jobs = [await _submit(session, target, f"forged-{number}") for number in range(JOBS)]
            directives = [one for one in await _pull(session, target, JOBS + 1) if one["jobId"] in jobs]
            before = {job: await _get(session, target, f"/v1/jobs/{job}/events") for job in [foreign, *jobs]}

            forged = await send_forgeries(session, target, directives, FORGERIES, SEED)
            hidden = await try_foreign_job(session, target, credentials, foreign)
            assert forged == FORGERIES
            assert {job: await _get(session, target, f"/v1/jobs/{job}/events") for job in before} == before

            runbook, batch_id = await _publish(session, target)
            assert await try_foreign_runbook(session, target, credentials, runbook, batch_id) > 100
            shown = await _get(session, target, f"/v1/batches/{batch_id}/events")
            assert [one["kind"] for one in shown["items"]][-1] == "batch-detected"
            assert not {one["actor"] for one in shown["items"]} & {one.name.replace(" ", ":", 1) for one in credentials}

            cells = await try_matrix(session, target, credentials)
            assert hidden > 0
            assert cells > 2_000
            for directive in directives:
                await _finish(session, target, directive)

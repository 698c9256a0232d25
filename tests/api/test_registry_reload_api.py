"""The registry while LUCIUS runs: a file is a protocol, a broken one changes nothing, jobs keep their version."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

FAX = """\
id: FAX
version: {version}
request_types: [FAX]
steps:
  - id: dial
    type: DIAL
    service: {service}
    payload:
      schema:
        type: object
        additionalProperties: false
        properties:
          number: {{type: {number}}}
    policy: {{max_attempts: {attempts}, ack_timeout_seconds: 30, lease_seconds: 60, max_step_seconds: 600}}
"""


def put(path: Path, text: str) -> None:
    """Write as an editor or a deployment would: whole, or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    os.replace(draft, path)


def fax(version: int = 1, service: str = "modem", number: str = "string", attempts: int = 3) -> str:
    return FAX.format(version=version, service=service, number=number, attempts=attempts)


@pytest.fixture
async def reloading(open_api: Any, registry_folder: Path) -> Any:
    return await open_api(registry=str(registry_folder), registry_reload_seconds=0.05)


async def until(look: Any) -> Any:
    """What `look` finds, once it finds something."""
    async with asyncio.timeout(20):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def problems(api: Any) -> str:
    registry = (await api.readiness())[2]["registry"]
    return "" if registry["ok"] else str(registry["detail"])


async def version_of(api: Any, protocol: str) -> int | None:
    answer = await api.client.get(f"/v1/protocols/{protocol}")
    return answer.json()["version"] if answer.status_code == 200 else None


async def test_new_protocol_is_served_without_a_restart(reloading: Any, registry_folder: Path) -> None:
    api = reloading
    command = {"request_type": "FAX", "payload": {"number": "555"}}
    api.assert_problem(await api.submit(**command), 422, "REQUEST_TYPE_UNKNOWN")
    pull = {"service": "modem"}
    api.assert_problem(await api.client.post("/v1/directives:pull", json=pull), 422, "ENVELOPE_INVALID", "/service")
    put(registry_folder / "protocols" / "fax.yaml", fax())
    await until(lambda: version_of(api, "FAX"))
    assert await api.pull("modem", wait_seconds=0) == [], "a worker may come before the first command"
    job_id = await api.accepted(**command)
    directive = await api.work("modem")
    assert (directive["jobId"], directive["step_type"], directive["payload"]) == (job_id, "DIAL", {"number": "555"})
    assert (await api.job(job_id))["status"] == "SUCCEEDED"
    shown = (await api.client.get("/v1/protocols/FAX")).json()
    assert shown["steps"][0]["payload_schema"]["properties"] == {"number": {"type": "string"}}


async def test_command_for_a_new_service_waits_for_its_first_worker(reloading: Any, registry_folder: Path) -> None:
    put(registry_folder / "protocols" / "fax.yaml", fax())
    await until(lambda: version_of(reloading, "FAX"))
    job_id = await reloading.accepted(request_type="FAX", payload={})
    assert (await reloading.take("modem"))["jobId"] == job_id


async def test_broken_file_is_named_with_its_line_and_the_old_stays(reloading: Any, registry_folder: Path) -> None:
    api, path = reloading, registry_folder / "protocols" / "fax.yaml"
    put(path, fax())
    await until(lambda: version_of(api, "FAX"))
    for text, line in (
        (fax(2).replace("service: modem", "service: [modem"), 8),
        (fax(2).replace("max_attempts: 3", "max_attempts: 0"), 14),
        (fax(2).replace("version: 2", "version: 0"), 2),
        (fax(2) + "colour: red\n", 15),
    ):
        put(path, text)
        told = await until(lambda: problems(api))
        assert f"protocols/fax.yaml:{line}:" in told
        assert (await api.readiness())[:2] == (200, "degraded"), "what is in force still serves"
        assert (await api.client.get("/readyz")).json() == {"status": "ok"}
        assert await version_of(api, "FAX") == 1
        assert (await api.submit(request_type="FAX", payload={"number": "1"})).status_code == 202
        put(path, fax())
        await until(lambda: _is_mended(api))
    put(path, fax(2))
    await until(lambda: _is(api, 2))


async def _is_mended(api: Any) -> bool:
    return not await problems(api)


async def _is(api: Any, version: int) -> bool:
    return await version_of(api, "FAX") == version


async def test_job_in_flight_keeps_its_version(reloading: Any, registry_folder: Path) -> None:
    api, path = reloading, registry_folder / "protocols" / "fax.yaml"
    put(path, fax(attempts=2))
    await until(lambda: version_of(api, "FAX"))
    old = await api.accepted(request_type="FAX", payload={"number": "555"})
    put(path, fax(2, service="fiber", number="integer", attempts=1))
    await until(lambda: _is(api, 2))
    api.assert_problem(
        await api.submit(request_type="FAX", payload={"number": "555"}), 422, "PAYLOAD_INVALID", "/payload/number"
    )
    new = await api.accepted(request_type="FAX", payload={"number": 555})
    assert [(await api.job(job_id))["protocol_version"] for job_id in (old, new)] == [1, 2]
    fresh = await api.take("fiber")
    assert fresh["jobId"] == new
    await api.result(fresh, "FAILED_RETRY")
    assert (await api.job(new))["status"] == "FAILED_FINAL", "the new version has one attempt"

    redriven = (await api.operate(new, "redrive")).json()["jobId"]
    assert (await api.work("fiber"))["jobId"] == redriven


async def test_service_that_left_the_registry_can_still_finish_its_jobs(reloading: Any, registry_folder: Path) -> None:
    """A job keeps the version it started with: what that names must stay pullable until the job has ended."""
    api, path = reloading, registry_folder / "protocols" / "fax.yaml"
    put(path, fax(attempts=2))
    await until(lambda: version_of(api, "FAX"))
    old = await api.accepted(request_type="FAX", payload={"number": "555"})
    put(path, fax(2, service="fiber"))
    await until(lambda: _is(api, 2))
    await api.result(await api.take("modem"), "FAILED_RETRY")
    again = await api.take("modem")
    assert (again["jobId"], again["attempt_no"]) == (old, 2)
    assert (await api.result(again)).json()["outcome"] == "APPLIED"
    assert (await api.job(old))["status"] == "SUCCEEDED"


async def test_limits_of_a_tenant_change_while_it_runs(reloading: Any, registry_folder: Path) -> None:
    api = reloading
    await api.accepted()
    put(registry_folder / "tenants" / "acme.yaml", "id: acme\nmax_inflight: 1\n")

    async def is_full() -> bool:
        return (await api.submit()).status_code == 429

    await until(is_full)
    (registry_folder / "tenants" / "acme.yaml").unlink()

    async def is_open() -> bool:
        return (await api.submit()).status_code == 202

    await until(is_open)

"""A service and a function worker that take their work from Service Bus and answer there, on the test server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.crash.processes import API_KEY, CALLBACK_KEYS
from tests.long_form import sized
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ProvisionedBus, ServerThread

from lucius.bootstrap import open_app
from lucius.bootstrap.bus_plan import bus_subscriptions
from lucius.clocks import SystemClock
from lucius.functions import FunctionWorker
from lucius.functions.settings import WorkerSettings
from lucius.platform import PlatformService, PlatformSettings, ServiceUnusable
from lucius.ports.bus import Message
from lucius.runbooks.core import messages
from lucius.settings import Settings

JOBS = sized(2, 200)
SECONDS_MAX = 60.0

pytestmark = SDK_LEAVES_SOCKETS


@pytest.fixture
def connected(servicebus_server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> ServerThread:
    servicebus_server.forget()
    monkeypatch.setenv("LUCIUS_SERVICEBUS_CONNECTION", servicebus_server.server.connection_string)
    return servicebus_server


async def test_jobs_are_done_by_directives_and_replies_on_service_bus(connected: ServerThread, tmp_path: Path) -> None:
    settings = Settings(
        bus="servicebus",
        servicebus_connection=connected.server.connection_string,
        bus_replies=True,
        data=str(tmp_path / "data"),
        api_key=API_KEY,
        callback_keys=(CALLBACK_KEYS,),
    )
    connected.declare(await bus_subscriptions(settings), 600.0, None)
    worked: list[str] = []
    service = PlatformService("ocr")
    service.step("OCR")(lambda directive, workspace: worked.append(directive.job_id))
    # Nobody listens at this address: everything has to go over the bus.
    platform = PlatformSettings(
        orchestrator_url="http://127.0.0.1:9", bus="servicebus://", callbacks="bus", state=str(tmp_path),
        data=str(tmp_path),
    )  # fmt: skip
    stop = asyncio.Event()
    async with open_app(settings, orchestrates=False, schedules=False) as context:
        serving = asyncio.create_task(service.serve(stop, platform))
        try:
            job_ids = [
                (await context.acceptance.submit(_envelope(number), lambda tenant_id: True)).job_id
                for number in range(JOBS)
            ]
            async with asyncio.timeout(SECONDS_MAX):
                jobs = await context.ledger.load(job_ids)
                while not all(job.is_terminal for job in jobs.values()):
                    assert not serving.done(), serving
                    await asyncio.sleep(0.1)
                    jobs = await context.ledger.load(job_ids)
        finally:
            stop.set()
            await serving
        assert {(job.status, job.steps[0].attempt_no) for job in jobs.values()} == {("SUCCEEDED", 1)}
        assert sorted(worked) == sorted(job_ids)


async def test_a_function_worker_takes_jobs_from_service_bus(connected: ServerThread) -> None:
    worker = FunctionWorker("w1")
    worker.function("Double")(lambda number: {"number": number * 2})
    async with ProvisionedBus(connected, SystemClock()) as bus:
        await bus.declare([*messages.SUBSCRIPTIONS, messages.worker_subscription("w1")])
        body = {"jobId": "job-1-a1", "workerId": "w1", "functionName": "Double", "parameters": {"number": 21}}
        job = Message(
            id="job-1-a1", topic=messages.JOBS_TOPIC, body=json.dumps(body).encode(), properties={"WorkerId": "w1"}
        )
        assert await bus.publish([job]) == [None]
        stop = asyncio.Event()
        serving = asyncio.create_task(worker.serve(stop, WorkerSettings(bus="servicebus://")))
        try:
            found: list[Any] = []
            async with asyncio.timeout(SECONDS_MAX):
                while not found:
                    assert not serving.done(), serving
                    found = await bus.receive([messages.RESULTS_TOPIC], messages.ORCHESTRATOR, 1, 30.0, 1.0)
        finally:
            stop.set()
            await serving
        assert json.loads(found[0].body)["result"] == {"number": 42}
        await bus.settle([found[0].ref])


async def test_service_bus_without_a_namespace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCIUS_SERVICEBUS_CONNECTION", raising=False)
    worker = FunctionWorker("w1")
    worker.function("Double")(lambda number: number)
    with pytest.raises(ServiceUnusable, match="LUCIUS_WORKER_BUS=servicebus:// must name a namespace"):
        await worker.serve(asyncio.Event(), WorkerSettings(bus="servicebus://"))


def _envelope(number: int) -> dict[str, Any]:
    return {
        "tenant_id": f"tenant-{number % 16}",
        "request_type": "OCR",
        "input_ref": f"blob://in/{number}.pdf",
        "output_ref": f"blob://out/{number}.json",
        "payload": {},
        "schema_version": "1",
    }

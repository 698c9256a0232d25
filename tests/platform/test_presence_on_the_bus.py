"""Services and function workers that take their work from a broker: the server knows of them while they are idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.crash.processes import API_KEY, CALLBACK_KEYS
from tests.nats_server import NatsServer, forget_streams
from tests.platform.played import SECONDS_MAX
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ServerThread

from lucius.api.management import create_management
from lucius.api.serving import listen, served
from lucius.app_context import AppContext
from lucius.bootstrap import bus_subscriptions, open_app
from lucius.buses.nats.options import NatsOptions
from lucius.functions import FunctionWorker, WorkerSettings
from lucius.kit import presence
from lucius.platform import PlatformService, PlatformSettings
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock

pytestmark = SDK_LEAVES_SOCKETS

RUNBOOK = """
name: greetings
data_source: { type: manual, primary_key: Upn }
phases:
  - name: greet
    offset: T-0
    steps:
      - { name: greet, worker_id: greeter, function: Greet, params: { Upn: "{{Upn}}" } }
"""


class Installation:
    """A server that listens on a port, on a broker."""

    def __init__(self, context: AppContext, url: str, kit_bus: str, clock: ShiftedClock) -> None:
        self.url = url
        self.kit_bus = kit_bus
        self.clock = clock
        self._context = context
        headers = {"Authorization": f"Bearer {API_KEY}"}
        self.client = httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)

    async def workers(self) -> dict[str, dict[str, Any]]:
        items = (await self.client.get("/v1/admin/workers")).json()["items"]
        return {one["name"]: one for one in items}

    async def consumers(self, service: str) -> list[int]:
        """On each lane."""
        lanes = (await self.client.get("/v1/admin/lanes")).json()["items"]
        return [one["consumers"] for lane in lanes for one in lane["subscriptions"] if one["service"] == service]

    async def metrics(self) -> str:
        transport = httpx.ASGITransport(app=create_management(self._context.management))
        async with httpx.AsyncClient(transport=transport, base_url="http://management.test", timeout=60) as client:
            return (await client.get("/metrics")).text


@pytest.fixture(params=["nats", "servicebus"])
async def installation(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    server: ServerThread | None = None
    clock, where = ShiftedClock(), dict[str, Any]()
    async with AsyncExitStack() as stack:
        if request.param == "nats":
            nats: NatsServer = request.getfixturevalue("nats_server")
            options = NatsOptions(servers=(nats.url,), prefix=f"presence-{tmp_path.name}")
            stack.push_async_callback(forget_streams, options)
            monkeypatch.setenv("LUCIUS_NATS_PREFIX", options.prefix)
            where = {"bus": options.servers[0], "nats_prefix": options.prefix}
            kit_bus = options.servers[0]
        else:
            server = request.getfixturevalue("servicebus_server")
            assert server is not None
            stack.push_async_callback(asyncio.to_thread, server.forget)
            monkeypatch.setenv("LUCIUS_SERVICEBUS_CONNECTION", server.server.connection_string)
            reached = await asyncio.to_thread(server.administration, tmp_path)
            names = ("connection", "administration", "administration_ca_file")
            where = {"bus": "servicebus"} | {f"servicebus_{name}": getattr(reached, name) for name in names}
            kit_bus, clock = "servicebus://", server.clock()
        settings = Settings(
            data=str(tmp_path / "data"), api_key=API_KEY, callback_keys=(CALLBACK_KEYS,), port=0, **where
        )
        if server is not None:
            await asyncio.to_thread(server.declare, await bus_subscriptions(settings, ["greeter"]), 600.0, None)
        listener = listen(settings)
        context = await stack.enter_async_context(open_app(settings, clock=clock))
        await stack.enter_async_context(served(context, listener))
        stack.callback(context.stopping.set)
        found = Installation(context, f"http://127.0.0.1:{listener.getsockname()[1]}", kit_bus, clock)
        await stack.enter_async_context(found.client)
        yield found


async def test_idle_service_and_worker_on_a_broker_are_counted_until_they_end(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "REPORT_SECONDS", 0.2)
    assert (await installation.client.post("/v1/runbooks", json={"yaml": RUNBOOK})).is_success
    service, worker, stop = PlatformService("ocr"), FunctionWorker("greeter"), asyncio.Event()
    service.step("OCR")(lambda directive, workspace: None)
    worker.function("Greet")(lambda Upn: None)
    assert set(await installation.consumers("ocr")) == {0}
    platform = PlatformSettings(
        orchestrator_url=installation.url, api_key=API_KEY, bus=installation.kit_bus, version="2.1",
        state=str(tmp_path / "state"), data=str(tmp_path / "data"),
    )  # fmt: skip
    serving = [
        asyncio.create_task(service.serve(stop, platform)),
        asyncio.create_task(
            worker.serve(stop, WorkerSettings(url=installation.url, api_key=API_KEY, bus=installation.kit_bus))
        ),
    ]
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while {"ocr", "greeter"} > (await installation.workers()).keys():
                assert not any(task.done() for task in serving), serving
                await asyncio.sleep(0.05)
            first = await installation.workers()
            for name in first:
                while (await installation.workers())[name]["last_seen_at"] == first[name]["last_seen_at"]:
                    await asyncio.sleep(0.05)
            while await installation.consumers("ocr") != [1] * 16:
                await asyncio.sleep(0.05)
        seen = await installation.workers()
        described = [(one["kind"], one["name"], one["present"], one["in_work"]) for one in seen.values()]
        assert described == [("service", "ocr", True, 0), ("worker", "greeter", True, 0)]
        assert seen["ocr"]["version"] == "2.1"
        assert 'lucius_lane_consumers{service="ocr"} 1.0' in await installation.metrics()
    finally:
        stop.set()
        await asyncio.gather(*serving)
    installation.clock.shift_seconds += 31.0
    async with asyncio.timeout(SECONDS_MAX):
        while await installation.consumers("ocr") != [0] * 16:
            await asyncio.sleep(0.05)
    assert not any(one["present"] for one in (await installation.workers()).values())

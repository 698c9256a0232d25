"""Services that take their directives from the bus and answer there: processes, killed like the server itself."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.crash.brokers import NatsBroker, ServiceBusBroker, open_broker
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import API_KEY, CALLBACK_KEYS, QUICK, Process, free_port
from tests.long_form import IS_LONG, sized
from tests.platform.mortal_audit import Found, audit, until_ended
from tests.platform.mortal_replicas import Replicas
from tests.servicebus_server import SDK_LEAVES_SOCKETS, close_broken_sockets

from lucius.bootstrap import open_app
from lucius.platform import PlatformService, PlatformSettings
from lucius.settings import read_settings

POLICIES = {
    **QUICK,
    "LUCIUS_ACK_TIMEOUT_SECONDS": "10",
    "LUCIUS_LEASE_SECONDS": "5",
    "LUCIUS_MAX_ATTEMPTS": "30",
    "LUCIUS_BUS_REPLIES": "true",
}
WORK_SECONDS = (0.02, 0.08)
BROKERS = ("nats", "servicebus") if IS_LONG else ("nats",)
JOBS = sized(8, 200)
KILLS = sized(2, 50)
BROKER_JOBS = sized(24, 400)
OUTAGE_SECONDS = sized(1, 20)
TENANTS = 7
SECONDS_MAX = sized(60, 600)


@pytest.mark.parametrize("name", BROKERS)
async def test_services_on_a_broker_finish_jobs_while_all_are_killed(tmp_path: Path, name: str) -> None:
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with ExitStack() as stack:
        broker = stack.enter_context(open_broker(name, tmp_path, POLICIES))
        services = {**broker.settings, "LUCIUS_PLATFORM_BUS": broker.kit_url}
        process = Process(*words, settings={**POLICIES, **broker.settings}, folder=tmp_path, port=free_port())
        server = stack.enter_context(process)
        await _run(tmp_path, server, services, ("ocr", "embedding"), KILLS)
        assert not broker.tracebacks(server.log), server.log[-3000:]


async def test_services_on_the_bus_in_the_database_finish_jobs(tmp_path: Path, postgres_url: str) -> None:
    settings = {**POLICIES, "LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS}
    services = {"LUCIUS_TEST_SERVER_BUS": "1", "LUCIUS_LEDGER": postgres_url}
    with ExitStack() as stack:
        server = stack.enter_context(Process("api", settings=settings, folder=tmp_path, port=free_port()))
        if IS_LONG:
            # Ends the leases of those who are killed.
            stack.enter_context(Process("reconciler", settings=settings, folder=tmp_path))
        found = await _run(tmp_path, server, services, ("ocr",), sized(0, 16))
        assert "Traceback" not in server.log, server.log[-3000:]
    assert IS_LONG or found.attempt_no_max == 1


@SDK_LEAVES_SOCKETS
@pytest.mark.parametrize("name", BROKERS)
async def test_a_broker_away_under_load_loses_no_reply_and_uses_up_no_attempt(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS is killed; the test server of Service Bus drops every connection and takes none."""
    with open_broker(name, tmp_path, POLICIES) as broker:
        for variable, value in broker.settings.items():
            monkeypatch.setenv(variable, value)  # The kit reads them.
        await _be_away_under_load(tmp_path, broker)
        await close_broken_sockets(broker.address_port)


async def _be_away_under_load(tmp_path: Path, broker: NatsBroker | ServiceBusBroker) -> None:
    settings = read_settings(
        broker.settings,
        bus_replies=True,
        data=str(tmp_path / "data"),
        api_key=API_KEY,
        callback_keys=(CALLBACK_KEYS,),
        ack_timeout_seconds=60.0,
    )
    ended, stop = set[str](), asyncio.Event()
    service = PlatformService("ocr")
    service.step("OCR")(lambda directive, workspace: ended.add(directive.job_id))
    # Nobody listens at this address: everything has to go over the bus.
    platform = PlatformSettings(
        orchestrator_url="http://127.0.0.1:9", bus=broker.kit_url, callbacks="bus", state=str(tmp_path),
        data=str(tmp_path), lock_seconds=2.0,
    )  # fmt: skip
    async with open_app(settings) as context:
        serving = asyncio.create_task(service.serve(stop, platform))
        job_ids = []
        for number in range(BROKER_JOBS):
            taken = await context.acceptance.submit(_envelope(number, ("ocr",)), lambda tenant_id: True)
            job_ids.append(taken.job_id)
            if number == BROKER_JOBS // 3:
                await asyncio.sleep(0.1)
                broker.kill()
            if number == 2 * BROKER_JOBS // 3:
                await asyncio.sleep(OUTAGE_SECONDS)
                await asyncio.to_thread(broker.start)
        async with asyncio.timeout(SECONDS_MAX):
            jobs = await context.ledger.load(job_ids)
            while not all(job.is_terminal for job in jobs.values()):
                await asyncio.sleep(0.1)
                jobs = await context.ledger.load(job_ids)
        stop.set()
        await serving
        assert {(job.status, job.steps[0].attempt_no) for job in jobs.values()} == {("SUCCEEDED", 1)}
        assert ended == set(job_ids)
        assert not await context.bus.dead_letters(10)


async def _run(
    folder: Path, server: Process, settings: Mapping[str, str], services: Sequence[str], kills: int
) -> Found:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    rng = random.Random(seed)
    url = f"http://127.0.0.1:{server.port}"
    settings = {**settings, "LUCIUS_PLATFORM_CALLBACKS": "bus", "LUCIUS_PLATFORM_LOCK_SECONDS": "2"}
    with Replicas(1, folder / "services", url, WORK_SECONDS, settings, services) as replicas:
        async with Client([server.port or 0], rng) as client:
            job_ids: list[str] = []
            for number in range(JOBS):
                job_ids.append(await submit(client, _envelope(number, services)))
                if kills and number % (JOBS // kills) == 0:
                    await asyncio.to_thread(_kill_one, rng, number % (2 * JOBS // kills) == 0, server, replicas)
            await until_ended(client, SECONDS_MAX)
            found = await audit(client, job_ids, replicas.journal())
        assert not replicas.tracebacks()
    assert found.jobs == {"SUCCEEDED": JOBS}
    return found


def _envelope(number: int, services: Sequence[str]) -> dict[str, Any]:
    made = envelope(f"job-{number}", tenant_id=f"tenant-{number % TENANTS}")
    return {**made, "request_type": "_".join(services).upper(), "payload": {}}


def _kill_one(rng: random.Random, takes_server: bool, server: Process, replicas: Replicas) -> None:
    """The server and the services in turn, while replies are under way."""
    time.sleep(rng.uniform(0.0, 0.2))
    if takes_server:
        server.kill()
        server.start()
        server.wait_ready()
        return
    at_work = [replica for replica in replicas.all if replica.in_work()]
    victim = rng.choice(at_work or replicas.all)
    victim.kill()
    victim.start()

"""`kill -9` of services on the platform kit, in the middle of their work, over and over while jobs keep coming."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.azurite import Azurite
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import QUICK, Process, free_port
from tests.long_form import IS_LONG, sized
from tests.platform.mortal_audit import Found, audit, until_ended
from tests.platform.mortal_replicas import Replica, Replicas

from lucius.azure.blob import BlobAccount

LEASE_SECONDS = 10.0
POLICIES = {
    **QUICK,
    "LUCIUS_ACK_TIMEOUT_SECONDS": "3",
    "LUCIUS_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "LUCIUS_MAX_ATTEMPTS": "30",
}
WORK_SECONDS = (0.02, 0.08)
IN_FLIGHT = 16
LOAD_LOOK_SECONDS = 0.1
JOBS_MAX = 5_000
TENANTS = 7
PACE_SECONDS = 0.3
"""Between two kills, so that those who were killed find the time to come back."""
AGAIN_SHARE = 0.1
"""How many of the killed are killed again at once."""
SECONDS_MAX = 200.0
"""For all kills together; without noise a third of it is enough."""


@dataclass
class Fire:
    """What has been killed."""

    kills: int = 0
    cut_short: set[str] = field(default_factory=set)
    """Attempts in the middle of whose step function their process was killed."""


@pytest.mark.timeout(300)
async def test_kills_in_the_middle_of_work_double_and_lose_nothing(tmp_path: Path) -> None:
    await _run(tmp_path, kills=sized(8, 100), each=3, store="sqlite")


async def test_kills_double_and_lose_nothing_where_the_workspace_is_the_store(tmp_path: Path) -> None:
    await _run(tmp_path, kills=sized(4, 20), each=2, store="workspace")


class TestInBlob:
    __test__ = IS_LONG

    @pytest.mark.timeout(300)
    async def test_kills_double_and_lose_nothing_where_the_workspace_is_in_blob(
        self, tmp_path: Path, azurite: Azurite
    ) -> None:
        container = "killed-services"
        async with BlobAccount.connected(azurite.connection) as account:
            await account.create_container(container)
        root = {"LUCIUS_WORKSPACE_ROOT": f"blob://{container}/{tmp_path.name}"}
        storage = {"LUCIUS_STORAGE_CONNECTION": azurite.connection}
        await _run(tmp_path, kills=20, each=2, store="workspace", server_settings=root, service_settings=storage)


async def _run(
    folder: Path,
    kills: int,
    each: int,
    store: str,
    server_settings: Mapping[str, str] | None = None,
    service_settings: Mapping[str, str] | None = None,
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    began = time.monotonic()
    words = ("up", "--no-services", "--data", str(folder / "data"))
    with Process(*words, settings={**POLICIES, **(server_settings or {})}, folder=folder, port=free_port()) as server:
        url = f"http://127.0.0.1:{server.port}"
        settings = {"LUCIUS_PLATFORM_STORE": store, **(service_settings or {})}
        with Replicas(each, folder / "services", url, WORK_SECONDS, settings) as replicas:
            async with Client([server.port or 0], rng) as client:
                over = asyncio.Event()
                load = asyncio.create_task(_keep_in_flight(client, over))
                try:
                    fire = await _kill(replicas.all, kills, load, rng)
                finally:
                    over.set()  # Not cancelled: a command that is on its way becomes a job.
                    job_ids = await load
                fired_seconds = time.monotonic() - began
                await until_ended(client, seconds_max=60.0)
                found = await audit(client, job_ids, replicas.journal())
        summary = _summary(fire, found, replicas, fired_seconds, time.monotonic() - began)
        print(f"{store}, seed {seed}: {summary}")
        assert fire.kills == kills
        assert len(fire.cut_short) >= kills
        assert found.jobs == {"SUCCEEDED": len(job_ids)}, summary
        assert not fire.cut_short & found.winners, "work that was cut short cannot have succeeded"
        # Told by the service itself when it was back; found out when the lease ended, only where nobody told.
        told = [key for key in fire.cut_short if found.failures.get(key) == "SERVICE_INTERRUPTED"]
        assert len(told) > len(fire.cut_short) / 4, summary
        assert not replicas.tracebacks()
        assert "Traceback" not in server.log, server.log[-3000:]


async def _keep_in_flight(client: Client, over: asyncio.Event) -> list[str]:
    """Never fewer than `IN_FLIGHT` jobs under way, spread over lanes by their tenants, until it is over."""
    job_ids: list[str] = []
    while not over.is_set():
        missing = IN_FLIGHT - (await client.read("/v1/admin/tenants"))["inflight"]
        for _ in range(missing):
            place = len(job_ids)
            job_ids.append(await submit(client, envelope(f"job-{place}", tenant_id=f"tenant-{place % TENANTS}")))
        assert len(job_ids) < JOBS_MAX, "the kills take too long"
        await asyncio.sleep(LOAD_LOOK_SECONDS)
    return job_ids


async def _kill(replicas: Sequence[Replica], kills: int, load: asyncio.Task[list[str]], rng: random.Random) -> Fire:
    """Kill a replica that is in the middle of work and start it again at once, until so many were cut short."""
    fire = Fire()
    async with asyncio.timeout(SECONDS_MAX):
        while fire.kills < kills:
            if load.done():
                load.result()  # It has failed, or it would go on.
            at_work = [replica for replica in replicas if replica.in_work()]
            if not at_work:
                await asyncio.sleep(0.01)
                continue
            victim = rng.choice(at_work)
            await asyncio.sleep(rng.uniform(0.0, WORK_SECONDS[0]))
            fire.kills += _restart(victim, fire)
            await asyncio.sleep(rng.uniform(0.5, 1.5) * PACE_SECONDS)
            if rng.random() < AGAIN_SHARE:
                # While it starts, opens its store, or tells what was interrupted.
                _restart(victim, fire)
    return fire


def _restart(victim: Replica, fire: Fire) -> bool:
    """Whether the kill hit it in the middle of work."""
    cut_short = victim.kill()
    victim.start()
    fire.cut_short |= cut_short
    return bool(cut_short)


def _summary(fire: Fire, found: Found, replicas: Replicas, fired_seconds: float, seconds: float) -> str:
    ends = Counter(found.failures.get(key, "no failure") for key in fire.cut_short)
    failures = dict(Counter(found.failures.values()))
    return (
        f"{fire.kills} kills in the middle of work in {fired_seconds:.0f} s cut {len(fire.cut_short)} attempts short, "
        f"which ended as {dict(ends)}; {found.jobs.total()} jobs {dict(found.jobs)}; {found.attempts} attempts, "
        f"at most {found.attempt_no_max} a step, failed ones {failures}; {len(replicas.journal())} side effects; "
        f"RESULTs {dict(found.answers)}; {seconds:.0f} s in all"
    )

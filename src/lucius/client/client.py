"""The blocking client. `AsyncClient` has the same methods as coroutines."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from lucius.client import answers
from lucius.client.addresses import find_url
from lucius.client.calls import admin as admin_calls
from lucius.client.calls import batches as batch_calls
from lucius.client.calls import jobs as job_calls
from lucius.client.calls import notifications as notification_calls
from lucius.client.calls import operations as operation_calls
from lucius.client.calls import runbooks as runbook_calls
from lucius.client.calls.jobs import WAIT_SECONDS
from lucius.client.methods import Blocking, blocking
from lucius.client.models.jobs import Event
from lucius.client.retrying import PATIENCE_SECONDS
from lucius.client.session import Session
from lucius.client.transport import Transport, credentials


class Runbooks(Blocking):
    """`client.runbooks`: publish and read them, switch their automation on and off."""

    list = blocking(runbook_calls.list_runbooks, answers.RUNBOOKS)
    publish = blocking(runbook_calls.publish, answers.PUBLISHED)
    validate = blocking(runbook_calls.validate, answers.RUNBOOK_VALIDATION)
    get = blocking(runbook_calls.get_runbook, answers.RUNBOOK)
    diff = blocking(runbook_calls.diff, answers.JSON)
    events = blocking(runbook_calls.events, answers.RUNBOOK_EVENTS)
    retire = blocking(runbook_calls.retire, answers.JSON)
    stop = blocking(runbook_calls.stop, answers.JSON)
    start = blocking(runbook_calls.start, answers.JSON)
    confirm = blocking(runbook_calls.confirm, answers.JSON)
    preview = blocking(runbook_calls.preview, answers.JSON)
    dry_run = blocking(runbook_calls.dry_run, answers.JSON)


class Batches(Blocking):
    """`client.batches`: create them, wait for them, operate them."""

    list = blocking(batch_calls.list_batches, answers.BATCHES)
    create = blocking(batch_calls.create, answers.CREATED_BATCH)
    get = blocking(batch_calls.get_batch, answers.BATCH)
    wait = blocking(batch_calls.wait, answers.BATCH)
    members = blocking(batch_calls.members, answers.MEMBERS)
    events = blocking(batch_calls.events, answers.RUNBOOK_EVENTS)
    grid = blocking(batch_calls.grid, answers.JSON)
    export = blocking(batch_calls.export, answers.CSV)
    advance = blocking(batch_calls.advance, answers.JSON)
    approve = blocking(batch_calls.approve, answers.JSON)
    refuse = blocking(batch_calls.refuse, answers.JSON)
    cancel = blocking(batch_calls.cancel, answers.JSON)
    pause = blocking(batch_calls.pause, answers.JSON)
    resume = blocking(batch_calls.resume, answers.JSON)
    reschedule = blocking(batch_calls.reschedule, answers.JSON)
    retry = blocking(batch_calls.retry, answers.JSON)
    confirm_move = blocking(batch_calls.confirm_move, answers.JSON)
    keep = blocking(batch_calls.keep, answers.JSON)
    send_again = blocking(batch_calls.send_again, answers.JSON)
    remove = blocking(batch_calls.remove, answers.JSON)
    add = blocking(batch_calls.add, answers.JSON)


class Operations(Blocking):
    """`client.operations`: one action on every job that matches a filter."""

    preview = blocking(operation_calls.preview, answers.OPERATION_PREVIEW)
    create = blocking(operation_calls.create, answers.OPERATION)
    list = blocking(operation_calls.list_operations, answers.OPERATIONS)
    get = blocking(operation_calls.get_operation, answers.OPERATION)
    outcomes = blocking(operation_calls.outcomes, answers.OUTCOMES)
    wait = blocking(operation_calls.wait, answers.OPERATION)
    pause = blocking(operation_calls.pause, answers.OPERATION)
    resume = blocking(operation_calls.resume, answers.OPERATION)
    abandon = blocking(operation_calls.abandon, answers.OPERATION)


class Admin(Blocking):
    """`client.admin`: lanes, tenants and dead letters, for operators."""

    lanes = blocking(admin_calls.lanes, answers.JSON)
    tenants = blocking(admin_calls.tenants, answers.JSON)
    workers = blocking(admin_calls.workers, answers.JSON)
    console_link = blocking(admin_calls.console_link, answers.JSON)
    dead_letters = blocking(admin_calls.dead_letters, answers.JSON)
    dismiss = blocking(admin_calls.dismiss, answers.JSON)
    prune = blocking(admin_calls.prune, answers.JSON)
    archived = blocking(admin_calls.archived, answers.JSON)
    notifications = blocking(notification_calls.notifications, answers.JSON)
    notification = blocking(notification_calls.notification, answers.JSON)
    send_test = blocking(notification_calls.send_test, answers.JSON)


class Client(Blocking):
    """A client of one server, for the duration of a `with`. It may be used from several threads.

    with Client("http://127.0.0.1:8000", api_key="…") as client:
        job = client.submit(tenant_id="acme", request_type="OCR", input_ref="…", output_ref="…", payload={})
        print(client.wait(job.job_id).status)
    """

    submit = blocking(job_calls.submit, answers.ACCEPTED)
    submit_many = blocking(job_calls.submit_many, answers.SUBMITTED)
    validate = blocking(job_calls.validate, answers.VALIDATION)
    get = blocking(job_calls.get_job, answers.JOB)
    jobs = blocking(job_calls.jobs, answers.JOBS)
    steps = blocking(job_calls.steps, answers.STEPS)
    command = blocking(job_calls.command, answers.JSON)
    events = blocking(job_calls.events, answers.EVENTS)
    wait = blocking(job_calls.wait, answers.JOB)
    cancel = blocking(job_calls.cancel, answers.ACCEPTED)
    pause = blocking(job_calls.pause, answers.ACCEPTED)
    resume = blocking(job_calls.resume, answers.ACCEPTED)
    redrive = blocking(job_calls.redrive, answers.ACCEPTED)
    protocols = blocking(job_calls.protocols, answers.PROTOCOLS)
    protocol = blocking(job_calls.protocol, answers.PROTOCOL)

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Without a `url`: the one in `LUCIUS_ORCHESTRATOR_URL`, or port 8000 of this machine. Without an `api_key`:
        the one in `LUCIUS_API_KEY`, or that of `lucius up` on this machine. Transient failures are retried for
        `patience_seconds`."""
        url = find_url() if url is None else url
        super().__init__(Session(Transport(url, *credentials(url, api_key)), patience_seconds))
        self.runbooks = Runbooks(self._session)
        self.batches = Batches(self._session)
        self.operations = Operations(self._session)
        self.admin = Admin(self._session)

    def follow(
        self,
        job_id: str,
        *,
        after: int = 0,
        timeout_seconds: float = WAIT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Iterator[Event]:
        """A job's events after the number `after`, as they happen, until the job has ended. Raises `WaitTimedOut` after
        `timeout_seconds`. The server may be unavailable for `patience_seconds` at a time."""
        following = job_calls.follow(
            job_id, after=after, timeout_seconds=timeout_seconds, patience_seconds=patience_seconds
        )
        for event in self._session.follow(following):
            yield Event.read(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

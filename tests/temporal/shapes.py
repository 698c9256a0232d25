"""The shapes that a job's history can have on Temporal, each made by driving one real job through it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from temporalio.client import Client, WorkflowHistory
from temporalio.testing import WorkflowEnvironment
from tests.engines.temporal_server import temporal_program

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus
from lucius.clocks import SystemClock
from lucius.domain.attempt import DispatchStatus
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.engine import TemporalEngine
from lucius.engines.temporal.settings import TemporalSettings
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import PATIENCE_SECONDS, QUICK, EngineHarness

HISTORIES = Path(__file__).parent / "histories"
CONTINUES_AT_EVENTS = 200
"""The length of history at which the tests' server suggests to continue as new; Temporal's own default is 4,096."""
SERVER_OPTIONS = ("--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={CONTINUES_AT_EVENTS}")
HEARTBEATS = 60


def start_server() -> Iterator[str]:
    """The address of a real Temporal server, in a loop of its own, until the generator is closed."""
    loop = asyncio.new_event_loop()
    environment = loop.run_until_complete(
        WorkflowEnvironment.start_local(
            dev_server_existing_path=temporal_program(),
            dev_server_log_level="error",
            dev_server_extra_args=SERVER_OPTIONS,
        )
    )
    try:
        yield environment.client.service_client.config.target_host
    finally:
        loop.run_until_complete(environment.shutdown())
        loop.close()


class TemporalHarness(EngineHarness):
    """The engine's stand, and Temporal's own view of its jobs."""

    settings: TemporalSettings
    client: Client

    async def history(self, job_id: str, run_id: str | None = None) -> WorkflowHistory:
        return await self.client.get_workflow_handle(job_id, run_id=run_id).fetch_history()

    async def runs(self, job_id: str) -> list[WorkflowHistory]:
        """The history of every run of the job's workflow, oldest first."""
        found = [await self.history(job_id)]
        while continued := found[0].events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
            found.insert(0, await self.history(job_id, continued))
        return found

    async def over(self, job_id: str) -> None:
        """Wait for the workflow's end: the ledger shows the job's end a moment before."""
        await asyncio.wait_for(self.client.get_workflow_handle(job_id).result(), PATIENCE_SECONDS)


def quick_settings(address: str) -> TemporalSettings:
    return TemporalSettings(
        address=address,
        task_queue=f"test-{uuid.uuid4()}",
        reconcile_interval=0.5,
        overdue_seconds=0.2,
        publish_timeout_seconds=0.25,
        stop_seconds=0.2,
        sandbox=True,
    )


@asynccontextmanager
async def open_harness(address: str, ledger: Ledger, bus: Bus) -> AsyncIterator[TemporalHarness]:
    settings = quick_settings(address)

    def make(ledger: Ledger, bus: Bus, clock: Clock) -> Engine:
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        urls = CallbackUrls.under("http://127.0.0.1")
        return TemporalEngine(lambda: connect(settings), ledger, bus, clock, signer, urls, Observer(), settings)

    async def kill(engine: Engine) -> None:
        raise AssertionError("nothing is killed here")

    async with TemporalHarness(ledger, bus, SystemClock(), make, kill, answers_at_once=False) as harness:
        harness.settings = settings
        harness.client = await connect(settings)
        yield harness


@asynccontextmanager
async def harness_in_memory(address: str) -> AsyncIterator[TemporalHarness]:
    """The bus is outside of the ledger: publishing is an activity of its own."""
    async with (
        MemoryBus(SystemClock()) as bus,
        MemoryLedger() as ledger,
        open_harness(address, ledger, bus) as harness,
    ):
        yield harness


@asynccontextmanager
async def harness_on_sqlite(address: str, folder: Path) -> AsyncIterator[TemporalHarness]:
    """The bus lives in the ledger's database: a new attempt and its directive are one write."""
    async with SqliteDatabase(folder / "lucius.db") as database:
        await upgrade(database)
        async with (
            JournaledBus(database, SystemClock(), message_bytes_max=8_192) as bus,
            SqlLedger(database, bus) as ledger,
            open_harness(address, ledger, bus) as harness,
        ):
            yield harness


# --- The shapes ------------------------------------------------------------------------------------------------------


async def success(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit()
    await harness.finish(job_id)
    return job_id


async def together(harness: TemporalHarness) -> str:
    """A service that answers at once: ACK and RESULT come in one batch, and are one signal."""
    await harness.start()
    job_id = await harness.submit()
    for step in (await harness.job(job_id)).steps:
        work = await harness.take(step.spec.service)
        await asyncio.gather(harness.ack(work), harness.succeed(work, {"of": step.spec.step_id}))
    await harness.until(job_id, JobStatus.SUCCEEDED)
    return job_id


async def retries(harness: TemporalHarness) -> str:
    await harness.start()
    # Long enough that the wait is not over before it is begun, however slow the machine: only then it is a timer.
    policy = replace(QUICK, execution_backoff_seconds=(1.0,))
    job_id = await harness.submit(steps=["ocr", "sis"], policy=policy)
    for _ in range(2):
        work = await harness.take()
        await harness.ack(work)
        await harness.fail(work)
    await harness.finish(job_id)
    return job_id


async def exhausted(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(steps=["ocr"])
    for _ in range(QUICK.max_attempts):
        await harness.fail(await harness.take())
    await harness.until(job_id, JobStatus.FAILED_FINAL)
    return job_id


async def rate_limited(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(steps=["ocr"])
    await harness.fail(await harness.take(), rate_limited_seconds=1.0)
    await harness.finish(job_id)
    return job_id


async def ack_timeout(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.3))
    await harness.take()
    await harness.until_attempt(job_id, 2)
    await harness.succeed(await harness.take())
    await harness.until(job_id, JobStatus.SUCCEEDED)
    return job_id


async def still_queued(harness: TemporalHarness) -> str:
    """An ack deadline while the directive waits in its queue: nobody could have acknowledged it."""
    await harness.start()
    job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.3))
    # The events so far: accepted, attempt created, published, and at least one word from the bus.
    await harness.until(job_id, lambda job: job.event_seq >= 4)
    await harness.succeed(await harness.take())
    await harness.until(job_id, JobStatus.SUCCEEDED)
    return job_id


async def lease_expired(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, lease_seconds=0.3))
    first = await harness.take()
    await harness.ack(first)
    second = await harness.take()
    await harness.succeed(first)
    await harness.succeed(second)
    await harness.until(job_id, JobStatus.SUCCEEDED)
    return job_id


async def cancel_in_work(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit()
    work = await harness.take()
    await harness.ack(work)
    await harness.until(job_id, StepStatus.PROCESSING)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLING)
    await harness.heartbeat(work, 0.5)
    await harness.fail(work)
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def cancel_withdrawn(harness: TemporalHarness) -> str:
    """Nobody has taken the directive: the bus takes it back."""
    await harness.start()
    job_id = await harness.submit()
    await harness.until(job_id, StepStatus.INITIATED)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def cancel_unanswered(harness: TemporalHarness) -> str:
    """Somebody has taken the directive and never answers: it cannot be withdrawn, and the ack deadline ends it."""
    await harness.start()
    job_id = await harness.submit(policy=replace(QUICK, ack_timeout_seconds=1.0))
    await harness.take()
    await harness.until(job_id, StepStatus.INITIATED)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def cancel_forced(harness: TemporalHarness) -> str:
    """A service hangs: neither its work nor the cancel before is waited for."""
    await harness.start()
    job_id = await harness.submit(rules_version=2)
    work = await harness.take()
    await harness.ack(work)
    await harness.until(job_id, StepStatus.PROCESSING)
    await harness.heartbeat(work, 0.5)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLING)
    await harness.force_cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def cancel_queued_by_old_rules(harness: TemporalHarness) -> str:
    """As it was under rules 1: the ack deadline is moved on while the directive is queued, and nothing is withdrawn."""
    await harness.start()
    job_id = await harness.submit(rules_version=1, policy=replace(QUICK, ack_timeout_seconds=0.3))
    await harness.until(job_id, StepStatus.INITIATED)
    await harness.cancel(job_id)
    # The events so far: accepted, attempt created, published, cancel asked, and twice the word of the bus.
    await harness.until(job_id, lambda job: job.event_seq >= 6)
    await harness.succeed(await harness.take())
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def cancel_before_start(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(not_before=harness.clock.now() + 60_000)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLED)
    return job_id


async def pause_and_resume(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(steps=["ocr", "sis"])
    work = await harness.take()
    await harness.ack(work)
    await harness.pause(job_id)
    await harness.until(job_id, JobStatus.PAUSED)
    await harness.succeed(work)
    await harness.until(job_id, lambda job: job.steps[0].status is StepStatus.SUCCEEDED)
    await harness.resume(job_id)
    await harness.finish(job_id)
    return job_id


async def publish_refused(harness: TemporalHarness) -> str:
    bus = await harness.start_on_faulty_bus()
    bus.refusal_reason = "too large for words"
    job_id = await harness.submit(steps=["ocr"])
    await harness.until(job_id, JobStatus.FAILED_FINAL)
    return job_id


async def refused_inside(harness: TemporalHarness) -> str:
    """A directive that has grown too large for the bus, where publishing is part of the write."""
    await harness.start()
    job_id = await harness.submit(steps=["ocr", "sis"])
    await harness.succeed(await harness.take(), "x" * harness.bus.message_bytes_max)
    await harness.until(job_id, JobStatus.FAILED_FINAL)
    return job_id


async def bus_away(harness: TemporalHarness) -> str:
    """The bus is out of reach for a while, then somebody says that it is back."""
    bus = await harness.start_on_faulty_bus()
    bus.is_down = True
    job_id = await harness.submit(steps=["ocr"])
    await harness.until(job_id, _is_waiting_for_the_bus)
    await asyncio.sleep(1.0)
    bus.is_down = False
    await harness.engine.retry_outbox()
    await harness.finish(job_id)
    return job_id


def _is_waiting_for_the_bus(job: Job) -> bool:
    attempt = job.current_step.attempt
    return attempt is not None and attempt.dispatch is DispatchStatus.PENDING


async def redrive(harness: TemporalHarness) -> str:
    """A job that takes over the finished steps of one that failed."""
    await harness.start()
    failed = await harness.submit()
    await harness.succeed(await harness.take("ocr"), {"pages": 2})
    await harness.fail(await harness.take("embedding"), retryable=False)
    old = await harness.until(failed, JobStatus.FAILED_FINAL)
    job_id = await harness.submit(done=old.steps[:1], redrive_of=failed)
    await harness.finish(job_id)
    return job_id


async def deadline_exceeded(harness: TemporalHarness) -> str:
    await harness.start()
    job_id = await harness.submit(deadline_seconds=1.0)
    work = await harness.take()
    await harness.ack(work)
    await harness.until(job_id, JobStatus.FAILED_FINAL)
    return job_id


async def continued(harness: TemporalHarness) -> str:
    """So many heartbeats that the workflow goes on as a new run."""
    await harness.start()
    job_id = await harness.submit(steps=["ocr"])
    work = await harness.take()
    await harness.ack(work)
    for beat in range(1, HEARTBEATS + 1):
        progress = beat / HEARTBEATS
        await harness.heartbeat(work, progress)
        await harness.until(job_id, lambda job: job.current_step.progress == progress)  # noqa: B023
    await harness.succeed(work)
    await harness.until(job_id, JobStatus.SUCCEEDED)
    return job_id


async def ledger_ahead(harness: TemporalHarness) -> str:
    """A write was made and its answer lost, so the workflow finds the ledger ahead of it, and adopts what it holds.

    Of the two histories with this shape, the older one is from before an activity also told which events the ledger
    holds: there the workflow decides again what was decided already.
    """
    ledger = await harness.start_on_faulty_ledger()
    job_id = await harness.submit(steps=["ocr", "sis"])
    work = await harness.take()
    await harness.ack(work)
    await harness.until(job_id, StepStatus.PROCESSING)
    ledger.lost_answers = 1
    await harness.succeed(work)
    await harness.until(job_id, lambda job: job.current_index == 1)
    await harness.finish(job_id)
    return job_id


Shape = Callable[[TemporalHarness], Awaitable[str]]

OUTSIDE: dict[str, Shape] = {
    "success": success,
    "together": together,
    "retries": retries,
    "exhausted": exhausted,
    "rate_limited": rate_limited,
    "ack_timeout": ack_timeout,
    "still_queued": still_queued,
    "lease_expired": lease_expired,
    "cancel_in_work": cancel_in_work,
    "cancel_withdrawn": cancel_withdrawn,
    "cancel_unanswered": cancel_unanswered,
    "cancel_queued_by_old_rules": cancel_queued_by_old_rules,
    "cancel_before_start": cancel_before_start,
    "cancel_forced": cancel_forced,
    "pause_and_resume": pause_and_resume,
    "publish_refused": publish_refused,
    "bus_away": bus_away,
    "redrive": redrive,
    "deadline_exceeded": deadline_exceeded,
    "continued": continued,
    "ledger_ahead": ledger_ahead,
    "ledger_ahead_with_events": ledger_ahead,
}
"""With a bus outside of the ledger."""

INSIDE: dict[str, Shape] = {
    "success_inside": success,
    "together_inside": together,
    "retries_inside": retries,
    "ack_timeout_inside": ack_timeout,
    "cancel_in_work_inside": cancel_in_work,
    "cancel_withdrawn_inside": cancel_withdrawn,
    "cancel_forced_inside": cancel_forced,
    "pause_and_resume_inside": pause_and_resume,
    "refused_inside": refused_inside,
    "redrive_inside": redrive,
    "ledger_ahead_inside": ledger_ahead,
    "ledger_ahead_with_events_inside": ledger_ahead,
}
"""With the bus in the ledger's database."""


def read_history(path: Path) -> WorkflowHistory:
    stored = json.loads(path.read_text())
    return WorkflowHistory.from_json(stored["workflow_id"], stored["history"])

"""The worker: pulls directives over HTTP, keeps their leases alive while the services work, reports what came of them.

Each service has one pull loop and a fixed number of slots, each slot a thread; no directive is pulled that no slot is
free for, so a busy worker leaves directives on the bus for others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lucius.reference import embedding, ocr, sis
from lucius.reference.attempt import Attempt, Service, StopReason, failure_body
from lucius.reference.callbacks import CallbackSender
from lucius.reference.directive import Directive
from lucius.reference.failure import StepFailed
from lucius.reference.orchestrator import (
    GIVE_UP,
    TRY_AGAIN,
    Answer,
    Callback,
    Orchestrator,
    PullFailed,
    backoff_seconds,
    open_client,
)

SERVICES: dict[str, Service] = {"ocr": ocr.run, "embedding": embedding.run, "sis": sis.run}

CONCURRENCY = 4
PULL_WAIT_SECONDS = 20.0
ACK_SECONDS_MAX = 30.0
RESULT_SECONDS_MAX = 900.0
WORK_SECONDS_MAX = 3_600.0
PROGRESS_LOOK_SECONDS = 0.5
PROGRESS_STEP = 0.1
DRAIN_SECONDS = 8.0
GIVE_BACK_SECONDS = 2.0
REFUSED_PULL_SECONDS = 10.0

log = logging.getLogger("lucius.reference")

T = TypeVar("T")


async def run_services(
    url: str,
    api_key: str,
    names: Sequence[str] = tuple(SERVICES),
    stop: asyncio.Event | None = None,
    *,
    concurrency: int = CONCURRENCY,
) -> None:
    """Serve the named services until `stop` is set (or the task is cancelled); work under way is finished first."""
    unknown = [name for name in names if name not in SERVICES]
    if unknown:
        raise ValueError(f"no such reference service: {', '.join(unknown)}; there are {', '.join(SERVICES)}")
    stop = stop or asyncio.Event()
    # The client's own line for every request would bury the log under long polls.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    async with open_client(url, api_key) as client:
        orchestrator = Orchestrator(client)
        sender = CallbackSender(orchestrator)
        sending = asyncio.create_task(sender.run())
        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    worker = ServiceWorker(name, SERVICES[name], orchestrator, sender, concurrency)
                    group.create_task(worker.run(stop))
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


class ServiceWorker:
    """One service's pull loop and the attempts that it has in work."""

    def __init__(
        self, name: str, service: Service, orchestrator: Orchestrator, sender: CallbackSender, concurrency: int
    ) -> None:
        self._name = name
        self._service = service
        self._orchestrator = orchestrator
        self._sender = sender
        self._concurrency = concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"lucius-{name}")
        self._attempts: dict[tuple[str, str, int, str], Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots_taken = 0
        self._slot_freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await self._pull_until(stop)
            await self._drain()
        finally:
            for attempt in self._attempts.values():
                attempt.stop(StopReason.STALE)
            for task in self._tasks:
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _pull_until(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            free = self._concurrency - self._slots_taken
            if not free:
                self._slot_freed.clear()
                await _unless(stop, self._slot_freed.wait())
                continue
            try:
                messages = await _unless(stop, self._orchestrator.pull(self._name, free, PULL_WAIT_SECONDS))
            except PullFailed as error:
                wait = backoff_seconds(failures, error.answer.retry_after_seconds)
                if error.answer.code not in TRY_AGAIN:
                    # A wrong key or a missing right is for a person to mend: keep asking, but seldom.
                    wait = REFUSED_PULL_SECONDS
                failures += 1
                log.warning("%s: no directives, next try in %.1f s: %s", self._name, wait, error)
                await _unless(stop, asyncio.sleep(wait))
                continue
            failures = 0
            for message in messages or ():
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        try:
            directive = Directive.read(message)
        except (KeyError, TypeError, ValueError) as error:
            log.error(
                "%s: a directive cannot be read and is left alone: %s %s", self._name, type(error).__name__, error
            )
            return
        if directive.key in self._attempts:
            return  # The bus delivered it again while it is in work here.
        attempt = Attempt(directive)
        self._attempts[directive.key] = attempt
        self._slots_taken += 1
        task = asyncio.create_task(self._handle(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _free_slot(self) -> None:
        self._slots_taken -= 1
        self._slot_freed.set()

    async def _handle(self, attempt: Attempt) -> None:
        directive = attempt.directive
        in_thread: asyncio.Future[dict[str, Any] | None] | None = None
        try:
            answer = await self._send("ACK", directive, {}, ACK_SECONDS_MAX)
            self._heed(attempt, answer)
            if not answer.accepted:
                log.info("%s: not started, ACK answered %s", _label(directive), answer.code)
                return
            in_thread = asyncio.get_running_loop().run_in_executor(self._threads, attempt.work, self._service)
            await self._report(directive, await self._watched(attempt, in_thread))
        except Exception:
            log.exception("%s: a defect of the worker; the lease will run out", _label(directive))
        finally:
            del self._attempts[directive.key]
            # A thread that outlives its time keeps its slot: threads, not tasks, are what is scarce.
            if in_thread is None or in_thread.done():
                self._free_slot()
            else:
                in_thread.add_done_callback(lambda _: self._free_slot())

    async def _watched(
        self, attempt: Attempt, in_thread: asyncio.Future[dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """The RESULT's body, or `None` for no RESULT. Heartbeats go out for as long as this takes."""
        beating = asyncio.create_task(self._keep_alive(attempt))
        try:
            done, _ = await asyncio.wait({in_thread}, timeout=WORK_SECONDS_MAX)
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        if done:
            return in_thread.result()
        attempt.stop(StopReason.STALE)
        return failure_body(StepFailed("WORK_TIMEOUT", f"not done in {WORK_SECONDS_MAX:.0f} s", "RETRYABLE"))

    async def _keep_alive(self, attempt: Attempt) -> None:
        """A heartbeat every third of the lease, and sooner when there is progress to show."""
        third = attempt.directive.lease_seconds / 3
        sent_at, sent_progress = time.monotonic(), 0.0
        while not attempt.stopped:
            await asyncio.sleep(min(PROGRESS_LOOK_SECONDS, third))
            progress, note = attempt.progress, attempt.note
            if time.monotonic() - sent_at < third and progress - sent_progress < PROGRESS_STEP:
                continue
            answer = await self._send("HEARTBEAT", attempt.directive, {"progress": progress, "note": note}, third)
            self._heed(attempt, answer)
            sent_at, sent_progress = time.monotonic(), progress

    async def _report(self, directive: Directive, body: dict[str, Any] | None) -> None:
        if body is None:
            log.info("%s: stopped, the attempt is no longer current", _label(directive))
            return
        answer = await self._send("RESULT", directive, body, RESULT_SECONDS_MAX)
        if not answer.accepted and answer.code not in GIVE_UP | TRY_AGAIN and body["status"] == "SUCCEEDED":
            # The server will not have this result (its artifacts are too large, say). Without another one the step
            # would hang until its lease ends, and then fail in the same way.
            refusal = StepFailed("RESULT_REFUSED", f"the result was refused: {answer.code} {answer.detail}")
            answer = await self._send("RESULT", directive, failure_body(refusal), RESULT_SECONDS_MAX)
        log.info("%s: %s, answered %s", _label(directive), body["status"], answer.code)

    async def _send(self, kind: str, directive: Directive, fields: dict[str, Any], seconds_max: float) -> Answer:
        callback = Callback(kind, {**directive.identity(), **fields}, directive.callback_token)
        return await self._sender.send(callback, seconds_max)

    def _heed(self, attempt: Attempt, answer: Answer) -> None:
        if answer.code in GIVE_UP:
            attempt.stop(StopReason.STALE)
        elif answer.cancel_requested:
            attempt.stop(StopReason.CANCELLED)

    async def _drain(self) -> None:
        """Finish what is in work; what is not done in time is given back, so that another worker need not wait."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
        for attempt in self._attempts.values():
            attempt.stop(StopReason.STOPPING)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GIVE_BACK_SECONDS)


async def _unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T | None:
    """The outcome of `doing`, or `None` as soon as `stop` is set."""
    task = asyncio.ensure_future(doing)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


def _label(directive: Directive) -> str:
    return f"{directive.job_id}/{directive.step_id} attempt {directive.attempt_no}"

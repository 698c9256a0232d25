"""The worker: handles a directive from its arrival to the answered RESULT.

begin (durable) → ACK → work, with heartbeats → finish (durable) → RESULT until it is answered → settle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from lucius.kit.consumer import Capacity
from lucius.kit.health import Health
from lucius.platform.attempt import Attempt, StopReason, stopped_result
from lucius.platform.callback_client import Callbacks
from lucius.platform.directive import AttemptKey, Directive, DirectiveInvalid
from lucius.platform.errors import NonRetryable, Retryable, failure_result
from lucius.platform.file_roots import FileRoots
from lucius.platform.idempotency_store import REPLY_LANE, IdempotencyStore, Owed, Seen, StoreFailed, reply_lane
from lucius.platform.metrics import Metrics
from lucius.platform.orchestrator import GIVE_UP, TRY_AGAIN, Callback, CallbackAnswer
from lucius.platform.remote_files import RemoteFiles
from lucius.platform.settings import name_of
from lucius.platform.sources import Delivery
from lucius.platform.steps import Outcome, Step, StepRunner
from lucius.platform.traces import Traces

ACK_SECONDS_MAX = 900.0
"""Long: an ACK may have been applied although its answer was lost, and then no other replica can have the attempt. If
it was not, the orchestrator's own timeout makes the attempt stale, and it reports that when it is back."""
PROGRESS_LOOK_SECONDS = 0.5
PROGRESS_STEP = 0.1
OWED_MAX = 1_000
"""While this many RESULTs are unanswered, no more directives are taken."""
GIVE_BACK_SECONDS = 3.0
EAGER_ACK_SECONDS = 0.02
"""How long the ACK of an eager step waits for its RESULT, so that both travel together."""
HEARTBEAT_SECONDS_MIN = 0.05
HOST_CHARACTERS_MAX = 80
RESULT_CONTEXT = ("completed_at", "correlation_id", "traceparent")
"""What a RESULT has besides its outcome."""

T = TypeVar("T")

log = logging.getLogger("lucius.platform")


class Worker:
    def __init__(
        self,
        steps: Mapping[str, Step],
        runner: StepRunner,
        store: IdempotencyStore,
        callbacks: Callbacks,
        health: Health,
        metrics: Metrics,
        traces: Traces,
        *,
        concurrency: int,
        work_seconds_max: float,
        files: FileRoots,
        remote: RemoteFiles | None = None,
        instance: str = "",
    ) -> None:
        self._steps = steps
        self._runner = runner
        self._store = store
        self._callbacks = callbacks
        self._health = health
        self._metrics = metrics
        self._traces = traces
        self._work_seconds_max = work_seconds_max
        self._files = files
        self._remote = remote
        self._instance = instance or instance_name()
        """Distinguishes the orchestrator's answers to this replica from those to others."""
        self.slots = Capacity(concurrency)
        self.owed = Capacity(OWED_MAX)
        metrics.watch(lambda: self.slots.taken, lambda: self.owed.taken)
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def take(self, delivery: Delivery) -> None:
        """Start on a delivery; its outcome is recorded, so there is nothing to wait for."""
        try:
            directive = Directive.read(delivery.message)
        except DirectiveInvalid as error:
            self._metrics.directive("unreadable")
            log.error("ignoring a message that is not a directive: %s", error)
            _keep(self._sending, delivery.refuse(f"not a directive: {error}"))
            return
        self.slots.take()
        _keep(self._handling, self._handle(delivery, directive))

    def owe(self, owed: Owed, traceparent: str | None = None) -> None:
        """Send a RESULT until it is answered."""
        self.owed.take()
        _keep(self._sending, self._deliver(owed, traceparent))

    async def drain(self, seconds_max: float) -> None:
        """Finish running work; give back what is not done in time, so that another replica can take it at once."""
        self._health.drains()
        if self._handling:
            await asyncio.wait(self._handling, timeout=seconds_max)
        for attempt in list(self._attempts.values()):
            attempt.stop(StopReason.STOPPING)
        deadline = time.monotonic() + GIVE_BACK_SECONDS
        while (self._handling or self._sending) and time.monotonic() < deadline:
            # Work that is given back ends as a RESULT, so one set fills while the other empties.
            await asyncio.wait({*self._handling, *self._sending}, timeout=deadline - time.monotonic())
        if self._sending:
            log.warning("%d RESULTs are not answered yet; a store on disk keeps them", len(self._sending))
        for task in (*self._handling, *self._sending):
            task.cancel()
        await asyncio.gather(*self._handling, *self._sending, return_exceptions=True)

    async def _handle(self, delivery: Delivery, directive: Directive) -> None:
        work: asyncio.Future[Outcome] | None = None
        try:
            seen = await self._store.begin(directive)
            self._health.store_works()
            self._metrics.directive(seen.lower())
            if seen is Seen.NEW:
                work = await self._attempt(delivery, directive)
            elif seen is Seen.SETTLED and await delivery.claim():
                # Redelivered although it is settled. Where replicas do not remove directives themselves, an ACK makes
                # the orchestrator do so.
                await self._send("ACK", directive, self._acked(), ACK_SECONDS_MAX)
                await delivery.complete()
        except StoreFailed as error:
            self._health.store_failed(str(error))
            log.error("%s: not started, because it could not be recorded: %s", directive.label, error)
            await delivery.abandon()
        except Exception:
            log.exception("%s: a bug in the platform kit; the lease will expire", directive.label)
        finally:
            # A thread that outlives its attempt keeps its slot: threads, not tasks, are the scarce resource.
            if work is None or work.done():
                self.slots.give_back()
            else:
                work.add_done_callback(lambda _: self.slots.give_back())

    async def _attempt(self, delivery: Delivery, directive: Directive) -> asyncio.Future[Outcome] | None:
        """One attempt from its ACK to its recorded RESULT; returns the work's future, which may outlive it."""
        attempt = self._attempts[directive.key] = Attempt(directive, self._files, self._remote)
        step = self._steps.get(directive.step_type)
        work: asyncio.Future[Outcome] | None = None
        acking: asyncio.Task[bool] | None = None
        try:
            with self._traces.attempt(directive) as span:
                ack = self._ack(delivery, attempt, span.traceparent)
                with_result: asyncio.Future[None] | None = None
                if step is not None and step.eager:
                    with_result = asyncio.get_running_loop().create_future()
                    acking = asyncio.create_task(_within(EAGER_ACK_SECONDS, with_result, ack))
                elif not await ack:
                    return None
                started = time.monotonic()
                if step is None:
                    known = ", ".join(sorted(self._steps))
                    detail = f"this service has no step {directive.step_type}; it has {known}"
                    result: Outcome = failure_result(NonRetryable("STEP_TYPE_UNKNOWN", detail))
                else:
                    work = self._runner.start(step, attempt)
                    result = await self._watched(attempt, work, span.traceparent, step)
                outcome = _outcome_of(result)
                span.ended(outcome)
                self._metrics.attempt(directive.step_type, outcome, time.monotonic() - started)
                owed = await self._conclude(directive, result, span.traceparent)
                if with_result is not None and acking is not None:
                    if with_result.done():
                        await acking  # It has left alone; its RESULT must not overtake it.
                    _set(with_result)
                if owed is not None:
                    self.owe(owed, span.traceparent)
            if acking is not None:
                await acking
        finally:
            if acking is not None:
                acking.cancel()
            del self._attempts[directive.key]
        return work

    async def _ack(self, delivery: Delivery, attempt: Attempt, traceparent: str | None) -> bool:
        """Whether this replica may work on the attempt."""
        directive = attempt.directive
        if not await delivery.claim():
            log.warning("%s: not started, its lock ran out before it could be taken", directive.label)
            attempt.stop(StopReason.STALE)
            await self._store.drop(directive.key)
            return False
        answer = await self._send("ACK", directive, self._acked(), ACK_SECONDS_MAX, traceparent)
        self._obey(attempt, answer)
        if answer.code == "DUPLICATE" and answer.tries == 1:
            # Another replica, with another store, has acknowledged this attempt and works on it.
            log.info("%s: left to the replica that has acknowledged it", directive.label)
            attempt.stop(StopReason.STALE)
        elif answer.accepted:
            await delivery.complete()
            return True
        elif answer.code in TRY_AGAIN:
            log.warning("%s: not started, ACK not answered: %s %s", directive.label, answer.code, answer.detail)
            if not (step := self._steps.get(directive.step_type)) or not step.eager:
                await self._store.drop(directive.key)
            await delivery.abandon()
            return False
        else:
            log.info("%s: not started, ACK answered %s %s", directive.label, answer.code, answer.detail)
            attempt.stop(StopReason.STALE)
        await self._store.settle(directive.key)
        await delivery.complete()
        return False

    def _acked(self) -> dict[str, Any]:
        return {"status": "ACKED", "acked_at": _now(), "acked_by": self._instance}

    async def _watched(
        self, attempt: Attempt, work: asyncio.Future[Outcome], traceparent: str | None, step: Step
    ) -> Outcome:
        """The work's outcome, or that of stopping it. Sends heartbeats meanwhile, but not beyond the step's time."""
        seconds_max = min(self._work_seconds_max, step.timeout or self._work_seconds_max)
        loop, started = asyncio.get_running_loop(), time.monotonic()
        changed: asyncio.Future[None] = loop.create_future()
        work.add_done_callback(lambda _: _set(changed))
        attempt.when_stopped(lambda: _set_in(loop, changed))
        beating: list[asyncio.Task[None]] = []
        timers: list[asyncio.TimerHandle] = []

        def begin_beating() -> None:
            beating.append(loop.create_task(self._keep_alive(attempt, traceparent, started)))
            timers.append(loop.call_later(max(0.0, started + seconds_max - time.monotonic()), _set, changed))

        # Most work has ended before the first look, and needs neither heartbeats nor the end of its time.
        beats_after = min(PROGRESS_LOOK_SECONDS, _heartbeat_seconds(attempt))
        begin = begin_beating if beats_after < seconds_max else partial(_set, changed)
        timers.append(loop.call_later(min(beats_after, seconds_max), begin))
        try:
            await changed
            if not work.done() and attempt.stopped is StopReason.CANCELLED:
                # It may finish; a RESULT must report how it ended.
                await asyncio.wait({work}, timeout=max(0.0, started + seconds_max - time.monotonic()))
        finally:
            for timer in timers:
                timer.cancel()
            for task in beating:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not work.done() and attempt.stopped in (None, StopReason.CANCELLED):
            attempt.stop(StopReason.STALE)
            limit = "its timeout" if seconds_max == step.timeout else name_of("work_seconds_max")
            text = f"{step.step_type} was not done within the {seconds_max:g} s that {limit} allows"
            return failure_result(Retryable("WORK_TIMEOUT", text))
        if attempt.stopped is StopReason.STALE or not work.done():
            return stopped_result(attempt)
        error = work.exception()
        return work.result() if error is None else failure_result(Retryable("SERVICE_DEFECT", str(error)))

    async def _keep_alive(self, attempt: Attempt, traceparent: str | None, started: float) -> None:
        """A heartbeat every third of the lease, and sooner to report progress."""
        third = _heartbeat_seconds(attempt)
        sent_at, sent_progress = started, 0.0
        while attempt.stopped is not StopReason.STALE:
            progress, note = attempt.progress, attempt.note
            if time.monotonic() - sent_at >= third or progress - sent_progress >= PROGRESS_STEP:
                body = {"progress": progress, "note": note, "sent_at": _now()}
                answer = await self._send("HEARTBEAT", attempt.directive, body, third, traceparent)
                self._obey(attempt, answer)
                if not answer.accepted:
                    log.warning("%s: HEARTBEAT answered %s %s", attempt.directive.label, answer.code, answer.detail)
                sent_at, sent_progress = time.monotonic(), progress
            await asyncio.sleep(min(PROGRESS_LOOK_SECONDS, third))

    async def _conclude(self, directive: Directive, result: Outcome, traceparent: str | None) -> Owed | None:
        """Record the RESULT; returns it unless none is wanted."""
        if result is None:
            log.info("%s: stopped, the attempt is no longer current", directive.label)
            await self._store.settle(directive.key)
            return None
        if "error" in result:
            result["error"]["instance"] = self._instance
        result |= {"completed_at": _now(), **directive.context(traceparent), **reply_lane(directive)}
        try:
            await self._store.finish(directive, result)
        except StoreFailed as error:
            # The RESULT matters more than its record: send it anyway; only a crash could lose it now.
            self._health.store_failed(str(error))
            log.error("%s: the RESULT could not be recorded: %s", directive.label, error)
        return Owed(directive.key, directive.tenant_id, directive.callback_token, result)

    async def _deliver(self, owed: Owed, traceparent: str | None) -> None:
        label = f"{owed.key.job_id}/{owed.key.step_id} attempt {owed.key.attempt_no}"
        try:
            answer = await self._callbacks.send(_result_callback(owed, owed.result, traceparent))
            if not answer.accepted and answer.code not in GIVE_UP and owed.result["status"] == "SUCCEEDED":
                # The server rejects this result (its artifacts are too large, say). Without another one the step would
                # hang until its lease ends, and then fail in the same way.
                refusal = NonRetryable("RESULT_REFUSED", f"the result was refused: {answer.code} {answer.detail}")
                kept = {name: owed.result[name] for name in RESULT_CONTEXT if name in owed.result}
                failed = {**failure_result(refusal), **kept}
                answer = await self._callbacks.send(_result_callback(owed, failed, traceparent))
            level = logging.INFO if answer.accepted or answer.code in GIVE_UP else logging.ERROR
            if log.isEnabledFor(level):
                answered = f"{answer.code} {answer.detail}".rstrip()
                log.log(level, "%s: %s, answered %s", label, _outcome_text(owed.result), answered)
            await self._store.settle(owed.key)
        except StoreFailed as error:
            log.warning("%s: answered, which could not be recorded: %s", label, error)
        except Exception:
            log.exception("%s: a bug in the platform kit while sending the RESULT", label)
        finally:
            self.owed.give_back()

    async def _send(
        self,
        kind: str,
        directive: Directive,
        fields: dict[str, Any],
        seconds_max: float,
        traceparent: str | None = None,
    ) -> CallbackAnswer:
        body = {**directive.identity(), **fields, **directive.context(traceparent)}
        callback = Callback(kind, body, directive.callback_token, traceparent, directive.lane or 0)
        return await self._callbacks.send(callback, seconds_max)

    def _obey(self, attempt: Attempt, answer: CallbackAnswer) -> None:
        if answer.code in GIVE_UP:
            attempt.stop(StopReason.STALE)
        elif answer.cancel_requested:
            attempt.stop(StopReason.CANCELLED)


def _now() -> str:
    return f"{datetime.now(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def instance_name() -> str:
    """Host and process for people, and a random part, for process ids are used again."""
    return f"{socket.gethostname()[:HOST_CHARACTERS_MAX]}.{os.getpid()}.{uuid.uuid4().hex[:12]}"


def _result_callback(owed: Owed, result: dict[str, Any], traceparent: str | None) -> Callback:
    sent = {name: value for name, value in result.items() if name != REPLY_LANE}
    return Callback("RESULT", {**owed.identity, **sent}, owed.token, traceparent, owed.lane)


def _outcome_of(result: Outcome) -> str:
    """One word for logs and metrics: `SUCCEEDED`, a failure class, or `STOPPED`."""
    return "STOPPED" if result is None else str(result.get("failure_class") or result["status"])


def _outcome_text(result: dict[str, Any]) -> str:
    """The outcome for the log, with the reason of a failure."""
    error = result.get("error")
    if not isinstance(error, dict):
        return _outcome_of(result)
    why = f"{error.get('code')}: {error.get('message')}"
    return f"{_outcome_of(result)} ({' '.join(why.split())})"


def _heartbeat_seconds(attempt: Attempt) -> float:
    return max(HEARTBEAT_SECONDS_MIN, attempt.directive.lease_seconds / 3)


async def _within(seconds: float, event: asyncio.Future[None], then: Coroutine[Any, Any, T]) -> T:
    """Waits for the event, but not longer than that."""
    expiry = asyncio.get_running_loop().call_later(seconds, _set, event)
    try:
        await event
    except BaseException:
        then.close()
        raise
    finally:
        expiry.cancel()
    return await then


def _set(event: asyncio.Future[None]) -> None:
    if not event.done():
        event.set_result(None)


def _set_in(loop: asyncio.AbstractEventLoop, event: asyncio.Future[None]) -> None:
    """From any thread."""
    with suppress(RuntimeError):  # The loop has closed, and nothing waits any more.
        loop.call_soon_threadsafe(_set, event)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)

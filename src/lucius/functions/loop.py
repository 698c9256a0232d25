"""The worker's loop: takes jobs while there is room, keeps their locks while they run, and drains when told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lucius.functions.errors import message_of
from lucius.functions.function import Function
from lucius.functions.job import Job, JobInvalid, failure
from lucius.functions.outbox import Outbox
from lucius.functions.run import Run
from lucius.functions.settings import WorkerSettings
from lucius.functions.source import JobSource, SourceFailed, backoff_seconds

RENEWED_MAX = 256
"""How many locks are extended in one call."""
SEND_SECONDS_MIN = 5.0
"""Results have at least so long to leave after the drain, whatever the functions have used of it."""
EMPTY_PULL_SECONDS = 0.1
SAME_FAILURE_SECONDS = 60.0
"""A failure that stays the same is told again so often."""

log = logging.getLogger("lucius.functions")


class Loop:
    def __init__(self, functions: Mapping[str, Function], source: JobSource, settings: WorkerSettings) -> None:
        self._functions = functions
        self._source = source
        self._settings = settings
        is_quick = all(one.quick for one in functions.values())
        self._running_max = settings.pull_max if is_quick else settings.concurrency
        self._held_since: dict[str, float] = {}
        """Jobs that run or whose result is unsent: they are renewed, and not taken a second time."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._outbox = Outbox(source, settings.results_max, self._settled)
        self._room_made = asyncio.Event()
        self._told: tuple[str, float] = ("", 0.0)

    async def run(self, stop: asyncio.Event) -> list[str]:
        """Work until `stop` is set, then drain. Gives the ids of jobs that were left unfinished or unanswered."""
        sending = asyncio.create_task(self._outbox.send_forever())
        renewing = asyncio.create_task(self._renew_forever())
        pulling = asyncio.create_task(self._pull_forever())
        stopping = asyncio.create_task(stop.wait())
        try:
            # The others end only by a defect, which must not go unseen while the worker stands still.
            ended, _ = await asyncio.wait((sending, renewing, pulling, stopping), return_when=asyncio.FIRST_COMPLETED)
            pulling.cancel()
            await self._drain()
            for one in ended:
                one.result()
        finally:
            rest = (sending, renewing, pulling, stopping, *self._running.values())
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        return list(self._held_since)

    def _room(self) -> int:
        if len(self._outbox) >= self._settings.unsent_max:
            return 0
        return min(self._settings.pull_max, self._running_max - len(self._running))

    async def _pull_forever(self) -> None:
        failures = 0
        while True:
            while (room := self._room()) < 1:
                self._room_made.clear()
                await self._room_made.wait()
            started_at = time.monotonic()
            try:
                messages = await self._source.pull(room, self._settings.wait_seconds)
            except Exception as error:
                self._tell_of(error)
                asked = error.retry_after_seconds if isinstance(error, SourceFailed) else None
                await asyncio.sleep(backoff_seconds(failures, asked))
                failures += 1
                continue
            if failures:
                log.info("jobs can be pulled again")
                failures, self._told = 0, ("", 0.0)
            for message in messages:
                self._take(message)
            if not messages and time.monotonic() - started_at < EMPTY_PULL_SECONDS:
                # A server that does not hold the call open must not be asked without end.
                await asyncio.sleep(EMPTY_PULL_SECONDS)

    def _tell_of(self, error: Exception) -> None:
        text, at = str(error), time.monotonic()
        if text == self._told[0] and at - self._told[1] < SAME_FAILURE_SECONDS:
            return
        self._told = (text, at)
        if isinstance(error, SourceFailed):
            log.error("no jobs can be pulled, trying again: %s", text)
        else:
            log.error("no jobs can be pulled: a defect of the source; trying again", exc_info=error)

    def _take(self, message: Any) -> None:
        try:
            job = Job.read(message)
        except JobInvalid as error:
            log.error("a message is not a job: %s", message_of(error))
            if error.job_id is not None and error.job_id not in self._held_since:
                self._held_since[error.job_id] = time.monotonic()
                self._outbox.add(failure(error.job_id, error.correlation_data, error, 0, 1))
            return
        if job.job_id in self._held_since:
            log.info("%s: delivered again while it is in work here; not run a second time", job.job_id)
            return
        self._held_since[job.job_id] = time.monotonic()
        run = Run(
            job,
            self._functions,
            throttle_tries=self._settings.throttle_tries,
            throttle_base_seconds=self._settings.throttle_base_seconds,
        )
        result = run.at_once()
        if result is not None:
            self._outbox.add(result)
        else:
            self._running[job.job_id] = asyncio.create_task(self._finish(job.job_id, run))

    async def _finish(self, job_id: str, run: Run) -> None:
        try:
            self._outbox.add(await run.result())
        except Exception:
            del self._held_since[job_id]
            log.exception("%s: a defect of the function worker; the job's lock will run out", job_id)
        finally:
            del self._running[job_id]
            self._room_made.set()

    def _settled(self, job_id: str) -> None:
        del self._held_since[job_id]
        self._room_made.set()

    async def _renew_forever(self) -> None:
        every = wait_seconds = self._settings.renew_seconds
        while True:
            await asyncio.sleep(wait_seconds)
            before = time.monotonic() - every / 2
            held = [job_id for job_id, since in self._held_since.items() if since <= before]
            calls = [held[start : start + RENEWED_MAX] for start in range(0, len(held), RENEWED_MAX)]
            renewed = [await self._renew(job_ids) for job_ids in calls]
            wait_seconds = every if all(renewed) else every / 4

    async def _renew(self, job_ids: list[str]) -> bool:
        try:
            renewed = await self._source.renew(job_ids)
        except SourceFailed as error:
            log.warning("the locks of %d jobs are not extended: %s", len(job_ids), error)
            return False
        except Exception:
            log.exception("the locks of %d jobs are not extended: a defect of the source", len(job_ids))
            return False
        for job_id, is_ours in zip(job_ids, renewed, strict=False):
            if not is_ours and job_id in self._running:
                log.warning("%s: the lock is lost; it goes on, and another worker may run it as well", job_id)
        return True

    async def _drain(self) -> None:
        deadline = time.monotonic() + self._settings.drain_seconds
        if self._running:
            log.info("draining: %d jobs still run", len(self._running))
            await asyncio.wait(self._running.values(), timeout=self._settings.drain_seconds)
        for job_id, task in list(self._running.items()):
            log.warning("%s: not done in %g s; its lock runs out", job_id, self._settings.drain_seconds)
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(SEND_SECONDS_MIN, deadline - time.monotonic())):
                await self._outbox.emptied()
        if len(self._outbox):
            log.error("%d results could not be sent; their jobs will be run again", len(self._outbox))

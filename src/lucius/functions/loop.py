"""The worker's loop: pulls jobs while there is capacity, renews their locks while they run, and drains on stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lucius.functions.errors import message_of
from lucius.functions.function import Function
from lucius.functions.job import Job, JobInvalid, Result, failure, outcome_of
from lucius.functions.metrics import Metrics
from lucius.functions.outbox import Outbox
from lucius.functions.run import Run
from lucius.functions.settings import WorkerSettings
from lucius.functions.source import JobSource, SourceFailed
from lucius.kit.consumer import Consumer
from lucius.kit.health import Health

RENEWED_MAX = 256
"""How many locks are renewed in one call."""
SEND_SECONDS_MIN = 5.0
"""Minimum time to send results after the drain, however long the functions took."""

log = logging.getLogger("lucius.functions")


class Loop:
    def __init__(
        self,
        worker_id: str,
        functions: Mapping[str, Function],
        source: JobSource,
        settings: WorkerSettings,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._functions = functions
        self._source = source
        self._settings = settings
        self._health = health
        self._metrics = metrics
        is_quick = all(one.quick for one in functions.values())
        self._running_max = settings.pull_max if is_quick else settings.concurrency
        self._held_since: dict[str, float] = {}
        """Jobs that are running or whose result is unsent: their locks are renewed, and redeliveries are ignored."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._outbox = Outbox(source, settings.results_max, self._settled, metrics)
        self._capacity_freed = asyncio.Event()
        # With a health port, the first pull returns at once and shows whether the server is reachable.
        self._may_wait = not settings.health_port
        self._consumer = Consumer(worker_id, "jobs", self._pull, (self,), self._take, health, log)

    async def run(self, stop: asyncio.Event) -> list[str]:
        """Work until `stop` is set, then drain. Returns the ids of jobs that were left unfinished or unanswered."""
        sending = asyncio.create_task(self._outbox.send_forever())
        renewing = asyncio.create_task(self._renew_forever())
        pulling = asyncio.create_task(self._consumer.run(stop))
        try:
            # Pulling ends when `stop` is set; the other tasks end only by a bug, which must be reported.
            ended, _ = await asyncio.wait((sending, renewing, pulling), return_when=asyncio.FIRST_COMPLETED)
            pulling.cancel()
            await self._drain()
            for one in ended:
                one.result()
        finally:
            rest = (sending, renewing, pulling, *self._running.values())
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        return list(self._held_since)

    @property
    def free(self) -> int:
        if len(self._outbox) >= self._settings.unsent_max:
            return 0
        return min(self._settings.pull_max, self._running_max - len(self._running))

    async def wait(self) -> None:
        while self.free < 1:
            self._capacity_freed.clear()
            await self._capacity_freed.wait()

    async def _pull(self, count_max: int) -> list[Any]:
        # A pull that does not wait is answered even by a server that cannot hold more calls open.
        wait_seconds, self._may_wait = self._settings.wait_seconds if self._may_wait else 0.0, False
        jobs = await self._source.pull(count_max, wait_seconds)
        self._may_wait = True
        return jobs

    def _take(self, message: Any) -> None:
        try:
            job = Job.read(message)
        except JobInvalid as error:
            log.error("a message is not a job: %s", message_of(error))
            if error.job_id is not None and error.job_id not in self._held_since:
                self._held_since[error.job_id] = time.monotonic()
                self._ended("", failure(error.job_id, error.correlation_data, error, 0, 1))
            return
        if job.job_id in self._held_since:
            log.info("%s: redelivered while it is running here; ignored", job.job_id)
            return
        self._held_since[job.job_id] = time.monotonic()
        run = Run(
            job,
            self._functions,
            throttle_tries=self._settings.throttle_tries,
            throttle_base_seconds=self._settings.throttle_base_seconds,
        )
        result = run.result_without_waiting()
        if result is not None:
            self._ended(job.function_name, result)
        else:
            self._running[job.job_id] = asyncio.create_task(self._finish(job, run))
            self._metrics.in_work(len(self._running))

    def _ended(self, function: str, result: Result) -> None:
        self._metrics.job(function, outcome_of(result), result["durationMs"] / 1_000)
        self._outbox.add(result)

    async def _finish(self, job: Job, run: Run) -> None:
        job_id = job.job_id
        try:
            self._ended(job.function_name, await run.result())
        except Exception:
            del self._held_since[job_id]
            log.exception("%s: a bug in the function worker; the job's lock will expire", job_id)
        finally:
            del self._running[job_id]
            self._metrics.in_work(len(self._running))
            self._capacity_freed.set()

    def _settled(self, job_id: str) -> None:
        del self._held_since[job_id]
        self._capacity_freed.set()

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
            log.warning("could not renew the locks of %d jobs: %s", len(job_ids), error)
            return False
        except Exception:
            log.exception("could not renew the locks of %d jobs: a bug in the source", len(job_ids))
            return False
        for job_id, is_ours in zip(job_ids, renewed, strict=False):
            if not is_ours and job_id in self._running:
                log.warning("%s: lost the lock; the job continues, and another worker may also run it", job_id)
        return True

    async def _drain(self) -> None:
        self._health.drains()
        deadline = time.monotonic() + self._settings.drain_seconds
        if self._running:
            log.info("draining: %d jobs still running", len(self._running))
            await asyncio.wait(self._running.values(), timeout=self._settings.drain_seconds)
        for job_id, task in list(self._running.items()):
            log.warning("%s: not done in %g s; its lock will expire", job_id, self._settings.drain_seconds)
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(SEND_SECONDS_MIN, deadline - time.monotonic())):
                await self._outbox.emptied()
        if len(self._outbox):
            log.error("%d results could not be sent; their jobs will be run again", len(self._outbox))

"""A function worker: a worker id, and the functions that runbooks call by name."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from lucius.client.calls import services
from lucius.functions.bus_source import BusSource
from lucius.functions.function import Function
from lucius.functions.job import Job, Result
from lucius.functions.loop import Loop
from lucius.functions.metrics import Metrics
from lucius.functions.run import Run
from lucius.functions.settings import BUS_VARIABLE, HEALTH_PORT_VARIABLE, WorkerSettings, read_settings
from lucius.functions.source import HttpSource, JobSource, open_transport
from lucius.kit.brokers import open_broker
from lucius.kit.errors import ServiceUnusable
from lucius.kit.health import Health, HealthServer
from lucius.kit.identity import Identity
from lucius.kit.presence import reporting
from lucius.kit.process import quiet_http_log, run_process

_WORKER_ID = re.compile(r"[!-~]{1,128}")

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("lucius.functions")


class FunctionWorker:
    """Runs the functions of runbook steps with this `worker_id`."""

    def __init__(self, worker_id: str) -> None:
        if not _WORKER_ID.fullmatch(worker_id):
            raise ValueError(f"{worker_id!r} is not a worker id: 1 to 128 visible ASCII characters")
        self.worker_id = worker_id
        self.functions: dict[str, Function] = {}
        self._calls = itertools.count(1)

    def function(self, name: str, *, quick: bool = False) -> Callable[[F], F]:
        """Register a function, sync or async, for jobs of this name, called with their parameters as keyword arguments.

        It returns a JSON value; the fields of a dict can be output parameters. An async function runs in the worker's
        event loop and must not block it; a sync one runs in a thread. A sync function that is `quick` runs in the event
        loop: for work of at most a millisecond that never waits.
        """

        def decorate(function: F) -> F:
            if name in self.functions:
                raise ValueError(f"the worker {self.worker_id} already has a function {name}")
            self.functions[name] = Function(name, function, quick=quick)
            return function

        return decorate

    async def call(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        settings: WorkerSettings | None = None,
        **job_fields: Any,
    ) -> Result:
        """The result of one job, as it would be sent: for tests. `job_fields` are those of `Job`, such as `job_id`."""
        settings = settings or WorkerSettings()
        fields: dict[str, Any] = {"job_id": f"call-{next(self._calls)}-a1", "worker_id": self.worker_id} | job_fields
        run = Run(
            Job(function_name=name, parameters=parameters or {}, **fields),
            self.functions,
            throttle_tries=settings.throttle_tries,
            throttle_base_seconds=settings.throttle_base_seconds,
        )
        return run.result_without_waiting() or await run.result()

    def run(self, **settings: Any) -> None:
        """Work until SIGTERM or SIGINT, then finish running jobs; ends the process if it cannot start."""

        async def main(stop: asyncio.Event) -> None:
            if await self.serve(stop, read_settings(**settings)):
                # Unfinished work may be in a thread that Python would wait for forever.
                logging.shutdown()
                os._exit(0)

        run_process(self.worker_id, main)

    async def serve(
        self,
        stop: asyncio.Event | None = None,
        settings: WorkerSettings | None = None,
        *,
        source: JobSource | None = None,
    ) -> list[str]:
        """Work until `stop` is set, in the caller's event loop. Returns the ids of jobs that were unfinished or
        unanswered when the drain timed out. Raises `ServiceUnusable`."""
        if not self.functions:
            raise ServiceUnusable("the worker has no function; decorate one with @worker.function(...)")
        settings = settings or read_settings()
        quiet_http_log()
        health, metrics = Health(), Metrics(self.worker_id, self.functions)
        async with AsyncExitStack() as stack:
            if source is None and settings.bus:
                bus = await stack.enter_async_context(open_broker(settings.bus, BUS_VARIABLE))
                source = await stack.enter_async_context(BusSource(self.worker_id, bus))
                log.info("%s: jobs from %s", self.worker_id, bus.location)
            elif source is None:
                source = await stack.enter_async_context(HttpSource(self.worker_id, settings))
                log.info("%s: jobs from %s", self.worker_id, settings.url)
            if isinstance(source, BusSource) and not source.tells:
                await stack.enter_async_context(self._told(source, settings))
            log.info("%s: functions: %s", self.worker_id, ", ".join(sorted(self.functions)))
            if settings.health_port:
                served = (settings.health_host, settings.health_port, health, metrics.render, HEALTH_PORT_VARIABLE)
                stack.enter_context(HealthServer(*served))
            beating = asyncio.create_task(health.beat_forever())
            stack.callback(beating.cancel)
            loop = Loop(self.worker_id, self.functions, source, settings, health, metrics)
            return await loop.run(stop or asyncio.Event())

    @asynccontextmanager
    async def _told(self, source: BusSource, settings: WorkerSettings) -> AsyncIterator[None]:
        """The server is told that the worker is there."""
        identity = Identity(settings.version)
        identity.in_work = lambda: source.in_work
        transport = open_transport(settings, identity)
        try:
            async with reporting(self.worker_id, transport.send, services.report_worker(self.worker_id), log):
                yield
        finally:
            await transport.close()

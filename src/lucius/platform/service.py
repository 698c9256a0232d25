"""A platform service: a name, and a function for each type of step."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from lucius.platform.callback_client import CallbackClient
from lucius.platform.consumer import Consumer
from lucius.platform.errors import ServiceUnusable
from lucius.platform.file_rules import file_rules
from lucius.platform.health import BEAT_SECONDS, Health, HealthServer
from lucius.platform.idempotency_store import IdempotencyStore, MemoryStore
from lucius.platform.metrics import Metrics
from lucius.platform.orchestrator import Orchestrator, open_client
from lucius.platform.settings import PlatformSettings, key_now, read_settings
from lucius.platform.sources import open_source
from lucius.platform.sqlite_store import SqliteStore
from lucius.platform.steps import Step, StepRunner
from lucius.platform.traces import open_traces
from lucius.platform.worker import Worker
from lucius.platform.workspace_store import WorkspaceStore

EXIT_UNUSABLE = 2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("lucius.platform")


class PlatformService:
    """Serves the steps that protocols give to the service of this name.

    service = PlatformService("ocr")

    @service.step("OCR")
    async def ocr(directive, workspace): ...
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name for a service: 1 to 64 letters, digits, '.', '_' or '-'")
        self.name = name
        self.steps: dict[str, Step] = {}

    def step(self, step_type: str, *, eager: bool = False) -> Callable[[F], F]:
        """Make a function, sync or async, the one that does this type of step.

        It is called with the directive and the workspace, and with the attempt if it takes a third argument. It returns
        artifacts (a dict), a `Result`, or nothing. An `eager` step starts while its ACK is still on its way, so that
        ACK and RESULT of quick work travel together; it may then run for an attempt that is no longer current.
        """

        def decorate(function: F) -> F:
            if step_type in self.steps:
                raise ValueError(f"the service {self.name} has a step {step_type} already")
            self.steps[step_type] = Step.of(step_type, function, eager)
            return function

        return decorate

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then finish what is in work; ends the process if it cannot start."""
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        try:
            asyncio.run(self._run_until_signal())
        except ServiceUnusable as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            sys.exit(EXIT_UNUSABLE)

    async def _run_until_signal(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def asked() -> None:
            if stop.is_set():
                os._exit(130)  # Asked twice: somebody is in a hurry. The store is safe at any moment.
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked)
        await self.serve(stop)

    async def serve(self, stop: asyncio.Event | None = None, settings: PlatformSettings | None = None) -> None:
        """Serve until `stop` is set, inside an event loop of one's own. Raises `ServiceUnusable`."""
        if not self.steps:
            raise ServiceUnusable("the service has no step; decorate a function with @service.step(...)")
        settings = settings or read_settings()
        stop = stop or asyncio.Event()
        # The client's own line for every request would bury the log under long polls.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        health, metrics = Health(), Metrics(self.name)
        async with AsyncExitStack() as stack:
            traces = open_traces(self.name, settings.otlp_endpoint)
            stack.callback(traces.close)
            store = open_store(settings, self.name)
            owed = await store.open()
            stack.push_async_callback(store.close)
            runner = StepRunner(settings.rehearsing)
            stack.callback(runner.close)
            client = await stack.enter_async_context(open_client(settings))
            orchestrator = Orchestrator(client, settings.api_key, lambda: key_now(settings))
            source = open_source(settings.orchestrator_url, orchestrator, self.name)
            if settings.health_port:
                stack.enter_context(HealthServer(settings.health_host, settings.health_port, health, metrics.render))
            callbacks = CallbackClient(orchestrator, settings.batch_max, metrics.callback)
            await stack.enter_async_context(callbacks.running())
            beating = asyncio.create_task(_beat(health))
            stack.callback(beating.cancel)
            worker = Worker(
                self.steps,
                runner,
                store,
                callbacks,
                health,
                metrics,
                traces,
                concurrency=settings.concurrency,
                work_seconds_max=settings.work_seconds_max,
                rules=file_rules(settings.file_roots, settings.state, settings.data),
            )
            log.info("%s serves %s from %s", self.name, ", ".join(sorted(self.steps)), settings.orchestrator_url)
            for one in owed:
                worker.owe(one)
            try:
                await Consumer(self.name, source, (worker.slots, worker.owed), worker.take, health).run(stop)
            finally:
                await worker.drain(settings.drain_seconds)


def open_store(settings: PlatformSettings, service: str) -> IdempotencyStore:
    folder = Path(settings.state) / service
    if settings.store == "memory":
        return MemoryStore()
    return WorkspaceStore(folder) if settings.store == "workspace" else SqliteStore(folder)


async def _beat(health: Health) -> None:
    while True:
        health.beat()
        await asyncio.sleep(BEAT_SECONDS)

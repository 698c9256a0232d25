"""A platform service: a name, and a function for each step type."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from lucius.client.calls import services
from lucius.kit.brokers import check_bus_url, open_broker
from lucius.kit.bus import KitBus
from lucius.kit.consumer import Consumer
from lucius.kit.health import Health, HealthServer
from lucius.kit.identity import Identity
from lucius.kit.presence import reporting
from lucius.kit.process import quiet_http_log, run_process
from lucius.platform.bus_callbacks import BusCallbacks, BusChannel
from lucius.platform.bus_source import BusSource
from lucius.platform.callback_client import CallbackClient
from lucius.platform.errors import ServiceUnusable
from lucius.platform.file_roots import read_file_roots
from lucius.platform.idempotency_store import IdempotencyStore, MemoryStore
from lucius.platform.metrics import Metrics
from lucius.platform.orchestrator import Orchestrator, open_transport
from lucius.platform.remote_files import RemoteFiles, open_remote_files
from lucius.platform.settings import PlatformSettings, name_of, read_settings
from lucius.platform.sources import HttpSource, Source
from lucius.platform.sqlite_store import SqliteStore
from lucius.platform.steps import Step, StepRunner
from lucius.platform.traces import open_traces
from lucius.platform.worker import Worker
from lucius.platform.workspace_store import WorkspaceStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("lucius.platform")


class PlatformService:
    """Serves the steps that protocols assign to the service of this name.

    service = PlatformService("ocr")

    @service.step("OCR")
    async def ocr(directive, workspace): ...
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name for a service: 1 to 64 letters, digits, '.', '_' or '-'")
        self.name = name
        self.steps: dict[str, Step] = {}

    def step(self, step_type: str, *, timeout: float | None = None, eager: bool = False) -> Callable[[F], F]:
        """Register a function, sync or async, for this step type.

        It is called with the directive and the workspace, and with the attempt if it takes a third argument. It returns
        artifacts (a dict), a `Result`, or None. `timeout` is how many seconds one call may take: after that, no more
        heartbeats are sent and the attempt is reported as failed, so that another one may begin. An `eager` step starts
        while its ACK is still being sent, so that ACK and RESULT of quick work travel together; it may then run for an
        attempt that is no longer current.
        """

        def decorate(function: F) -> F:
            if step_type in self.steps:
                raise ValueError(f"the service {self.name} already has a step {step_type}")
            self.steps[step_type] = Step.of(step_type, function, eager, timeout)
            return function

        return decorate

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then finish running work; exits the process if it cannot start."""
        run_process(self.name, self.serve)

    async def serve(
        self,
        stop: asyncio.Event | None = None,
        settings: PlatformSettings | None = None,
        *,
        bus: KitBus | None = None,
        remote: RemoteFiles | None = None,
    ) -> None:
        """Serve until `stop` is set, in the caller's event loop. `bus` and `remote` are used instead of those that the
        settings name. Raises `ServiceUnusable`."""
        if not self.steps:
            raise ServiceUnusable("the service has no step; decorate a function with @service.step(...)")
        settings = settings or read_settings()
        stop = stop or asyncio.Event()
        _check_bus(settings, bus)
        files = read_file_roots(settings.file_roots, settings.data, [settings.state])
        quiet_http_log()
        health, metrics = Health(has_store=True), Metrics(self.name)
        async with AsyncExitStack() as stack:
            traces = open_traces(self.name, settings.otlp_endpoint)
            stack.callback(traces.close)
            remote = remote or stack.enter_context(open_remote_files(settings))
            store = open_store(settings, self.name, remote)
            owed = await store.open()
            stack.push_async_callback(store.close)
            runner = StepRunner(settings.rehearsing, settings.error_frames)
            stack.callback(runner.close)
            identity = Identity(settings.version)
            transport = open_transport(settings, identity)
            stack.push_async_callback(transport.close)
            orchestrator = Orchestrator(transport)
            if bus is None and settings.bus:
                bus = await stack.enter_async_context(open_broker(settings.bus, name_of("bus")))
            source: Source = HttpSource(orchestrator, self.name)
            callbacks: CallbackClient | BusCallbacks
            callbacks = over_http = CallbackClient(orchestrator, settings.batch_max, metrics.callback)
            if bus is not None:
                answers_there = settings.callbacks == "bus"
                source = BusSource(bus, self.name, settings.lock_seconds, claims=answers_there)
                if answers_there:
                    over_bus = CallbackClient(BusChannel(bus, self.name), settings.batch_max, metrics.callback)
                    callbacks = BusCallbacks(over_bus, over_http)
            if settings.health_port:
                served = (settings.health_host, settings.health_port, health, metrics.render, name_of("health_port"))
                stack.enter_context(HealthServer(*served))
            await stack.enter_async_context(callbacks.running())
            beating = asyncio.create_task(health.beat_forever())
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
                files=files,
                remote=remote,
                instance=identity.instance,
            )
            identity.in_work = lambda: worker.slots.taken
            if bus is not None:
                report = services.report_service(self.name)
                await stack.enter_async_context(reporting(self.name, transport.send, report, log))
            place = settings.orchestrator_url if bus is None else bus.location
            log.info("%s serves %s from %s", self.name, ", ".join(sorted(self.steps)), place)
            for one in owed:
                worker.owe(one)
            try:
                capacities = (worker.slots, worker.owed)
                await Consumer(
                    self.name, "directives", source.receive, capacities, worker.take, health, log, over_http.pace
                ).run(stop)
            finally:
                await worker.drain(settings.drain_seconds)


def _check_bus(settings: PlatformSettings, bus: KitBus | None) -> None:
    if settings.bus:
        check_bus_url(settings.bus, name_of("bus"))
    elif settings.callbacks == "bus" and bus is None:
        raise ServiceUnusable(f"{name_of('callbacks')}=bus needs directives from the bus: set {name_of('bus')}")


def open_store(settings: PlatformSettings, service: str, remote: RemoteFiles) -> IdempotencyStore:
    folder = Path(settings.state) / service
    if settings.store == "memory":
        return MemoryStore()
    return WorkspaceStore(folder, remote) if settings.store == "workspace" else SqliteStore(folder)

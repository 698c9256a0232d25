"""A function worker: a worker id, and a function for each name that runbooks call."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from lucius.functions.errors import WorkerUnusable
from lucius.functions.function import Function
from lucius.functions.job import Job, Result
from lucius.functions.loop import Loop
from lucius.functions.run import Run
from lucius.functions.settings import WorkerSettings, read_settings
from lucius.functions.source import HttpSource, JobSource

EXIT_UNUSABLE = 2
EXIT_ASKED_TWICE = 130
_WORKER_ID = re.compile(r"[!-~]{1,128}")

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("lucius.functions")


class FunctionWorker:
    """Runs the functions that runbooks' steps with this `worker_id` name."""

    def __init__(self, worker_id: str) -> None:
        if not _WORKER_ID.fullmatch(worker_id):
            raise ValueError(f"{worker_id!r} is not a worker id: 1 to 128 visible ASCII characters")
        self.worker_id = worker_id
        self.functions: dict[str, Function] = {}
        self._calls = itertools.count(1)

    def function(self, name: str, *, quick: bool = False) -> Callable[[F], F]:
        """Make a function, sync or async, the one that jobs of this name call, with their parameters by keyword.

        It returns what JSON can hold; a dict's fields can be output parameters. An async one runs in the worker's event
        loop and must not block it; a sync one runs in a thread. A sync one that is `quick` runs in the event loop: for
        work of a millisecond at most, which never waits.
        """

        def decorate(function: F) -> F:
            if name in self.functions:
                raise ValueError(f"the worker {self.worker_id} has a function {name} already")
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
        return run.at_once() or await run.result()

    def run(self, **settings: Any) -> None:
        """Work until SIGTERM or SIGINT, then finish what runs; ends the process if it cannot start."""
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        try:
            asyncio.run(self._run_until_signal(settings))
        except WorkerUnusable as error:
            print(f"{self.worker_id}: {error}", file=sys.stderr)
            sys.exit(EXIT_UNUSABLE)

    async def serve(
        self,
        stop: asyncio.Event | None = None,
        settings: WorkerSettings | None = None,
        *,
        source: JobSource | None = None,
    ) -> list[str]:
        """Work until `stop` is set, inside an event loop of one's own. Gives the ids of jobs that were left unfinished
        or unanswered when the drain's time was over. Raises `WorkerUnusable`."""
        if not self.functions:
            raise WorkerUnusable("the worker has no function; decorate one with @worker.function(...)")
        settings = settings or read_settings()
        # The client's own line for every request would bury the log under long polls.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        async with AsyncExitStack() as stack:
            if source is None:
                source = await stack.enter_async_context(HttpSource(self.worker_id, settings))
                log.info("%s: jobs from %s", self.worker_id, settings.url)
            log.info("%s: has %s", self.worker_id, ", ".join(sorted(self.functions)))
            return await Loop(self.functions, source, settings).run(stop or asyncio.Event())

    async def _run_until_signal(self, given: Mapping[str, Any]) -> None:
        settings = read_settings(**given)
        stop = asyncio.Event()

        def asked() -> None:
            if stop.is_set():
                os._exit(EXIT_ASKED_TWICE)  # Asked twice: somebody is in a hurry. The jobs' locks will run out.
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, asked)
        if await self.serve(stop, settings):
            # What did not end in time may sit in a thread that Python would wait for without end.
            logging.shutdown()
            os._exit(0)

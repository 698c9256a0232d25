"""One part of a profile: a process that is started, supervised, restarted when it dies, and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lucius.domain.errors import InfrastructureError
from lucius.profiles import bound

LOOK_SECONDS = 0.1
LOG_BYTES_MAX = 10_000_000
LOG_TAIL_BYTES = 2_000
RESTARTS_MAX = 5
STEADY_SECONDS = 60.0
"""After running this long, a part counts as healthy, and its restart count is reset."""
BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS = 0.5, 10.0


async def _is_ready_now(log_text: str) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class PartPlan:
    """How to run a part."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    is_ready: Callable[[str], Awaitable[bool]] = _is_ready_now
    """Polled with the text that the part has written to its log since it was started."""
    ready_seconds: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 20.0
    user: str = ""
    """The system user to run as; empty means the current one."""


class Part:
    def __init__(self, plan: PartPlan, logs: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.log = logs / f"{plan.name}.log"
        self._say = say
        self._process: Process | None = None
        self._log_begin = 0
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises `InfrastructureError` if it does not become ready."""
        await self._spawn()
        await self._until_ready()

    async def finish(self, seconds_max: float) -> None:
        """Start it and wait until it has ended. Raises `InfrastructureError` if it fails or takes too long."""
        await self._spawn()
        assert self._process is not None
        try:
            status = await asyncio.wait_for(self._process.wait(), seconds_max)
        except TimeoutError:
            raise self._failure(f"has not ended in {seconds_max:g} s") from None
        if status != 0:
            raise self._failure(f"ended with {status}")

    def watch(self) -> asyncio.Task[None]:
        """From now on, restart it when it dies; the task ends only with the error of a part that keeps dying."""
        self._watching = asyncio.create_task(self._restart_on_exit(), name=self.plan.name)
        return self._watching

    async def unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def stop(self) -> None:
        await self.unwatch()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(self.plan.stop_signal)
            try:
                await asyncio.wait_for(process.wait(), self.plan.stop_seconds)
            except TimeoutError:
                self._say(f"{self.plan.name} has not stopped in {self.plan.stop_seconds:g} s: killing it")
        self.kill()
        await process.wait()

    def kill(self) -> None:
        """Kill its whole process group at once."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):  # The group is empty.
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _spawn(self) -> None:
        plan = self.plan
        self._rotate_log()
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        arguments = [str(int(plan.stop_signal)), str(os.getpid()), plan.user, *plan.command]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", bound.__file__, *arguments),
                stdin=DEVNULL, stdout=log, stderr=log, env=dict(plan.environment), start_new_session=True,
            )  # fmt: skip

    async def _until_ready(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        end = loop.time() + self.plan.ready_seconds
        while not await self.plan.is_ready(self.log_text()):
            if self._process.returncode is not None:
                raise self._failure(f"ended with {self._process.returncode} before it was ready")
            if loop.time() > end:
                raise self._failure(f"is not ready after {self.plan.ready_seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def _restart_on_exit(self) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        began = loop.time()
        while True:
            assert self._process is not None
            status = await self._process.wait()
            self.kill()  # Leftover child processes would interfere with the next run.
            deaths = 1 if loop.time() - began > STEADY_SECONDS else deaths + 1
            if deaths > RESTARTS_MAX:
                raise self._failure(f"has died {deaths} times in a row, the last time with {status}")
            wait_seconds = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** (deaths - 1))
            self._say(f"{self.plan.name} ended with {status}; it will be restarted in {wait_seconds:g} s")
            await asyncio.sleep(wait_seconds)
            began = loop.time()
            await self._spawn()
            try:
                await self._until_ready()
                self._say(f"{self.plan.name} is back")
            except InfrastructureError as error:
                self._say(str(error))
                self.kill()

    def log_text(self) -> str:
        """The text that it has written to its log since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read(LOG_BYTES_MAX).decode(errors="replace")

    def _rotate_log(self) -> None:
        """Only between runs: this bounds what many runs write, not what one run writes."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_BYTES_MAX:
                self.log.replace(self.log.with_suffix(".log.1"))

    def _failure(self, what: str) -> InfrastructureError:
        tail = self.log_text()[-LOG_TAIL_BYTES:].strip()
        return InfrastructureError.unavailable(
            f"{self.plan.name} {what}; its log is {self.log}, and ends with:\n{tail}"
        )

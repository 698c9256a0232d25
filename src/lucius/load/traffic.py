"""Submits commands one by one, each at its time, as clients do: a batch would have one latency for all of them."""

from __future__ import annotations

import asyncio
import time

from lucius.client.call import Call
from lucius.client.errors import ClientError
from lucius.load.account import Account
from lucius.load.commands import Commands
from lucius.load.connections import Connections
from lucius.load.following import Following
from lucius.load.halt import Halt
from lucius.load.plan import LoadPlan

TICK_SECONDS = 0.05
STALL_SECONDS_MIN = 1.0


class Traffic:
    def __init__(
        self,
        plan: LoadPlan,
        commands: Commands,
        connections: Connections,
        following: Following,
        account: Account,
        halt: Halt,
    ) -> None:
        self._plan = plan
        self._commands = commands
        self._account = account
        self._halt = halt
        self._connections = connections
        self._following = following
        self._slots = asyncio.Semaphore(plan.in_flight)
        self._running: set[asyncio.Task[None]] = set()
        self.unsent = 0
        """Commands that a paced run should have sent before it stopped, but could not."""

    async def submit(self, tasks: asyncio.TaskGroup) -> None:
        """Send the commands of the plan, until there is a reason to stop."""
        started_at = time.monotonic()
        pacing = tasks.create_task(self._pace(tasks, started_at))
        while not pacing.done() and self._halt.reason is None:
            await asyncio.wait({pacing}, timeout=TICK_SECONDS)
            if self._is_stalled():
                self._halt.stall()
        pacing.cancel()
        await asyncio.wait({pacing})
        self.unsent = max(0, self._plan.due(time.monotonic() - started_at) - self._account.submitted)

    async def drain(self, seconds: float, interrupted_seconds: float) -> None:
        """Wait for jobs in flight, for a shorter time after an interruption. Then abandon the rest."""
        until = time.monotonic() + seconds
        halted = False
        while self._running and not self._halt.at_once and (left := until - time.monotonic()) > 0:
            if self._halt.reason is not None and not halted:
                halted, until = True, min(until, time.monotonic() + interrupted_seconds)
            await asyncio.wait(set(self._running), timeout=min(left, TICK_SECONDS * 2))
        for task in self._running:
            task.cancel()

    async def _pace(self, tasks: asyncio.TaskGroup, started_at: float) -> None:
        """Start one job after another; with a rate each at its own time, however late the server is."""
        plan = self._plan
        until = None if plan.seconds is None else started_at + plan.seconds
        try:
            async with asyncio.timeout(plan.seconds):
                for number in range(1, plan.jobs_max + 1):
                    meant_at = None if plan.rate is None else started_at + (number - 1) / plan.rate
                    if meant_at is not None:
                        await asyncio.sleep(meant_at - time.monotonic())
                    await self._slots.acquire()
                    now = time.monotonic()
                    if self._halt.reason is not None or (until is not None and now >= until):
                        return
                    self._account.submit(now)
                    job = tasks.create_task(self._run(number, now if meant_at is None else meant_at))
                    self._running.add(job)
                    job.add_done_callback(self._running.discard)
        except TimeoutError:
            return

    async def _run(self, number: int, meant_at: float) -> None:
        try:
            job_id = await self._accept(number, meant_at)
            if job_id is not None:
                end = await self._following.end_of(job_id)
                self._account.end(end.status, end.retries, meant_at, end.seen_at)
        except ClientError as error:
            self._halt.fail(error)
        finally:
            self._slots.release()

    async def _accept(self, number: int, meant_at: float) -> str | None:
        """The job's id; None if the run stopped while the server still refused it."""
        call = Call("POST", "/v1/commands", body=self._commands.body(number))
        while True:
            try:
                job_id = str((await self._connections.ask(call))["jobId"])
            except ClientError as error:
                # It may have been accepted anyway. The same key gives the same job.
                await self._connections.pause_or_give_up(error, self._account.refuse)
            else:
                self._account.accept(meant_at, time.monotonic())
                return job_id
            if self._halt.reason is not None:
                return None

    def _is_stalled(self) -> bool:
        return self._account.stalled_seconds(time.monotonic()) > max(self._plan.drain_seconds, STALL_SECONDS_MIN)

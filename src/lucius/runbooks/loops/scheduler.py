"""The running scheduler: handles due work every second, and reads sources at their own, slower interval."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from lucius.ports.database import DatabaseUnavailable, Script
from lucius.ports.observer import Observer
from lucius.ports.readiness import NotReady
from lucius.runbooks.engine import deadlines, detection, phases, polls
from lucius.runbooks.engine.consequences import apply_consequences
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.loops.settings import SchedulerSettings
from lucius.runbooks.loops.source_rounds import SourceRounds
from lucius.runbooks.store import executions, lease, runbooks, trail
from lucius.runbooks.store import phases as store_phases

T = TypeVar("T")

CLOCK_LOOP = "scheduler"
STANDBY = "standby: another scheduler leads"
SILENT_SECONDS_MAX = 60.0
"""A round of due work is short; if none has finished for this long, the loop hangs."""


WARN_INTERVAL_SECONDS = 10
"""How often the deadlines of batches are looked at."""


class _Round(NamedTuple):
    ok: bool
    detail: str
    ended_at: float


class Scheduler:
    def __init__(
        self,
        turns: Turns,
        observer: Observer,
        settings: SchedulerSettings,
        holder: str,
        environ: Mapping[str, str],
        own_files: Sequence[Path] = (),
    ) -> None:
        self._turns = turns
        self._observer = observer
        self._settings = settings
        self._holder = holder
        self._sources = SourceRounds(turns, self._take, observer, settings, environ, own_files)
        self._loops: list[asyncio.Task[None]] = []
        self._rounds: dict[str, _Round] = {}
        """The last round of each loop."""
        self._warned_at = 0
        """When deadlines were last looked at."""

    async def __aenter__(self) -> Scheduler:
        if not self._turns.database.is_shared:
            # No other process uses this database: a lease in it is left over from a process that was killed.
            await self._turns.database.write(lease.clear)
        # Reading a source may be slow; due work must not wait for it.
        self._loops = [
            asyncio.create_task(self._run(CLOCK_LOOP, self.check_due_times), name=CLOCK_LOOP),
            asyncio.create_task(self._run("sources", self.check_sources), name="sources"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._turns.until_idle()
        try:
            await self._turns.database.write(lambda: lease.give_up(self._holder))
        except DatabaseUnavailable as gone:
            self._observer.failed("scheduler shutdown", gone)  # The lease expires by itself.

    async def health(self) -> str:
        """Whether it leads; raises `NotReady` if a loop has stopped or hangs, or its last round failed."""
        for loop in self._loops:
            if loop.done():
                raise NotReady(f"{loop.get_name()}: the loop has stopped")
        for name, last in self._rounds.items():
            if not last.ok:
                raise NotReady(f"{name}: the last round failed: {last.detail}")
        clock = self._rounds.get(CLOCK_LOOP)
        if clock is None:
            return "no round has finished yet"
        silent_seconds = time.monotonic() - clock.ended_at
        if silent_seconds > SILENT_SECONDS_MAX:
            raise NotReady(f"no round has finished for {silent_seconds:.0f} s")
        return clock.detail

    async def _run(self, name: str, look: Callable[[], Awaitable[bool]]) -> None:
        while True:
            began = time.monotonic()
            outcome, detail = "ok", "leads"
            try:
                if not await look():
                    outcome, detail = "not_leader", STANDBY
            except lease.LeaseLost:
                outcome, detail = "not_leader", STANDBY
                self._observer.loop_worked(name)
            except Exception as error:
                outcome, detail = "failed", str(error) or type(error).__name__
                self._observer.loop_failed(name, error)
            else:
                self._observer.loop_worked(name)
            self._rounds[name] = _Round(outcome != "failed", detail, time.monotonic())
            if name == CLOCK_LOOP:
                self._observer.ticked(outcome, time.monotonic() - began)
            await asyncio.sleep(self._settings.interval)

    async def tick(self) -> bool:
        """One round, if this scheduler leads. Work that fails is found again in the next round."""
        return await self.check_sources() and await self.check_due_times()

    async def check_sources(self) -> bool:
        """Read the sources and move batches to the active versions. Returns whether this scheduler leads."""
        if not await self._leads():
            return False
        for row in await self._turns.database.read(runbooks.active):
            await self._isolated(f"runbook {row.name}", self._sources.check(row))
        return True

    async def check_due_times(self) -> bool:
        """Begin due phases and request due polls. Returns whether this scheduler leads."""
        if not await self._leads():
            return False
        now = self._turns.clock.now()
        for batch_id in await self._turns.database.read(lambda: detection.incomplete(now)):
            await self._take(partial(detection.give_up_incomplete, batch_id))
        for phase_id, batch_id in await self._turns.database.read(lambda: store_phases.due(now, phases.PHASES_MAX)):
            await self._isolated(
                f"phase {phase_id} of batch {batch_id}", phases.begin_phase(self._take, phase_id, batch_id)
            )
        await self._ask_polls()
        await self._warn_of_deadlines()
        return True

    async def _leads(self) -> bool:
        return await self._turns.database.write(
            lambda: lease.take(self._holder, self._turns.clock.now(), self._settings.lease_seconds)
        )

    async def _isolated(self, what: str, work: Awaitable[None]) -> None:
        """Run `work` so that its failure does not stop the rest of the round; the next round tries it again."""
        try:
            await work
        except (DatabaseUnavailable, lease.LeaseLost):
            raise
        except Exception as error:
            self._observer.failed(what, error)

    async def _take(self, work: Callable[[Turn], Script[T]]) -> T:
        """Run a transaction that commits only while this scheduler leads."""

        def work_as_leader(turn: Turn) -> Script[T]:
            yield from lease.keep(self._holder, turn.now, self._settings.lease_seconds)
            result = yield from work(turn)
            yield from apply_consequences(turn)
            return result

        return await self._turns.take(work_as_leader, trail.SCHEDULER)

    async def _warn_of_deadlines(self) -> None:
        now = self._turns.clock.now()
        if abs(now - self._warned_at) < WARN_INTERVAL_SECONDS * 1000:
            return
        self._warned_at = now
        for row in await self._turns.database.read(runbooks.active):
            runbook = await self._turns.database.read(partial(self._turns.definitions.get, row.name, row.version))
            await self._isolated(f"deadlines of runbook {row.name}", deadlines.warn(self._turns, self._take, runbook))

    # --- Due work ---------------------------------------------------------------------------------------------------

    async def _ask_polls(self) -> None:
        while True:
            now = self._turns.clock.now()
            due = await self._turns.database.read(partial(executions.polls_due, now, polls.POLLS_MAX))
            if not due:
                return

            def work(turn: Turn, due: list[tuple[str, int, int]] = due) -> Script[None]:
                yield from turn.lock([batch_id for _, _, batch_id in due])
                yield from polls.ask(turn, due)

            await self._take(work)
            if len(due) < polls.POLLS_MAX:
                return

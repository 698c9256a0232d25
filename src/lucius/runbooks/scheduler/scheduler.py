"""The scheduler as it runs: a round a second for what is due, and the sources at their own, slower pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from msgspec import Struct

from lucius.domain.time import Instant, after
from lucius.ports.observer import Observer
from lucius.runbooks.definition.model import DataSource, Runbook
from lucius.runbooks.orchestrator.consequences import follow
from lucius.runbooks.orchestrator.turn import Take, Turn, Turns
from lucius.runbooks.scheduler import comparison, detection, lease, phases, polls, transitions
from lucius.runbooks.scheduler.batching import RUNBOOK, RunbookRow
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import read_source_members
from lucius.runbooks.sources.rows import Members
from lucius.runbooks.tables import controls, trail
from lucius.runbooks.tables.controls import FAILED, HELD, OK, Control
from lucius.sql.database import DatabaseUnavailable, Fetch, Script

T = TypeVar("T")

_ACTIVE = f"{RUNBOOK} WHERE is_active = TRUE ORDER BY name"


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    interval: float = 1.0
    source_interval: float = 60.0
    lease_seconds: float = 30.0
    source_share_min: float = 0.5
    """A source that has less than this share of the members it had before changes nobody until it is confirmed."""
    limits: SourceLimits = SourceLimits()


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
        self._environ = environ
        self._own_files = own_files
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Scheduler:
        if not self._turns.database.is_shared:
            # This process alone has the database: a lease in it is that of a process which was killed.
            await self._turns.database.write(lease.clear)
        # A source may take its time; what is due must not wait for it.
        self._loops = [
            asyncio.create_task(self._run("scheduler", self.look_at_clock), name="scheduler"),
            asyncio.create_task(self._run("sources", self.look_at_sources), name="sources"),
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
            self._observer.failed("scheduler's stop", gone)  # The lease ends by itself.

    async def _run(self, name: str, look: Callable[[], Awaitable[bool]]) -> None:
        while True:
            began = time.monotonic()
            outcome = "ok"
            try:
                if not await look():
                    outcome = "not_leader"
            except lease.LeaseLost:
                outcome = "not_leader"
            except Exception as error:
                outcome = "failed"
                self._observer.failed(name, error)
            if name == "scheduler":
                self._observer.ticked(outcome, time.monotonic() - began)
            await asyncio.sleep(self._settings.interval)

    async def tick(self) -> bool:
        """One round, if this scheduler leads. Whatever it finds is done or it is found again in the next."""
        return await self.look_at_sources() and await self.look_at_clock()

    async def look_at_sources(self) -> bool:
        """Who is in the sources, and which version batches follow. Whether this scheduler leads."""
        if not await self._leads():
            return False
        for row in await self._turns.database.read(_active):
            await self._alone(f"runbook {row.name}", self._tick_runbook(row))
        return True

    async def look_at_clock(self) -> bool:
        """Which phases and polls are due. Whether this scheduler leads."""
        if not await self._leads():
            return False
        now = self._turns.clock.now()
        for batch_id in await self._turns.database.read(lambda: detection.half_made(now)):
            await self._take(partial(detection.give_up_half_made, batch_id))
        for phase_id, batch_id in await self._turns.database.read(lambda: phases.due_phases(now)):
            await self._alone(f"phase {phase_id} of batch {batch_id}", begin_phase(self._take, phase_id, batch_id))
        await self._ask_polls()
        return True

    async def _leads(self) -> bool:
        return await self._turns.database.write(
            lambda: lease.take(self._holder, self._turns.clock.now(), self._settings.lease_seconds)
        )

    async def _alone(self, what: str, work: Awaitable[None]) -> None:
        """One thing that goes wrong keeps nobody else waiting; it is tried again in the next round."""
        try:
            await work
        except (DatabaseUnavailable, lease.LeaseLost):
            raise
        except Exception as error:
            self._observer.failed(what, error)

    async def _take(self, work: Callable[[Turn], Script[T]]) -> T:
        """A transaction that goes through only while this scheduler leads."""

        def led(turn: Turn) -> Script[T]:
            yield from lease.keep(self._holder, turn.now, self._settings.lease_seconds)
            result = yield from work(turn)
            yield from follow(turn)
            return result

        return await self._turns.take(led, trail.SCHEDULER)

    # --- Sources -----------------------------------------------------------------------------------------------------

    async def _tick_runbook(self, row: RunbookRow) -> None:
        control = await self._turns.database.read(lambda: controls.read(row.name))
        if not control.automation:
            return
        runbook = await self._turns.database.read(lambda: self._turns.definitions.get(row.name, row.version))
        await self._move_batches(row, runbook)
        now = self._turns.clock.now()
        is_due = control.checked_at is None or after(control.checked_at, self._settings.source_interval) <= now
        if runbook.source is not None and is_due:
            await self._read_source(row, runbook, runbook.source, control, now)

    async def _move_batches(self, row: RunbookRow, runbook: Runbook) -> None:
        for batch_id in await self._turns.database.read(lambda: transitions.behind(row)):

            def work(turn: Turn, batch_id: int = batch_id) -> Script[None]:
                yield from turn.lock([batch_id])
                yield from transitions.move_batch(turn, turn.batches[batch_id], row, runbook)

            await self._take(work)
        if row.overdue_behavior == "ignore" and not row.ignore_overdue_applied:
            await self._take(lambda turn: transitions.mark_applied(row))

    async def _read_source(
        self, row: RunbookRow, runbook: Runbook, source: DataSource, control: Control, now: Instant
    ) -> None:
        began = time.monotonic()
        try:
            found = await read_source_members(source, self._environ, self._settings.limits, self._own_files)
            result = await self._judge(row, source, control, found, now)
        except SourceError as error:
            await self._note_source(row, control, now, FAILED, str(error), control.source_count)
            self._observer.source_read(FAILED, time.monotonic() - began)
            return
        if result is not None:
            await detection.carry_out(self._take, row, runbook, found, result, now)
            for batch_id in await self._turns.database.read(lambda: detection.left_over(row.name)):
                await self._take(detection.start_work(batch_id))
            faults = f"{found.fault_count} rows cannot be used: {found.faults[0].message}" if found.faults else None
            await self._note_source(row, control, now, OK, faults, len(found.members))
        self._observer.source_read(OK if result is not None else HELD, time.monotonic() - began)

    async def _judge(
        self, row: RunbookRow, source: DataSource, control: Control, found: Members, now: Instant
    ) -> comparison.Comparison | None:
        """What follows from what the source has; None if it has shrunk so far that nothing may follow."""
        count = len(found.members)
        share = self._settings.source_share_min
        if comparison.shrunk_too_far(control.source_count, count, share, control.confirmed_count):
            detail = (
                f"the source has {count} members, and had {control.source_count}: nobody is changed until it has more"
                " again or an operator confirms it"
            )
            await self._note_source(row, control, now, HELD, detail, control.source_count, held=count)
            return None
        await self._take(lambda turn: detection.make_table(row, found))
        standing = await self._turns.database.read(lambda: detection.standing(row, source, found))
        return comparison.compare(found, standing, now, source.batch_time_column is None)

    async def _note_source(
        self,
        row: RunbookRow,
        control: Control,
        now: Instant,
        state: str,
        detail: str | None,
        count: int | None,
        held: int | None = None,
    ) -> None:
        """Keep what came of it; the trail hears of it only when something is new."""

        def work(turn: Turn) -> Script[None]:
            yield from controls.write_source(row.name, state, detail, count, held, now)
            if (state, detail) != (control.source_state, control.source_detail):
                turn.events.append(
                    trail.entry(now, f"source-{state}", turn.actor, row.name, detail=detail, members=count, held=held)
                )

        await self._take(work)

    # --- What is due -------------------------------------------------------------------------------------------------

    async def _ask_polls(self) -> None:
        while True:
            now = self._turns.clock.now()
            due = await self._turns.database.read(partial(polls.due_polls, now))
            if not due:
                return

            def work(turn: Turn, due: list[tuple[str, int, int]] = due) -> Script[None]:
                yield from turn.lock([batch_id for _, _, batch_id in due])
                yield from polls.ask(turn, due)

            await self._take(work)
            if len(due) < polls.POLLS_MAX:
                return


async def begin_phase(take: Take, phase_id: int, batch_id: int) -> None:
    """Make a phase's steps, page by page, and begin it; the same for a due one and for one that is advanced by hand."""
    last_id = 0
    while (made := await take(partial(phases.make_page, phase_id, batch_id, last_id))) is not None:
        last_id = made
    await take(partial(phases.begin, phase_id, batch_id, last_id))


def _active() -> Script[list[RunbookRow]]:
    return [RunbookRow(*line) for line in (yield Fetch(_ACTIVE))]

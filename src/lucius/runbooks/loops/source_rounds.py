"""Rounds over the runbooks' sources: read each at its interval, compare with the tables, apply the changes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lucius.domain.notifications import Cause, Facts
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.database import Script
from lucius.ports.observer import Observer
from lucius.runbooks.core import comparison
from lucius.runbooks.core.definition.columns import missing_columns
from lucius.runbooks.core.definition.model import DataSource, Runbook
from lucius.runbooks.core.records import FAILED, HELD, OK, Control, RunbookRow
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.engine import detection, transitions
from lucius.runbooks.engine.turn import Take, Turn, Turns
from lucius.runbooks.loops.settings import SchedulerSettings
from lucius.runbooks.sources.connections import GrantedConnections
from lucius.runbooks.sources.files import FileStamps
from lucius.runbooks.sources.limits import SourceError, of_faults
from lucius.runbooks.sources.reading import read_source_members
from lucius.runbooks.store import controls, trail

CAUSES = {FAILED: Cause.SOURCE_FAILED, HELD: Cause.SOURCE_HELD}


class SourceRounds:
    def __init__(
        self,
        turns: Turns,
        take: Take,
        observer: Observer,
        settings: SchedulerSettings,
        environ: Mapping[str, str],
        own_files: Sequence[Path],
    ) -> None:
        """`take` runs a turn of the scheduler, which commits only while it leads."""
        self._turns = turns
        self._take = take
        self._observer = observer
        self._settings = settings
        self._environ = environ
        self._own_files = own_files
        self._stamps = FileStamps()

    async def check(self, row: RunbookRow) -> None:
        """Move a runbook's batches to its active version, and read its source if that is due."""
        control = await self._turns.database.read(lambda: controls.read(row.name))
        if not control.automation:
            return
        runbook = await self._turns.database.read(lambda: self._turns.definitions.get(row.name, row.version))
        await self._move_batches(row, runbook)
        now = self._turns.clock.now()
        latest, earliest = after(now, CLOCK_TOLERANCE_SECONDS), after(now, -self._settings.source_interval)
        is_due = control.checked_at is None or not earliest < control.checked_at <= latest
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
            connections = GrantedConnections(self._environ, self._turns.grants, row.name)
            found = await read_source_members(source, connections, self._settings.limits, self._own_files, self._stamps)
            missing = missing_columns(runbook, found.columns, "the source")
            if missing:
                raise of_faults("the source cannot be used", missing, len(missing))
            result = await self._compare(row, runbook, source, control, found, now)
        except SourceError as error:
            await self._note_source(row, runbook, control, now, FAILED, str(error), control.source_count)
            self._observer.source_read(FAILED, time.monotonic() - began)
            self._observer.source_troubled(row.name, FAILED, str(error))
            return
        if result is not None:
            await detection.apply_changes(self._take, row, runbook, found, result, now)
            for batch_id in await self._turns.database.read(lambda: detection.never_started(row.name)):
                await self._take(detection.start_work(batch_id))
            first = f"{found.faults[0].place}: {found.faults[0].message}" if found.faults else ""
            faults = f"{found.fault_count} rows cannot be used: {first}" if found.faults else None
            await self._note_source(row, runbook, control, now, OK, faults, len(found.members))
        self._observer.source_read(OK if result is not None else HELD, time.monotonic() - began)

    async def _compare(
        self, row: RunbookRow, runbook: Runbook, source: DataSource, control: Control, found: Members, now: Instant
    ) -> comparison.Comparison | None:
        """Compare the source with the tables; None if it has shrunk so much that nothing may change."""
        count = len(found.members)
        share = self._settings.source_share_min
        if comparison.shrunk_too_far(control.source_count, count, share, control.confirmed_count):
            detail = (
                f"the source has {count} members, down from {control.source_count}: nothing changes until it recovers"
                " or an operator confirms the smaller source"
            )
            await self._note_source(row, runbook, control, now, HELD, detail, control.source_count, held=count)
            self._observer.source_troubled(row.name, HELD, detail)
            return None
        await self._take(lambda turn: detection.make_table(row, found))
        stored = await self._turns.database.read(lambda: detection.stored_state(row, source, found))
        absence = self._settings.absence_seconds if source.absence_seconds is None else source.absence_seconds
        return comparison.compare(found, stored, now, source.batch_time_column is None, absence)

    async def _note_source(
        self,
        row: RunbookRow,
        runbook: Runbook,
        control: Control,
        now: Instant,
        state: str,
        detail: str | None,
        count: int | None,
        held: int | None = None,
    ) -> None:
        """Record the outcome; the trail gets an event only when something changed."""

        def work(turn: Turn) -> Script[None]:
            yield from controls.write_source(row.name, state, detail, count, held, now)
            turn.runbooks.add(row.name)
            if (state, detail) != (control.source_state, control.source_detail):
                turn.events.append(
                    trail.entry(now, f"source-{state}", turn.actor, row.name, detail=detail, members=count, held=held)
                )
            # Told once when it begins, not at every reading.
            if state in CAUSES and state != control.source_state:
                turn.tell(runbook, Facts(cause=CAUSES[state], at=now, runbook=row.name, status=state, reason=detail))

        await self._take(work)

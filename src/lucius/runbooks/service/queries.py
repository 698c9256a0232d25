"""Queries on runbooks, batches and members: what exists, its progress, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant
from lucius.ports.bus import BusUnavailable, DeadLetter
from lucius.ports.database import Script
from lucius.runbooks.core import answers
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.engine.turn import Turns
from lucius.runbooks.service.dead_letters import DeadLetters
from lucius.runbooks.service.publishing import active_text, find_version, shown_source, shown_version
from lucius.runbooks.service.scope import EVERYTHING, Scope, missing
from lucius.runbooks.service.views import batches, events, export, grid, members
from lucius.runbooks.service.views.pages import Paged
from lucius.runbooks.service.views.trial import Trial
from lucius.runbooks.sources.connections import GrantedConnections
from lucius.runbooks.sources.limits import SourceLimits
from lucius.runbooks.store import controls, runbooks
from lucius.runbooks.store import members as member_rows

T = TypeVar("T")
BUS_UNKNOWN = "the bus is out of reach: it is unknown whether messages of this batch are dead letters"


class Queries:
    def __init__(
        self,
        turns: Turns,
        letters: DeadLetters,
        limits: SourceLimits,
        environ: Mapping[str, str],
        own_files: Sequence[Path],
        absent: Absent = nobody_absent,
    ) -> None:
        """`absent` tells which workers do not ask for work."""
        self._absent = absent
        self._turns = turns
        self._letters = letters
        self._limits = limits
        self._environ = environ
        self._own_files = own_files

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        return await self._turns.database.scan(script)

    # --- Batches and members -----------------------------------------------------------------------------------------

    async def batches(
        self, runbook: str | None, status: str | None, limit: int, before: int | None, scope: Scope = EVERYTHING
    ) -> Paged[answers.Batch]:
        """Newest first; `before` is the id at which the previous page ended."""
        tenants = scope.listed()
        if runbook is not None:  # Its name says whose it is.
            tenants = None if scope.sees(runbook) else []
        return await self._read(lambda: batches.batch_page(runbook, status, limit, before, tenants))

    async def check_batch(self, batch_id: int, scope: Scope) -> None:
        """Raises NOT_FOUND if the scope does not see the batch."""
        await self._turns.database.read(lambda: scope.check_batch(batch_id))

    async def batch(self, batch_id: int) -> answers.BatchWhole:
        letters, now = await self._newest_letters(), self._turns.clock.now()
        definitions, absent = self._turns.definitions, self._absent
        shown = await self._read(lambda: batches.whole_batch(batch_id, definitions, now, letters or (), absent))
        if letters is None:
            shown["waiting_for"].append(BUS_UNKNOWN)
        return shown

    async def members(
        self, batch_id: int, status: str, key: str | None, limit: int, after: int | None
    ) -> Paged[answers.Member]:
        """In joining order; `status` is one of `views.members.MEMBER_FILTERS`."""
        letters, definitions = await self._newest_letters() or (), self._turns.definitions
        now = self._turns.clock.now()
        return await self._read(
            lambda: members.member_page(batch_id, status, key, limit, after, definitions, letters, now, self._absent)
        )

    async def _newest_letters(self) -> list[DeadLetter] | None:
        """None while the bus is unreachable: the tables can be shown without it."""
        try:
            return await self._letters.newest()
        except BusUnavailable:
            return None

    async def grid(self, batch_id: int, since: int | None) -> answers.Grid:
        """Members × steps: whole, or what has changed since this number."""
        return await self._read(lambda: grid.read_grid(batch_id, since, self._turns.definitions))

    async def change_number(self, batch_id: int) -> tuple[int, int]:
        """The number of the newest change of a batch, and how many members it has ever had. Cheap."""

        def script() -> Script[tuple[int, int]]:
            batch = yield from batches.batch_exists(batch_id)
            counts = yield from member_rows.counts([batch_id])
            return batch.change_number, counts.get(batch_id, (0, 0, 0))[0]

        return await self._read(script)

    async def batch_events(self, batch_id: int, limit: int, before: int | None) -> Paged[answers.RunbookEvent]:
        def script() -> Script[Paged[answers.RunbookEvent]]:
            yield from batches.batch_exists(batch_id)
            return (yield from events.event_page(None, batch_id, limit, before))

        return await self._read(script)

    async def export(self, batch_id: int, status: str = "all") -> AsyncIterator[str]:
        """CSV, page by page; each page is read after the previous one was consumed."""
        layout = await self._read(lambda: export.layout(batch_id, self._turns.definitions))
        yield export.header(layout)
        after: int | None = 0
        while after is not None:
            text, after = await self._read(partial(export.lines, batch_id, layout, after, status))
            yield text

    # --- Runbooks ----------------------------------------------------------------------------------------------------

    async def runbook(self, name: str, version: int | None) -> answers.Runbook:
        """One version, by default the newest, and a list of the others."""

        def script() -> Script[answers.Runbook]:
            versions = yield from runbooks.versions(name)
            wanted, text = yield from find_version(name, version, versions)
            control = yield from controls.read(name)
            return {
                "name": name, "tenant": tenant_of_runbook(name), "version": wanted.version, "yaml": text,
                "is_active": bool(wanted.is_active),
                "automation": bool(control.automation),
                "source": shown_source(control),
                "versions": [shown_version(one) for one in versions],
            }  # fmt: skip

        return await self._read(script)

    async def active_definition(self, name: str) -> Runbook:
        """The active version, or the newest if none is active. Raises `CallerError`."""
        _, text = await self._read(lambda: active_text(name))
        return await asyncio.to_thread(read_runbook, text.encode())

    async def runbook_events(self, name: str, limit: int, before: int | None) -> Paged[answers.RunbookEvent]:
        def script() -> Script[Paged[answers.RunbookEvent]]:
            if not (yield from runbooks.versions(name)):
                raise missing(name)
            return (yield from events.event_page(name, None, limit, before))

        return await self._read(script)

    # --- Trial runs --------------------------------------------------------------------------------------------------

    async def preview(self, name: str, limit: int) -> answers.SourcePreview:
        _, trial = await self._trial(name)
        return await trial.preview(limit)

    async def dry_run(self, name: str, csv: bytes | None, start: Instant | None, limit: int) -> answers.DryRun:
        version, trial = await self._trial(name)
        return await trial.run(version, csv, start, limit, self._turns.clock.now())

    async def _trial(self, name: str) -> tuple[int, Trial]:
        """For the active version, or the newest if none is active."""
        version, text = await self._read(lambda: active_text(name))
        runbook: Runbook = await asyncio.to_thread(read_runbook, text.encode())
        connections = GrantedConnections(self._environ, self._turns.grants, name)
        return version, Trial(runbook, self._limits, connections, self._own_files)

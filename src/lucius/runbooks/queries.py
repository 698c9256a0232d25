"""Looking at runbooks, batches and members: what there is, how far it has come, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lucius.domain.time import Instant, iso
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.definition.reading import read_runbook
from lucius.runbooks.orchestrator.turn import Turns
from lucius.runbooks.publishing import missing, missing_version
from lucius.runbooks.sources.limits import SourceLimits
from lucius.runbooks.tables import controls
from lucius.runbooks.views import batches, events, export, members
from lucius.runbooks.views.pages import moment
from lucius.runbooks.views.trial import Trial
from lucius.sql.database import Fetch, Script

T = TypeVar("T")
Page = tuple[list[dict[str, Any]], int | None]
"""Items, and the id that the next page goes on from."""

_VERSIONS = (
    "SELECT version, is_active, overdue_behavior, rerun_init, created_at, created_by FROM runbooks WHERE name = $1"
    " ORDER BY version DESC"
)
_TEXT = "SELECT yaml_content FROM runbooks WHERE name = $1 AND version = $2"


class Queries:
    def __init__(
        self, turns: Turns, limits: SourceLimits, environ: Mapping[str, str], own_files: Sequence[Path]
    ) -> None:
        self._turns = turns
        self._limits = limits
        self._environ = environ
        self._own_files = own_files

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        return await self._turns.database.read(script)

    # --- Batches and members -----------------------------------------------------------------------------------------

    async def batches(self, runbook: str | None, status: str | None, limit: int, before: int | None) -> Page:
        """Newest first; `before` is where the page before ended."""
        return await self._read(lambda: batches.batch_page(runbook, status, limit, before))

    async def batch(self, batch_id: int) -> dict[str, Any]:
        now, definitions = self._turns.clock.now(), self._turns.definitions
        return await self._read(lambda: batches.whole_batch(batch_id, definitions, now))

    async def members(self, batch_id: int, status: str, key: str | None, limit: int, after: int | None) -> Page:
        """In the order in which they joined; `status` is one of `views.members.MEMBER_FILTERS`."""
        now, definitions = self._turns.clock.now(), self._turns.definitions
        return await self._read(lambda: members.member_page(batch_id, status, key, limit, after, definitions, now))

    async def batch_events(self, batch_id: int, limit: int, before: int | None) -> Page:
        def script() -> Script[Page]:
            yield from batches.batch_exists(batch_id)
            return (yield from events.event_page(None, batch_id, limit, before))

        return await self._read(script)

    async def export(self, batch_id: int) -> AsyncIterator[str]:
        """CSV, page by page; a page is read when the one before is gone."""
        laid = await self._read(lambda: export.layout(batch_id, self._turns.definitions))
        yield export.header(laid)
        after: int | None = 0
        while after is not None:
            text, after = await self._read(partial(export.lines, batch_id, laid, after))
            yield text

    # --- Runbooks ----------------------------------------------------------------------------------------------------

    async def runbook(self, name: str, version: int | None) -> dict[str, Any]:
        """One version, by default the newest, and what others there are."""

        def script() -> Script[dict[str, Any]]:
            rows = yield Fetch(_VERSIONS, [name])
            if not rows:
                raise missing(name)
            wanted = next((row for row in rows if version in (None, row[0])), None)
            if wanted is None:
                raise missing_version(name, version)
            text = (yield Fetch(_TEXT, (name, wanted[0])))[0][0]
            control = yield from controls.read(name)
            return {
                "name": name, "version": wanted[0], "yaml": text, "is_active": bool(wanted[1]),
                "automation": bool(control.automation),
                "source": {
                    "state": control.source_state, "detail": control.source_detail, "members": control.source_count,
                    "checked_at": moment(control.checked_at),
                },
                "versions": [
                    {
                        "version": row[0], "is_active": bool(row[1]), "overdue_behavior": row[2],
                        "rerun_init": bool(row[3]), "created_at": iso(row[4]), "created_by": row[5],
                    }
                    for row in rows
                ],
            }  # fmt: skip

        return await self._read(script)

    async def runbook_events(self, name: str, limit: int, before: int | None) -> Page:
        def script() -> Script[Page]:
            if not (yield Fetch(_VERSIONS, [name])):
                raise missing(name)
            return (yield from events.event_page(name, None, limit, before))

        return await self._read(script)

    # --- Trying out --------------------------------------------------------------------------------------------------

    async def preview(self, name: str, limit: int) -> dict[str, Any]:
        _, trial = await self._trial(name)
        return await trial.preview(limit)

    async def dry_run(self, name: str, csv: bytes | None, start: Instant | None, limit: int) -> dict[str, Any]:
        version, trial = await self._trial(name)
        return {"name": name, "version": version, **await trial.run(csv, start, limit, self._turns.clock.now())}

    async def _trial(self, name: str) -> tuple[int, Trial]:
        """Of the active version, or of the newest where none is."""

        def script() -> Script[tuple[int, str]]:
            rows = yield Fetch(_VERSIONS, [name])
            if not rows:
                raise missing(name)
            version: int = next((row[0] for row in rows if row[1]), rows[0][0])
            return version, (yield Fetch(_TEXT, (name, version)))[0][0]

        version, text = await self._read(script)
        runbook: Runbook = await asyncio.to_thread(read_runbook, text.encode())
        return version, Trial(runbook, self._limits, self._environ, self._own_files)

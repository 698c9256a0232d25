"""Publishing and retiring runbooks: versions, of which one is active, and whether automation runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lucius.domain.errors import CallerError, Fault
from lucius.domain.time import iso
from lucius.ports.bus import Bus
from lucius.runbooks.definition.compare import Difference, differences
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.definition.names import data_table_name, tables_collide
from lucius.runbooks.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.messages import JOBS_TOPIC, SUBSCRIPTIONS, worker_subscription
from lucius.runbooks.orchestrator.turn import Turn, Turns
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview
from lucius.runbooks.tables import controls, trail
from lucius.sql.database import Fetch, Run, Script

OVERDUE = ("rerun", "ignore")
PREVIEW_SECONDS_MAX = 10.0
"""How long publication waits for a source to say which columns it has."""

_VERSIONS = (
    "SELECT id, version, yaml_content, is_active, overdue_behavior, rerun_init, created_at, created_by"
    " FROM runbooks WHERE name = $1 ORDER BY version DESC"
)
_NAMES = "SELECT DISTINCT name FROM runbooks"
_INSERT = (
    "INSERT INTO runbooks (name, version, yaml_content, data_table_name, is_active, overdue_behavior,"
    " ignore_overdue_applied, rerun_init, created_at, created_by)"
    " VALUES ($1, $2, $3, $4, TRUE, $5, FALSE, $6, $7, $8) ON CONFLICT (name, version) DO NOTHING"
)
_DEACTIVATE = "UPDATE runbooks SET is_active = FALSE WHERE name = $1 AND is_active = TRUE"
_WORKERS = (
    "SELECT r.yaml_content FROM runbooks r WHERE r.is_active = TRUE OR r.id IN"
    " (SELECT b.runbook_id FROM batches b WHERE b.completed_at IS NULL)"
)
_LOCK = "SELECT name FROM runbook_controls WHERE name = $1 FOR UPDATE"
_LIST = (
    "SELECT r.name, r.version, r.is_active, r.overdue_behavior, r.rerun_init, r.created_at, r.created_by,"
    " c.automation, c.source_state, c.source_detail, c.source_count, c.checked_at, (SELECT COUNT(*) FROM batches b"
    " WHERE b.runbook_name = r.name AND b.completed_at IS NULL) FROM runbooks r"
    " LEFT JOIN runbook_controls c ON c.name = r.name WHERE r.version = (SELECT MAX(o.version) FROM runbooks o"
    " WHERE o.name = r.name) ORDER BY r.name"
)


class Publishing:
    def __init__(
        self,
        turns: Turns,
        bus: Bus,
        limits: SourceLimits | None = None,
        environ: Mapping[str, str] = {},
        own_files: Sequence[Path] = (),
    ) -> None:
        """`limits`, `environ` and `own_files` are for looking into sources: which columns they have."""
        self._turns = turns
        self._bus = bus
        limits = limits or SourceLimits()
        self._limits = replace(limits, query_seconds=min(limits.query_seconds, PREVIEW_SECONDS_MAX))
        self._environ = environ
        self._own_files = own_files
        self._workers: set[str] = set()

    async def workers(self) -> list[str]:
        """Every worker that has a queue: queues stay, so what was seen once holds."""
        depths = await self._bus.depths()
        self._workers.update(depth.subscription for depth in depths if depth.topic == JOBS_TOPIC)
        return sorted(self._workers)

    async def knows_worker(self, worker_id: str) -> bool:
        return worker_id in self._workers or worker_id in await self.workers()

    async def declare(self) -> None:
        """Make every queue exist that a published runbook, or a batch under way, sends to."""
        texts = await self._turns.database.read(lambda: _texts())
        workers = {step.worker_id for text in texts for step in read_runbook(text.encode()).steps}
        await self._declare(workers)

    async def _declare(self, worker_ids: set[str]) -> None:
        await self._bus.declare([*SUBSCRIPTIONS, *(worker_subscription(worker) for worker in sorted(worker_ids))])

    async def publish(
        self, content: bytes, actor: str, overdue_behavior: str = "rerun", rerun_init: bool = False
    ) -> dict[str, Any]:
        """Make this text the active version. The same text as the active one changes nothing."""
        if overdue_behavior not in OVERDUE:
            detail = f"overdue_behavior is {' or '.join(OVERDUE)}"
            raise CallerError.of("ENVELOPE_INVALID", detail, "/overdue_behavior")
        # A hostile text may keep the parser busy for seconds, so it has a thread.
        runbook = await asyncio.to_thread(checked, content)
        unchecked = await self._check_columns(content, runbook)
        await self._declare({step.worker_id for step in runbook.steps})
        text = content.decode()

        def work(turn: Turn) -> Script[dict[str, Any]]:
            for row in (yield Fetch(_NAMES)):
                if tables_collide(row[0], runbook.name):
                    detail = f"runbook {row[0]} has the same table name: choose a name that differs in more"
                    raise CallerError.of("CONFLICT", detail, "/name")
            yield Run(controls.CREATE, [(runbook.name,)])
            yield Fetch(_LOCK, [runbook.name])
            rows = yield Fetch(_VERSIONS, [runbook.name])
            latest = rows[0] if rows else None
            same = latest is not None and latest[3] and latest[2:6] == (text, latest[3], overdue_behavior, rerun_init)
            if latest is not None and same:
                return {"name": runbook.name, "version": latest[1], "published": False, "unchecked": unchecked}
            version = latest[1] + 1 if latest is not None else 1
            yield Run(_DEACTIVATE, [(runbook.name,)])
            table = data_table_name(runbook.name, version)
            values = (runbook.name, version, text, table, overdue_behavior, rerun_init, turn.now, actor)
            yield Run(_INSERT, [values])
            yield Run(controls.READ_AGAIN, [(runbook.name,)])
            turn.events.append(
                trail.entry(turn.now, "runbook-published", actor, runbook.name, version=version,
                            overdue_behavior=overdue_behavior, rerun_init=rerun_init)
            )  # fmt: skip
            return {"name": runbook.name, "version": version, "published": True, "unchecked": unchecked}

        result = await self._turns.take(work, actor)
        self._turns.definitions.keep(result["version"], runbook)
        return result

    async def _check_columns(self, content: bytes, runbook: Runbook) -> str | None:
        """Hold the text to the columns that its source has; why that could not be done, if it could not."""
        if runbook.source is None:
            return None
        try:
            rows = await preview(runbook.source, self._environ, self._limits, self._own_files, limit=1)
        except SourceError as error:
            return f"the columns could not be checked: {error}"
        await asyncio.to_thread(checked, content, rows.columns)
        return None

    async def retire(self, name: str, actor: str) -> dict[str, Any]:
        """No new batches; those under way go on to their end."""

        def work(turn: Turn) -> Script[dict[str, Any]]:
            rows = yield Fetch(_VERSIONS, [name])
            if not rows:
                raise missing(name)
            yield Run(_DEACTIVATE, [(name,)])
            turn.events.append(trail.entry(turn.now, "runbook-retired", actor, name, version=rows[0][1]))
            return {"name": name, "version": rows[0][1], "retired": True}

        return await self._turns.take(work, actor)

    async def set_automation(self, name: str, on: bool, actor: str) -> dict[str, Any]:
        def work(turn: Turn) -> Script[dict[str, Any]]:
            if not (yield Fetch(_LOCK, [name])):
                raise missing(name)
            yield Run(controls.SET_AUTOMATION, [(name, on)])
            turn.events.append(trail.entry(turn.now, "automation-on" if on else "automation-off", actor, name))
            return {"name": name, "automation": on}

        return await self._turns.take(work, actor)

    async def confirm_source(self, name: str, actor: str) -> dict[str, Any]:
        """The source is right, few as its members are now: the next reading may remove those who are gone."""

        def work(turn: Turn) -> Script[dict[str, Any]]:
            if not (yield Fetch(_LOCK, [name])):
                raise missing(name)
            control = yield from controls.read(name)
            if control.held_count is None:
                raise CallerError.of("CONFLICT", f"the source of {name} is not held: there is nothing to confirm")
            yield Run(controls.CONFIRM, [(name,)])
            turn.events.append(trail.entry(turn.now, "source-confirmed", actor, name, members=control.held_count))
            return {"name": name, "confirmed": control.held_count}

        return await self._turns.take(work, actor)

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def names(self) -> list[dict[str, Any]]:
        rows = await self._turns.database.read(lambda: _fetch(_LIST))
        return [
            {
                "name": row[0], "version": row[1], "is_active": bool(row[2]), "overdue_behavior": row[3],
                "rerun_init": bool(row[4]), "created_at": iso(row[5]), "created_by": row[6],
                "automation": row[7] is None or bool(row[7]),
                "source": {
                    "state": row[8], "detail": row[9], "members": row[10],
                    "checked_at": iso(row[11]) if row[11] else None,
                },
                "open_batches": row[12],
            }
            for row in rows
        ]  # fmt: skip

    async def text(self, name: str, version: int | None = None) -> tuple[int, str]:
        """The text of a version, by default of the newest."""
        rows = await self._turns.database.read(lambda: _fetch(_VERSIONS, name))
        for row in rows:
            if version is None or row[1] == version:
                return row[1], row[2]
        raise missing(name) if not rows else missing_version(name, version)

    async def versions(self, name: str) -> list[dict[str, Any]]:
        rows = await self._turns.database.read(lambda: _fetch(_VERSIONS, name))
        if not rows:
            raise missing(name)
        return [
            {
                "version": row[1], "is_active": bool(row[3]), "overdue_behavior": row[4], "rerun_init": bool(row[5]),
                "created_at": iso(row[6]), "created_by": row[7],
            }
            for row in rows
        ]  # fmt: skip

    async def compare(self, name: str, before: int, after: int) -> list[Difference]:
        _, old = await self.text(name, before)
        _, new = await self.text(name, after)
        return await asyncio.to_thread(lambda: differences(read_runbook(old.encode()), read_runbook(new.encode())))


def checked(content: bytes, columns: Sequence[str] | None = None) -> Runbook:
    """The runbook, or a `RUNBOOK_INVALID` with every fault on its line."""
    try:
        return read_runbook(content, columns)
    except RunbookInvalid as error:
        faults = [Fault("RUNBOOK_INVALID", one.pointer, f"line {one.line}: {one.message}") for one in error.faults]
        raise CallerError(faults) from error


def missing(name: str) -> CallerError:
    return CallerError.of("NOT_FOUND", f"there is no runbook {name}")


def missing_version(name: str, version: int | None) -> CallerError:
    return CallerError.of("NOT_FOUND", f"runbook {name} has no version {version}")


def _fetch(sql: str, *args: Any) -> Script[Sequence[Any]]:
    return (yield Fetch(sql, args))


def _texts() -> Script[list[str]]:
    return [row[0] for row in (yield Fetch(_WORKERS))]

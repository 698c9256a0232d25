"""Publishing and retiring runbooks: their versions, of which one is active, and whether automation is on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from lucius.domain.errors import CallerError, Fault
from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import iso
from lucius.ports.bus import Bus
from lucius.ports.database import Script
from lucius.runbooks.core import records
from lucius.runbooks.core.answers import PublishedVersion, RunbookActed, RunbookLine, RunbookPublished, SourceState
from lucius.runbooks.core.definition.calendar import Freeze
from lucius.runbooks.core.definition.compare import Difference, differences
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.names import data_table_name, tables_collide
from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.core.messages import JOBS_TOPIC, SUBSCRIPTIONS, worker_subscription
from lucius.runbooks.core.records import Control, Version
from lucius.runbooks.engine.turn import Turn, Turns, said
from lucius.runbooks.service.scope import EVERYTHING, Scope, missing
from lucius.runbooks.service.tenant_checks import check_tenant
from lucius.runbooks.sources.calendars import read_calendars
from lucius.runbooks.sources.connections import GrantedConnections
from lucius.runbooks.sources.limits import ConnectionMissing, SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview
from lucius.runbooks.store import controls, freezes, runbooks, trail
from lucius.runbooks.store.runbooks import NewVersion

OVERDUE = ("rerun", "ignore")
PREVIEW_SECONDS_MAX = 10.0
"""How long publication waits to read the columns of a source."""


class Publishing:
    def __init__(
        self,
        turns: Turns,
        bus: Bus,
        limits: SourceLimits | None = None,
        environ: Mapping[str, str] = {},
        own_files: Sequence[Path] = (),
        of_files: Sequence[Freeze] | None = None,
    ) -> None:
        """`limits`, `environ` and `own_files` are for reading sources and calendars; `of_files` are the freezes of
        calendars that are not to be read again."""
        self._of_files = of_files
        self._turns = turns
        self._bus = bus
        limits = limits or SourceLimits()
        self._limits = replace(limits, query_seconds=min(limits.query_seconds, PREVIEW_SECONDS_MAX))
        self._environ = environ
        self._own_files = own_files
        self._workers: set[str] = set()

    async def workers(self) -> list[str]:
        """Every worker with a queue. Queues are never removed, so a cached result stays valid."""
        depths = await self._bus.depths()
        self._workers.update(depth.subscription for depth in depths if depth.topic == JOBS_TOPIC)
        return sorted(self._workers)

    async def knows_worker(self, worker_id: str) -> bool:
        return worker_id in self._workers or worker_id in await self.workers()

    async def declare(self) -> None:
        """Create every queue that a published runbook or a running batch sends to."""
        texts = await self._turns.database.read(runbooks.texts_in_use)
        workers = {step.worker_id for text in texts for step in read_runbook(text.encode()).steps}
        await self._declare(workers)

    async def _declare(self, worker_ids: set[str]) -> None:
        await self._bus.declare([*SUBSCRIPTIONS, *(worker_subscription(worker) for worker in sorted(worker_ids))])

    async def publish(
        self,
        content: bytes,
        actor: str,
        overdue_behavior: str = "rerun",
        rerun_init: bool = False,
        is_stopped: bool = False,
        scope: Scope = EVERYTHING,
    ) -> RunbookPublished:
        """Make this text the active version. Publishing the active text again changes nothing. `is_stopped`: with its
        automation off, from the same moment."""
        if overdue_behavior not in OVERDUE:
            detail = f"overdue_behavior must be {' or '.join(OVERDUE)}"
            raise CallerError.of("ENVELOPE_INVALID", detail, "/overdue_behavior")
        # A hostile text may keep the parser busy for seconds, so it runs in a thread.
        runbook = await asyncio.to_thread(checked, content)
        await asyncio.to_thread(check_tenant, content, runbook, scope, self._turns.grants)
        of_files = self._of_files
        if of_files is None:
            of_files = await asyncio.to_thread(self._read_calendars, content, runbook)
        runbook = await asyncio.to_thread(checked, content, None, of_files)
        unchecked, missing = await self._check_columns(content, runbook)
        await self._declare({step.worker_id for step in runbook.steps})
        text = content.decode()

        def work(turn: Turn) -> Script[RunbookPublished]:
            for name in (yield from runbooks.names()):
                if tables_collide(name, runbook.name):
                    other = f"runbook {name}" if scope.sees(name) else "another runbook"
                    detail = f"{other} has the same table name: choose another name"
                    raise CallerError.of("CONFLICT", detail, "/name")
            yield from controls.create(runbook.name)
            yield from controls.lock(runbook.name)
            control = yield from controls.read(runbook.name)
            if is_stopped and control.automation:
                yield from controls.set_automation(runbook.name, False)
                turn.events.append(trail.entry(turn.now, "automation-off", actor, runbook.name))
            is_on = bool(control.automation) and not is_stopped
            latest = next(iter((yield from runbooks.versions(runbook.name))), None)
            known = None if latest is None else (yield from runbooks.text(runbook.name, latest.version))
            frozen = [] if latest is None else (yield from freezes.of_version(runbook.name, latest.version))
            is_known = known == text and frozen == list(of_files)
            if latest is not None and is_known and _is_same(latest, overdue_behavior, rerun_init):
                return _published(runbook.name, latest.version, False, is_on, unchecked, missing)
            version = latest.version + 1 if latest is not None else 1
            yield from runbooks.deactivate(runbook.name)
            yield from runbooks.add(
                NewVersion(
                    name=runbook.name, tenant_id=tenant_of_runbook(runbook.name), version=version, yaml=text,
                    data_table=data_table_name(runbook.name, version), overdue_behavior=overdue_behavior,
                    rerun_init=rerun_init, created_at=turn.now, created_by=actor,
                )
            )  # fmt: skip
            yield from freezes.add(runbook.name, version, of_files)
            yield from controls.read_again(runbook.name)
            turn.events.append(
                trail.entry(turn.now, "runbook-published", actor, runbook.name, version=version,
                            overdue_behavior=overdue_behavior, rerun_init=rerun_init)
            )  # fmt: skip
            return _published(runbook.name, version, True, is_on, unchecked, missing)

        result = await self._turns.take(work, actor)
        self._turns.definitions.keep(result["version"], runbook)
        return result

    def _read_calendars(self, content: bytes, runbook: Runbook) -> list[Freeze]:
        files = GrantedConnections(self._environ, self._turns.grants, runbook.name)
        with _told():
            return read_calendars(content, runbook.calendar, files, self._own_files, self._turns.clock.now())

    async def _check_columns(self, content: bytes, runbook: Runbook) -> tuple[str | None, str | None]:
        """Check the text against the columns of its source; returns why that was not possible, if so, and the name of
        its connection if there is none."""
        if runbook.source is None:
            return None, None
        try:
            connections = GrantedConnections(self._environ, self._turns.grants, runbook.name)
            rows = await preview(runbook.source, connections, self._limits, self._own_files, limit=1)
        except SourceError as error:
            missing = runbook.source.connection if isinstance(error, ConnectionMissing) else None
            return f"the columns could not be checked: {error}", missing
        await asyncio.to_thread(checked, content, rows.columns)
        return None, None

    async def retire(self, name: str, actor: str, reason: str = "") -> RunbookActed:
        """No new batches; running ones continue to their end."""

        def work(turn: Turn) -> Script[RunbookActed]:
            versions = yield from runbooks.versions(name)
            if not versions:
                raise missing(name)
            yield from runbooks.deactivate(name)
            newest = versions[0].version
            turn.events.append(trail.entry(turn.now, "runbook-retired", actor, name, **said(reason), version=newest))
            return {"name": name, "version": newest, "retired": True}

        return await self._turns.take(work, actor)

    async def set_automation(self, name: str, on: bool, actor: str, reason: str = "") -> RunbookActed:
        def work(turn: Turn) -> Script[RunbookActed]:
            if not (yield from controls.lock(name)):
                raise missing(name)
            yield from controls.set_automation(name, on)
            turn.events.append(
                trail.entry(turn.now, "automation-on" if on else "automation-off", actor, name, **said(reason))
            )
            return {"name": name, "automation": on}

        return await self._turns.take(work, actor)

    async def confirm_source(self, name: str, actor: str, reason: str = "") -> RunbookActed:
        """The source is right despite its few members: the next reading may remove the missing ones."""

        def work(turn: Turn) -> Script[RunbookActed]:
            if not (yield from controls.lock(name)):
                raise missing(name)
            control = yield from controls.read(name)
            if control.held_count is None:
                raise CallerError.of("CONFLICT", f"the source of {name} is not held: there is nothing to confirm")
            yield from controls.confirm(name)
            detail = said(reason) | {"members": control.held_count}
            turn.events.append(trail.entry(turn.now, "source-confirmed", actor, name, **detail))
            return {"name": name, "confirmed": control.held_count}

        return await self._turns.take(work, actor)

    # --- Queries -----------------------------------------------------------------------------------------------------

    async def names(self, scope: Scope = EVERYTHING) -> list[RunbookLine]:
        return [
            {
                "name": line.name, "tenant": tenant_of_runbook(line.name), **shown_version(line),
                "source": shown_source(line),
                "automation": line.automation is None or bool(line.automation), "open_batches": line.open_batches,
            }
            for line in await self._turns.database.read(lambda: runbooks.lines(scope.listed()))
        ]  # fmt: skip

    async def text(self, name: str, version: int | None = None) -> tuple[int, str]:
        """The text of a version, by default the newest."""
        return await self._turns.database.read(lambda: read_text(name, version))

    async def versions(self, name: str) -> list[PublishedVersion]:
        found = await self._turns.database.read(lambda: runbooks.versions(name))
        if not found:
            raise missing(name)
        return [shown_version(one) for one in found]

    async def compare(self, name: str, before: int, after: int) -> list[Difference]:
        for version in (before, after):
            await self.text(name, version)  # Says so if there is none.
        old, new = [
            await self._turns.database.read(partial(self._turns.definitions.get, name, one)) for one in (before, after)
        ]
        return differences(old, new)


def _published(
    name: str, version: int, published: bool, is_on: bool, unchecked: str | None, missing_connection: str | None
) -> RunbookPublished:
    return {
        "name": name, "version": version, "published": published, "automation": is_on, "unchecked": unchecked,
        "missing_connection": missing_connection,
    }  # fmt: skip


def checked(content: bytes, columns: Sequence[str] | None = None, of_files: Sequence[Freeze] = ()) -> Runbook:
    """The runbook; raises `RUNBOOK_INVALID` with the line of every fault."""
    with _told():
        return read_runbook(content, columns, of_files)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except RunbookInvalid as error:
        faults = [Fault("RUNBOOK_INVALID", one.pointer, f"line {one.line}: {one.message}") for one in error.faults]
        raise CallerError(faults) from error


def _is_same(latest: Version, overdue_behavior: str, rerun_init: bool) -> bool:
    """Whether publishing the same text with these settings would change nothing."""
    settings = (latest.overdue_behavior, bool(latest.rerun_init))
    return bool(latest.is_active) and settings == (overdue_behavior, rerun_init)


def shown_source(one: Control | records.RunbookLine) -> SourceState:
    return {
        "state": one.source_state, "detail": one.source_detail, "members": one.source_count,
        "checked_at": None if one.checked_at is None else iso(one.checked_at),
    }  # fmt: skip


def shown_version(one: Version | records.RunbookLine) -> PublishedVersion:
    return {
        "version": one.version, "is_active": bool(one.is_active), "overdue_behavior": one.overdue_behavior,
        "rerun_init": bool(one.rerun_init), "created_at": iso(one.created_at), "created_by": one.created_by,
    }  # fmt: skip


def read_text(name: str, version: int | None) -> Script[tuple[int, str]]:
    """A version, by default the newest, and its text."""
    wanted, text = yield from find_version(name, version, (yield from runbooks.versions(name)))
    return wanted.version, text


def active_text(name: str) -> Script[tuple[int, str]]:
    """The active version, or the newest if none is active, and its text."""
    versions = yield from runbooks.versions(name)
    if not versions:
        raise missing(name)
    wanted = next((one for one in versions if one.is_active), versions[0])
    return (yield from read_text(name, wanted.version))


def find_version(name: str, version: int | None, versions: Sequence[Version]) -> Script[tuple[Version, str]]:
    wanted = next((one for one in versions if version in (None, one.version)), None)
    text = None if wanted is None else (yield from runbooks.text(name, wanted.version))
    if wanted is None or text is None:
        raise missing(name) if not versions else missing_version(name, version)
    return wanted, text


def missing_version(name: str, version: int | None) -> CallerError:
    return CallerError.of("NOT_FOUND", f"runbook {name} has no version {version}")

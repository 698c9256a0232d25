"""Rehearsals on the server: of the active version, one at a time, within limits. Their reports are kept."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.time import Instant, iso
from lucius.ports.database import Script
from lucius.runbooks.core import answers
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.rehearsal.task import RehearsalDone, RehearsalTask, read_done
from lucius.runbooks.service.publishing import active_text
from lucius.runbooks.service.scope import missing
from lucius.runbooks.store import freezes, rehearsal_reports, runbooks
from lucius.runbooks.store.rehearsal_reports import RehearsalRow

log = logging.getLogger("lucius.runbooks")

MEMBERS_MAX = 2_000
SECONDS_MAX = 60.0
RETRY_AFTER_SECONDS = 10.0
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")
"""Of the environment: secrets are not handed on."""


class RehearsalWish(Struct, frozen=True, kw_only=True):
    csv: str | None = None
    count: int = 0
    start: Instant | None = None
    seed: int = 1
    options: dict[str, Any] = {}


class Rehearsals:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._running = asyncio.Lock()

    async def make(self, name: str, wish: RehearsalWish, actor: str) -> answers.Rehearsal:
        """Rehearse the active version, or the newest if none is active. Raises CONFLICT while another one runs."""
        version, text = await self._turns.database.read(lambda: active_text(name))
        of_files = await self._turns.database.read(lambda: freezes.of_version(name, version))
        if self._running.locked():
            detail = "the server is rehearsing another runbook: try again in a moment"
            raise CallerError.of("CONFLICT", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        clock = self._turns.clock
        async with self._running:
            task = RehearsalTask(
                yaml=text, of_files=of_files, csv=wish.csv, count=wish.count, start=wish.start, now=clock.now(),
                seed=wish.seed, options=wish.options, members_max=MEMBERS_MAX,
            )  # fmt: skip
            done = await _run(task)
        if done.error is not None:
            raise CallerError.of(done.code or "ENVELOPE_INVALID", done.error)
        row = RehearsalRow(clock.job_id(), name, version, clock.now(), actor, msgspec.json.encode(done.report).decode())

        def keep(turn: Turn) -> Script[None]:
            turn.runbooks.add(name)
            yield from rehearsal_reports.add(row)

        await self._turns.take(keep, actor)
        return _shown(row)

    async def newest(self, name: str) -> list[answers.Rehearsal]:
        """With their reports, newest first."""

        def script() -> Script[list[RehearsalRow]]:
            if not (yield from runbooks.versions(name)):
                raise missing(name)
            return (yield from rehearsal_reports.newest(name, rehearsal_reports.KEPT_MAX))

        return [_shown(row) for row in await self._turns.database.read(script)]

    async def get(self, name: str, rehearsal_id: str) -> answers.Rehearsal:
        found = await self._turns.database.read(lambda: rehearsal_reports.find(rehearsal_id))
        if found is None or found.runbook_name != name:
            raise CallerError.of("NOT_FOUND", f"runbook {name} has no such rehearsal; the newest 20 are kept")
        return _shown(found)


async def _run(task: RehearsalTask) -> RehearsalDone:
    environment = {variable: os.environ[variable] for variable in KEPT_VARIABLES if variable in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lucius.runbooks.rehearsal.process", stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS_MAX):
            told, errors = await process.communicate(msgspec.json.encode(task))
    except TimeoutError:
        detail = f"the rehearsal took longer than {SECONDS_MAX:g} s: use fewer members, or 'lucius runbook rehearse'"
        raise CallerError.of("CONFLICT", detail) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = errors.decode(errors="replace")[-2_000:]
        log.error("a rehearsal failed with exit code %d: %s", process.returncode, said)
        raise InfrastructureError.unavailable("the rehearsal failed; the server's log says why")
    return read_done(told)


def _shown(row: RehearsalRow) -> answers.Rehearsal:
    return {
        "rehearsal_id": row.rehearsal_id,
        "runbook": row.runbook_name,
        "version": row.version,
        "made_at": iso(row.made_at),
        "made_by": row.made_by,
        "report": msgspec.json.decode(row.report),
    }

"""What operators do with batches: make one, advance it, cancel, hold and resume it, retry and remove members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from lucius.domain.errors import CallerError
from lucius.domain.time import Instant
from lucius.runbooks import retries
from lucius.runbooks.csv_members import read_csv_members
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.orchestrator.chains import SKIP_PENDING
from lucius.runbooks.orchestrator.consequences import follow
from lucius.runbooks.orchestrator.progress import end_batch
from lucius.runbooks.orchestrator.turn import Turn, Turns
from lucius.runbooks.scheduler.batching import RUNBOOK, RunbookRow, add_members, create_batch, remove_members
from lucius.runbooks.scheduler.comparison import chunks
from lucius.runbooks.scheduler.detection import PAGE, start_work, to_rows
from lucius.runbooks.scheduler.scheduler import begin_phase
from lucius.runbooks.sources.limits import SourceLimits
from lucius.runbooks.sources.rows import Members
from lucius.runbooks.states import (
    BATCH_ENDED,
    BECAUSE_LIMIT,
    BECAUSE_STOPPED,
    DETECTED,
    FAILED,
    PENDING,
)
from lucius.runbooks.tables import batches, executions
from lucius.runbooks.tables.batches import Batch
from lucius.runbooks.tables.data_tables import BY_HAND, open_table
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

T = TypeVar("T")

_ACTIVE = f"{RUNBOOK} WHERE name = $1 AND is_active = TRUE"
_OF_BATCH = f"{RUNBOOK} WHERE id = (SELECT b.runbook_id FROM batches b WHERE b.id = $1)"
_MEMBERS_BY_KEY = (
    "SELECT id, member_key FROM batch_members WHERE batch_id = $1 AND status = 'active'"
    " AND member_key = ANY($2::text[])"
)


class Operations:
    def __init__(self, turns: Turns, limits: SourceLimits) -> None:
        self._turns = turns
        self._limits = limits

    async def _act(self, batch_id: int, actor: str, work: Any) -> Any:
        """One act on one batch: locked, done, its consequences drawn, and written to the trail."""

        def turned(turn: Turn) -> Script[Any]:
            yield from turn.lock([batch_id])
            if batch_id not in turn.batches:
                raise missing_batch(batch_id)
            result = yield from work(turn, turn.batches[batch_id])
            yield from turn.changes.write()
            yield from follow(turn)
            return result

        return await self._turns.take(turned, actor)

    # --- Making and advancing ----------------------------------------------------------------------------------------

    async def create_batch(self, name: str, csv: bytes, start: Instant, advance: str, actor: str) -> dict[str, Any]:
        """A batch of the members in a CSV. `advance`: by its phases' `time`, or `manual`, phase by phase."""
        row, runbook = await self._active(name)
        found = await self._read(csv, runbook)

        def create(turn: Turn) -> Script[int]:
            return (yield from create_batch(turn, row, runbook, start, BY_HAND, advance)).id

        batch_id: int = await self._turns.take(create, actor)
        await self._put_in(batch_id, row, found, actor)
        await self._turns.take(start_work(batch_id), actor)
        return {"batch_id": batch_id, "runbook": name, "version": row.version, "members": len(found.members)}

    async def add_members(self, batch_id: int, csv: bytes, actor: str) -> dict[str, Any]:
        """Members that join a batch: they catch up on what the others have behind them."""
        row, runbook = await self._of_batch(batch_id)
        found = await self._read(csv, runbook)
        await self._put_in(batch_id, row, found, actor)
        return {"batch_id": batch_id, "members": len(found.members)}

    async def _put_in(self, batch_id: int, row: RunbookRow, found: Members, actor: str) -> None:
        for page in chunks(found.members, PAGE):
            await self._act(batch_id, actor, partial(_put_in, row, found, page))

    async def advance(self, batch_id: int, actor: str) -> dict[str, Any]:
        """Begin the next phase that has not begun, whenever it is due."""

        def find(turn: Turn, batch: Batch) -> Script[tuple[int, str]]:
            _ensure_open(batch)
            if batch.status != "active":
                raise CallerError.of("CONFLICT", f"batch {batch.id} is {batch.status}: its phases wait for its init")
            if batch.held_at is not None:
                raise CallerError.of("CONFLICT", f"batch {batch.id} is held: {batch.hold_reason}; resume it first")
            pending = [phase for phase in (yield from batches.phases_of(batch.id)) if phase.status == PENDING]
            if not pending:
                raise CallerError.of("CONFLICT", f"every phase of batch {batch.id} has begun")
            turn.note("batch-advanced", batch, phase=pending[0].name)
            return pending[0].id, pending[0].name

        phase_id, name = await self._act(batch_id, actor, find)
        await begin_phase(partial(self._turns.take, actor=actor), phase_id, batch_id)
        return {"batch_id": batch_id, "phase": name}

    # --- Stopping and going on ---------------------------------------------------------------------------------------

    async def cancel(self, batch_id: int, reason: str, actor: str) -> dict[str, Any]:
        """Nothing more is sent; what workers have may finish. Rollbacks that run go on."""

        def work(turn: Turn, batch: Batch) -> Script[dict[str, Any]]:
            _ensure_open(batch)
            why = f"cancelled by {turn.actor}: {reason}" if reason else f"cancelled by {turn.actor}"
            for table in ("step_executions", "init_executions"):
                # Steps are found by way of their phases: an index of theirs by batch would serve nothing else.
                where = f"{'p' if table == 'step_executions' else 'e'}.batch_id = $1 AND e.{OPEN}"
                for one in turn.changes.hold((yield from executions.select(table, where, batch.id))):
                    if one.status == PENDING or not one.in_flight:
                        one.cancel(turn.now, BECAUSE_STOPPED, why)
            yield Run(SKIP_PENDING, [(batch.id, turn.now, why)])
            yield Run(batches.HOLD_BATCH, [(batch.id, None, None)])
            turn.note("batch-cancelled", batch, reason=reason)
            yield from end_batch(turn, batch, FAILED, why)
            touched = turn.touch(batch.id)
            touched.phases.update(phase.id for phase in (yield from batches.phases_of(batch.id)))
            return {"batch_id": batch.id, "status": batch.status}

        result: dict[str, Any] = await self._act(batch_id, actor, work)
        return result

    async def resume(self, batch_id: int, actor: str) -> dict[str, Any]:
        """Go on after `max_failures` held the batch: what was cancelled for it runs, and failures count anew."""

        def work(turn: Turn, batch: Batch) -> Script[dict[str, Any]]:
            if batch.held_at is None:
                raise CallerError.of("CONFLICT", f"batch {batch.id} is not held")
            yield Run(batches.HOLD_BATCH, [(batch.id, None, None)])
            batch.held_at = batch.hold_reason = None
            yield from retries.forgive(batch)
            count = yield from retries.revive(turn, batch, None, frozenset({BECAUSE_LIMIT}))
            if count:  # With nothing to run, an ended batch would never end again.
                yield from retries.reopen_batch(turn, batch)
            turn.note("batch-resumed", batch, steps=count)
            return {"batch_id": batch.id, "status": batch.status, "steps": count}

        result: dict[str, Any] = await self._act(batch_id, actor, work)
        return result

    async def retry(self, batch_id: int, member_keys: Sequence[str] | None, actor: str) -> dict[str, Any]:
        """Failed members (all, or these) try their failed step again and go on from there; a failed init too."""
        result: dict[str, Any] = await self._act(batch_id, actor, partial(retries.retry, member_keys=member_keys))
        return result

    async def remove(self, batch_id: int, member_keys: Sequence[str], actor: str) -> dict[str, Any]:
        def work(turn: Turn, batch: Batch) -> Script[dict[str, Any]]:
            _ensure_open(batch)
            rows = yield Fetch(_MEMBERS_BY_KEY, (batch.id, list(member_keys)))
            unknown = set(member_keys) - {row[1] for row in rows}
            if unknown:
                named = ", ".join(sorted(unknown)[:5])
                raise CallerError.of("NOT_FOUND", f"batch {batch.id} has no active member {named}")
            yield from remove_members(turn, batch, [(row[0], row[1]) for row in rows], "by hand")
            return {"batch_id": batch.id, "removed": len(rows)}

        result: dict[str, Any] = await self._act(batch_id, actor, work)
        return result

    # --- Inside ------------------------------------------------------------------------------------------------------

    async def _active(self, name: str) -> tuple[RunbookRow, Runbook]:
        def script() -> Script[tuple[RunbookRow, Runbook]]:
            rows = yield Fetch(_ACTIVE, [name])
            if not rows:
                raise CallerError.of("NOT_FOUND", f"there is no active runbook {name}")
            row = RunbookRow(*rows[0])
            return row, (yield from self._turns.definitions.get(name, row.version))

        return await self._turns.database.read(script)

    async def _of_batch(self, batch_id: int) -> tuple[RunbookRow, Runbook]:
        def script() -> Script[tuple[RunbookRow, Runbook]]:
            rows = yield Fetch(_OF_BATCH, [batch_id])
            if not rows:
                raise missing_batch(batch_id)
            row = RunbookRow(*rows[0])
            return row, (yield from self._turns.definitions.get(row.name, row.version))

        return await self._turns.database.read(script)

    async def _read(self, csv: bytes, runbook: Runbook) -> Members:
        return await asyncio.to_thread(read_csv_members, csv, runbook, self._limits)


def _ensure_open(batch: Batch) -> None:
    if batch.status in BATCH_ENDED:
        raise CallerError.of("CONFLICT", f"batch {batch.id} has ended: it is {batch.status}")


def _put_in(row: RunbookRow, found: Members, keys: Sequence[str], turn: Turn, batch: Batch) -> Script[None]:
    _ensure_open(batch)
    table = yield from open_table(row.id, row.data_table, found.columns)
    unknown = [column for column in found.columns if column not in table.columns]
    if unknown:
        detail = f"runbook {row.name} has no column {', '.join(unknown[:5])}: its table has {', '.join(table.columns)}"
        raise CallerError.of("MEMBERS_INVALID", detail, "/csv")
    rows = to_rows(found, keys, table.columns)
    there = yield from table.exists(keys)
    yield from table.add([one for one in rows if one.key not in there], turn.now, BY_HAND)
    yield from table.change([one for one in rows if one.key in there], turn.now, BY_HAND)
    yield from add_members(turn, batch, keys, told=batch.status != DETECTED)


def missing_batch(batch_id: int) -> CallerError:
    return CallerError.of("NOT_FOUND", f"there is no batch {batch_id}")

"""Operators' actions on batches: create, advance, cancel, hold and resume them, retry and remove members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from lucius.domain.errors import CallerError
from lucius.domain.time import Instant
from lucius.ports.database import Script
from lucius.runbooks.core.answers import BatchActed, BatchMade
from lucius.runbooks.core.comparison import chunks
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import BY_HAND, Batch, Member, RunbookRow
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.core.states import (
    BECAUSE_LIMIT,
    BECAUSE_STOPPED,
    DETECTED,
    FAILED,
    PENDING,
)
from lucius.runbooks.engine.approvals import expire, state_of, wait_of
from lucius.runbooks.engine.batching import add_members, create_batch, remove_members
from lucius.runbooks.engine.consequences import apply_consequences
from lucius.runbooks.engine.detection import PAGE, start_work, to_rows
from lucius.runbooks.engine.moves import confirm_moves, keep_members
from lucius.runbooks.engine.phases import begin_phase
from lucius.runbooks.engine.progress import end_batch
from lucius.runbooks.engine.turn import Turn, Turns, said
from lucius.runbooks.service import approvals, pauses, retries
from lucius.runbooks.service.csv_members import read_members_to_add
from lucius.runbooks.service.pauses import ensure_open
from lucius.runbooks.service.scope import EVERYTHING, Scope, missing_batch
from lucius.runbooks.sources.limits import SourceLimits
from lucius.runbooks.store import batches, controls, inits, members, moves, phases, runbooks
from lucius.runbooks.store.data_tables import DataTable, open_table

T = TypeVar("T")
HELD_MAX = 100_000
"""Held members that one call decides about."""


class Operations:
    def __init__(self, turns: Turns, limits: SourceLimits) -> None:
        self._turns = turns
        self._limits = limits

    async def _act(self, batch_id: int, actor: str, work: Any) -> Any:
        """Run one action on one locked batch, with its consequences, and record it in the trail."""

        def turned(turn: Turn) -> Script[Any]:
            yield from turn.lock([batch_id])
            if batch_id not in turn.batches:
                raise missing_batch(batch_id)
            result = yield from work(turn, turn.batches[batch_id])
            yield from turn.changes.write()
            yield from apply_consequences(turn)
            return result

        return await self._turns.take(turned, actor)

    # --- Creating and advancing --------------------------------------------------------------------------------------

    async def create_batch(
        self, name: str, csv: bytes, start: Instant, advance: str, actor: str, scope: Scope = EVERYTHING
    ) -> BatchMade:
        """Create a batch of the members in a CSV. `advance`: by `time`, when phases are due, or `manual`."""
        if not scope.sees(name):
            raise _no_active(name)
        row, runbook = await self._active(name)
        found = await self._read(csv, runbook)

        def create(turn: Turn) -> Script[int]:
            yield from _own_table(row, found)
            return (yield from create_batch(turn, row, runbook, start, BY_HAND, advance)).id

        batch_id: int = await self._turns.take(create, actor)
        await self._put_in(batch_id, row, found, actor)
        await self._turns.take(start_work(batch_id), actor)
        return {"batch_id": batch_id, "runbook": name, "version": row.version, "members": len(found.members)}

    async def add_members(self, batch_id: int, csv: bytes, actor: str, reason: str = "") -> BatchActed:
        """Add members to a batch; they catch up with the others."""
        row, runbook = await self._of_batch(batch_id)
        found = await self._read(csv, runbook)
        await self._put_in(batch_id, row, found, actor, reason)
        return {"batch_id": batch_id, "members": len(found.members)}

    async def _put_in(self, batch_id: int, row: RunbookRow, found: Members, actor: str, reason: str = "") -> None:
        for page in chunks(found.members, PAGE):
            await self._act(batch_id, actor, partial(_put_in, row, found, page, reason))

    async def advance(self, batch_id: int, actor: str, reason: str = "") -> BatchActed:
        """Begin the next phase that has not begun, whenever it is due."""

        def find(turn: Turn, batch: Batch) -> Script[tuple[int | None, BatchActed]]:
            ensure_open(batch)
            if batch.status != "active":
                raise CallerError.of("CONFLICT", f"batch {batch.id} is {batch.status}: its phases wait for its init")
            if batch.held_at is not None:
                raise CallerError.of("CONFLICT", f"batch {batch.id} is held: {batch.hold_reason}; resume it first")
            if batch.is_paused:
                raise CallerError.of("CONFLICT", f"batch {batch.id} is {batch.pause_reason}; resume it first")
            pending = [phase for phase in (yield from phases.of_batch(batch.id)) if phase.status == PENDING]
            if not pending:
                raise CallerError.of("CONFLICT", f"every phase of batch {batch.id} has begun")
            wait = yield from wait_of(turn, batch, pending[0])
            if wait is not None:
                detail = f"phase {pending[0].name} of batch {batch.id} waits until {utc(wait.until_at)}: {wait.because}"
                raise CallerError.of("CONFLICT", f"{detail}; advance the batch when that is over")
            turn.note("batch-advanced", batch, phase=pending[0].name, **said(reason))
            state = yield from state_of(turn, batch, pending[0])
            if state is not None and state.missing and not (yield from expire(turn, batch, pending[0], state)):
                missing, status = state.missing, batch.status
                return None, {
                    "batch_id": batch_id, "phase": pending[0].name, "approvals_missing": missing, "status": status,
                }  # fmt: skip
            return pending[0].id, {"batch_id": batch_id, "phase": pending[0].name}

        phase_id, result = await self._act(batch_id, actor, find)
        if phase_id is not None:
            await begin_phase(partial(self._turns.take, actor=actor), phase_id, batch_id, by_hand=True)
        acted: BatchActed = result
        return acted

    async def decide(
        self, batch_id: int, phase: str, decision: str, actor: str, may: Callable[[str], bool], reason: str = ""
    ) -> BatchActed:
        """Approve or refuse a phase that needs approval. `may`: whether the actor has a role."""
        work = partial(approvals.decide, name=phase, decision=decision, may=may, reason=reason)
        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    # --- Stopping and resuming ---------------------------------------------------------------------------------------

    async def cancel(self, batch_id: int, reason: str, actor: str) -> BatchActed:
        """Send nothing more; running jobs may finish. Running rollbacks continue. The batch has ended at once; the
        steps of a large one are cancelled by the turns that follow."""

        def work(turn: Turn, batch: Batch) -> Script[BatchActed]:
            ensure_open(batch)
            why = f"cancelled by {turn.actor}: {reason}" if reason else f"cancelled by {turn.actor}"
            for one in turn.changes.hold((yield from inits.open_of_batch(batch.id))):
                if not one.in_flight:
                    one.cancel(turn.now, BECAUSE_STOPPED, why)
            yield from phases.skip_pending(batch.id, turn.now, BECAUSE_STOPPED, why)
            turn.log.anything(batch.id)
            yield from batches.hold(batch, None, None)
            yield from batches.set_cancelled(batch, turn.now)
            turn.note("batch-cancelled", batch, reason=reason)
            yield from end_batch(turn, batch, FAILED, why)
            touched = turn.touch(batch.id)
            touched.phases.update(phase.id for phase in (yield from phases.of_batch(batch.id)))
            return {"batch_id": batch.id, "status": batch.status}

        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def pause(self, batch_id: int, actor: str, reason: str = "") -> BatchActed:
        """Send and begin nothing new; what workers have begun goes on to its end. Pausing twice is pausing once."""
        result: BatchActed = await self._act(batch_id, actor, partial(pauses.pause, reason=reason))
        return result

    async def reschedule(
        self,
        batch_id: int,
        start: Instant,
        actor: str,
        reason: str = "",
        dry_run: bool = False,
        if_start: Instant | None = None,
    ) -> BatchActed:
        """Let the phases that have not begun be due as if the batch started then. `dry_run`: only show what would move.
        `if_start`: only if it starts then now."""
        work = partial(pauses.reschedule, start=start, reason=reason, dry_run=dry_run, if_start=if_start)
        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def resume(self, batch_id: int, actor: str, reason: str = "") -> BatchActed:
        """Continue a paused batch. One that is not, but held by `max_failures`: steps cancelled by it run, and failures
        are counted afresh."""

        def work(turn: Turn, batch: Batch) -> Script[BatchActed]:
            if batch.is_paused:
                return (yield from pauses.resume(turn, batch, reason))
            if batch.held_at is None:
                raise CallerError.of("CONFLICT", f"batch {batch.id} is neither paused nor held")
            yield from batches.hold(batch, None, None)
            yield from phases.forgive(batch.id)
            count = yield from retries.revive(turn, batch, None, frozenset({BECAUSE_LIMIT}))
            if count:  # With nothing to run, a reopened batch would never end.
                yield from retries.reopen_batch(turn, batch)
            turn.note("batch-resumed", batch, steps=count, **said(reason))
            return {"batch_id": batch.id, "status": batch.status, "steps": count, "held": False}

        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def retry(
        self,
        batch_id: int,
        member_keys: Sequence[str] | None,
        actor: str,
        reason: str = "",
        not_started: bool = False,
    ) -> BatchActed:
        """Failed members (all, or these) retry their failed step and continue from there; so does a failed init.
        `not_started`: instead, members that did not fail and that `max_failures` stopped before their steps began."""
        retry = retries.retry_not_started if not_started else retries.retry
        work = partial(retry, member_keys=member_keys, reason=reason)
        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def remove(self, batch_id: int, member_keys: Sequence[str], actor: str, reason: str = "") -> BatchActed:
        def work(turn: Turn, batch: Batch) -> Script[BatchActed]:
            ensure_open(batch)
            found = yield from members.active_by_key(batch.id, member_keys)
            unknown = set(member_keys) - {member.key for member in found}
            if unknown:
                named = ", ".join(sorted(unknown)[:5])
                raise CallerError.of("NOT_FOUND", f"batch {batch.id} has no active member {named}")
            leaving = [(member.id, member.key) for member in found]
            yield from remove_members(turn, batch, leaving, f"by hand: {reason}" if reason else "by hand", False)
            return {"batch_id": batch.id, "removed": len(found)}

        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def confirm_move(
        self, batch_id: int, member_keys: Sequence[str] | None, actor: str, reason: str = ""
    ) -> BatchActed:
        """Held members (all, or these) leave this batch; the next reading books them at the source's date."""

        def work(turn: Turn, batch: Batch) -> Script[BatchActed]:
            held = yield from _held(batch, member_keys)
            yield from confirm_moves(turn, batch, held, reason)
            yield from controls.read_again(batch.runbook_name)
            return {"batch_id": batch.id, "members": len(held)}

        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    async def keep(self, batch_id: int, member_keys: Sequence[str] | None, actor: str, reason: str = "") -> BatchActed:
        """Held members (all, or these) go on in this batch, whatever date the source has for them now."""

        def work(turn: Turn, batch: Batch) -> Script[BatchActed]:
            held = yield from _held(batch, member_keys)
            yield from keep_members(turn, batch, held, reason)
            return {"batch_id": batch.id, "members": len(held)}

        result: BatchActed = await self._act(batch_id, actor, work)
        return result

    # --- Internals ---------------------------------------------------------------------------------------------------

    async def _active(self, name: str) -> tuple[RunbookRow, Runbook]:
        def script() -> Script[tuple[RunbookRow, Runbook]]:
            row = yield from runbooks.active_by_name(name)
            if row is None:
                raise _no_active(name)
            return row, (yield from self._turns.definitions.get(name, row.version))

        return await self._turns.database.read(script)

    async def _of_batch(self, batch_id: int) -> tuple[RunbookRow, Runbook]:
        def script() -> Script[tuple[RunbookRow, Runbook]]:
            row = yield from runbooks.of_batch(batch_id)
            if row is None:
                raise missing_batch(batch_id)
            return row, (yield from self._turns.definitions.get(row.name, row.version))

        return await self._turns.database.read(script)

    async def _read(self, csv: bytes, runbook: Runbook) -> Members:
        return await asyncio.to_thread(read_members_to_add, csv, runbook, self._limits)


def _held(batch: Batch, member_keys: Sequence[str] | None) -> Script[list[Member]]:
    """The members that are held because their date moved: all, or these."""
    ensure_open(batch)
    held = {member.key: member for member in (yield from moves.held(batch.id, HELD_MAX))}
    if member_keys is None:
        if not held:
            raise CallerError.of("CONFLICT", f"no member of batch {batch.id} is held because its date moved")
        return list(held.values())
    unknown = [key for key in member_keys if key not in held]
    if unknown:
        raise CallerError.of("CONFLICT", f"batch {batch.id} holds no member {', '.join(unknown[:5])}")
    return [held[key] for key in member_keys]


def _put_in(
    row: RunbookRow, found: Members, keys: Sequence[str], reason: str, turn: Turn, batch: Batch
) -> Script[None]:
    ensure_open(batch)
    table = yield from _own_table(row, found)
    rows = to_rows(found, keys, table.columns)
    existing = yield from table.exists(keys)
    yield from table.add([one for one in rows if one.key not in existing], turn.now, BY_HAND)
    yield from table.change([one for one in rows if one.key in existing], turn.now, BY_HAND)
    yield from add_members(turn, batch, keys, announce=batch.status != DETECTED, by_source=False, reason=reason)


def _own_table(row: RunbookRow, found: Members) -> Script[DataTable]:
    """The table that these members can be written to."""
    table = yield from open_table(row.id, row.data_table, found.columns)
    if not table.is_own:
        detail = f"another scheduler keeps the members of runbook {row.name}: add them there"
        raise CallerError.of("CONFLICT", detail)
    unknown = [column for column in found.columns if column not in table.columns]
    if unknown:
        detail = f"runbook {row.name} has no column {', '.join(unknown[:5])}: its table has {', '.join(table.columns)}"
        raise CallerError.of("MEMBERS_INVALID", detail, "/csv")
    return table


def _no_active(name: str) -> CallerError:
    return CallerError.of("NOT_FOUND", f"there is no active runbook {name}")

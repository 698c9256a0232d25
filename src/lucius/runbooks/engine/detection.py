"""Reads a runbook's source and applies the changes, one page of members per transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lucius.domain.time import Instant, after
from lucius.ports.database import Script
from lucius.runbooks.core.comparison import Comparison, Membership, Missing, StoredState, chunks
from lucius.runbooks.core.definition.model import DataSource, Runbook
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import FROM_SOURCE, RunbookRow
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.core.states import BATCH_ENDED, BECAUSE_UNMADE, DETECTED, FAILED
from lucius.runbooks.engine.batching import add_members, create_batch, remove_members, start_batch
from lucius.runbooks.engine.chains import stop_phases
from lucius.runbooks.engine.moves import move_members, withdraw_moves
from lucius.runbooks.engine.progress import end_batch
from lucius.runbooks.engine.turn import Take, Turn
from lucius.runbooks.store import absences, batches, members, moves, trail
from lucius.runbooks.store.data_tables import DataRow, open_table

PAGE = 500
SEEN_PAGE = 4_000


def stored_state(row: RunbookRow, source: DataSource, found: Members) -> Script[StoredState]:
    """The state of the tables, read consistently."""
    open_batches = yield from batches.open_from_source(row.name)
    memberships = {
        key: Membership(member_id, batch_id, not by_source, move_to)
        for key, member_id, batch_id, by_source, move_to in (yield from members.of_open_batches(row.name))
    }
    finished: set[tuple[str, Instant]] = set()
    ever: set[str] = set()
    if source.batch_time_column is None:
        ever = {key for key, _ in (yield from members.not_again(row.name))} | set(memberships)
    else:
        starts = sorted({member.batch_time for member in found.members.values() if member.batch_time is not None})
        finished = yield from members.not_again(row.name, starts)
        finished |= yield from moves.kept(row.name, starts)
    table = yield from open_table(row.id, row.data_table, found.columns)
    known = yield from table.known()
    missing = yield from absences.read(row.name)
    return StoredState(
        open_batches=open_batches, members=memberships, finished=finished, ever=ever, known=known, absences=missing
    )


def make_table(row: RunbookRow, found: Members) -> Script[None]:
    yield from open_table(row.id, row.data_table, found.columns)


async def apply_changes(
    take: Take, row: RunbookRow, runbook: Runbook, found: Members, result: Comparison, now: Instant
) -> None:
    """Write data first, so that every announced member has its row; then removals, joins, and new batches."""
    for work in _data_pages(row, found, result):
        await take(work)
    for start in range(0, len(result.missing), PAGE):
        await take(_note_missing(row, result.missing[start : start + PAGE]))
    for batch_id, leaving in result.removals.items():
        for start in range(0, len(leaving), PAGE):
            await take(_removal(batch_id, leaving[start : start + PAGE]))
    held = await _move(take, result)
    for batch_id, keys in result.joins.items():
        for page in chunks([key for key in keys if key not in held], PAGE):
            await take(_join(batch_id, page, row, found, result))
    for start_time in sorted(result.batches):
        keys = [key for key in result.batches[start_time] if key not in held]
        if keys:
            await _new_batch(take, row, runbook, found, result, start_time, keys)
    # Last: if this process dies before this, the missing members are still known to be missing.
    for page in chunks(result.left, PAGE):
        await take(partial(_forget, row, page))
    for start in range(0, len(result.found_again), PAGE):
        await take(_note_found_again(row, result.found_again[start : start + PAGE]))
    await _note_seen(take, row, found, now)


def _data_pages(row: RunbookRow, found: Members, result: Comparison) -> Iterator[Callable[[Turn], Script[None]]]:
    for page in chunks(result.new_rows, PAGE):
        yield _write_rows(row, found, page, is_new=True)
    for page in chunks([key for key in result.changed_rows if key not in result.returning], PAGE):
        yield _write_rows(row, found, page, is_new=False)
    for page in chunks(result.gone_rows, PAGE):
        yield _drop_rows(row, found, page)


def _write_rows(row: RunbookRow, found: Members, keys: Sequence[str], is_new: bool) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        rows = to_rows(found, keys, table.columns)
        if is_new:
            # A member added by an operator already has a row; from now on the source owns it.
            existing = yield from table.exists(keys)
            yield from table.add([one for one in rows if one.key not in existing], turn.now)
            rows = [one for one in rows if one.key in existing]
        yield from table.change(rows, turn.now, FROM_SOURCE)

    return work


def to_rows(found: Members, keys: Sequence[str], columns: Sequence[str]) -> list[DataRow]:
    """Members as rows of a table with these columns; columns missing from the source are empty."""
    places = {column: place for place, column in enumerate(found.columns)}
    order = [places.get(column) for column in columns]
    same = order == list(range(len(found.columns)))
    rows = []
    for key in keys:
        member = found.members[key]
        values = member.values if same else tuple(None if at is None else member.values[at] for at in order)
        rows.append(DataRow(key, member.batch_time, values, member.digest.hex()))
    return rows


def _drop_rows(row: RunbookRow, found: Members, keys: Sequence[str]) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        yield from table.drop(keys)

    return work


def _note_missing(row: RunbookRow, missing: Sequence[Missing]) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from absences.add(row.name, [(one.key, one.absence) for one in missing])
        for one in missing:
            if one.can_be_removed:
                turn.events.append(trail.entry(turn.now, "member-missing", turn.actor, row.name, **_absence(one)))

    return work


def _note_found_again(row: RunbookRow, back: Sequence[Missing]) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from absences.drop(row.name, [one.key for one in back])
        for one in back:
            if one.can_be_removed:
                turn.events.append(trail.entry(turn.now, "member-found-again", turn.actor, row.name, **_absence(one)))

    return work


def _forget(row: RunbookRow, keys: Sequence[str], turn: Turn) -> Script[None]:
    yield from absences.drop(row.name, keys)


def _absence(one: Missing) -> dict[str, Any]:
    assert one.membership is not None
    return {
        "batch_id": one.membership.batch_id, "member_id": one.membership.member_id, "member": one.key,
        "since": utc(one.absence.since), "removal_at": utc(one.absence.removal_at),
    }  # fmt: skip


async def _note_seen(take: Take, row: RunbookRow, found: Members, now: Instant) -> None:
    def bounds(turn: Turn) -> Script[tuple[int, int]]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        return (yield from table.bounds())

    def page(start: int, turn: Turn) -> Script[None]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        yield from table.seen(start, start + SEEN_PAGE, now, row.name)

    first, last = await take(bounds)
    for start in range(first, last + 1, SEEN_PAGE):
        await take(partial(page, start))


async def _move(take: Take, result: Comparison) -> set[str]:
    """Take members whose date moved out of their batches; returns the keys of those that are held there instead."""
    held: set[str] = set()
    for batch_id, moving in result.moves.items():
        for start in range(0, len(moving), PAGE):
            held |= await take(partial(move_members, batch_id, moving[start : start + PAGE]))
    for batch_id, staying in result.withdrawn.items():
        for start in range(0, len(staying), PAGE):
            await take(partial(withdraw_moves, batch_id, staying[start : start + PAGE]))
    return held


def _removal(batch_id: int, leaving: Sequence[tuple[int, str]]) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        reason = "the source no longer has it"
        yield from remove_members(turn, turn.batches[batch_id], leaving, reason, by_source=True)

    return work


def _join(
    batch_id: int, keys: Sequence[str], row: RunbookRow, found: Members, result: Comparison
) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        batch = turn.batches[batch_id]
        if batch.status not in BATCH_ENDED:  # Otherwise the next reading puts them in a new batch.
            back = [key for key in keys if key in result.returning]
            if back:
                yield from _write_rows(row, found, back, is_new=False)(turn)
            yield from add_members(turn, batch, keys, announce=batch.status != DETECTED, by_source=True)

    return work


async def _new_batch(
    take: Take,
    row: RunbookRow,
    runbook: Runbook,
    found: Members,
    result: Comparison,
    start_time: Instant,
    keys: Sequence[str],
) -> None:
    """If this process dies halfway, the next reading adds the remaining members and starts the batch."""

    def create(turn: Turn) -> Script[int]:
        return (yield from create_batch(turn, row, runbook, start_time, FROM_SOURCE, "time")).id

    batch_id = await take(create)
    for page in chunks(keys, PAGE):
        await take(_join(batch_id, page, row, found, result))
    await take(start_work(batch_id))


def start_work(batch_id: int) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        batch = turn.batches[batch_id]
        yield from start_batch(turn, batch, (yield from turn.runbook(batch)))

    return work


INCOMPLETE_SECONDS = 600.0
"""How long adding the members of a manual batch may take; after that its creator must have died."""


def incomplete(now: Instant) -> Script[list[int]]:
    """Manual batches that nobody is completing: the caller got no response and will retry."""
    return (yield from batches.incomplete(after(now, -INCOMPLETE_SECONDS)))


def give_up_incomplete(batch_id: int, turn: Turn) -> Script[None]:
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    if batch.status == DETECTED:
        reason = "creation was interrupted; create the batch again"
        yield from stop_phases(turn, batch, BECAUSE_UNMADE, reason)
        yield from end_batch(turn, batch, FAILED, reason)


def never_started(name: str) -> Script[list[int]]:
    """Batches created but never started because their creator died. They start once their members are compared."""
    return (yield from batches.not_started(name))

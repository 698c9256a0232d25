"""Reading one runbook's source and carrying out what follows from it, a page of members a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from lucius.domain.time import Instant, after
from lucius.runbooks.definition.model import DataSource, Runbook
from lucius.runbooks.orchestrator.chains import stop_phases
from lucius.runbooks.orchestrator.progress import end_batch
from lucius.runbooks.orchestrator.turn import Take, Turn
from lucius.runbooks.scheduler.batching import RunbookRow, add_members, create_batch, remove_members, start_batch
from lucius.runbooks.scheduler.comparison import Comparison, Membership, Standing, chunks
from lucius.runbooks.sources.rows import Members
from lucius.runbooks.states import BATCH_ENDED, DETECTED, FAILED
from lucius.runbooks.tables import trail
from lucius.runbooks.tables.data_tables import FROM_SOURCE, DataRow, open_table
from lucius.sql.database import Fetch, Script

PAGE = 500
SEEN_PAGE = 4_000

_OPEN_BATCHES = (
    "SELECT id, batch_start_time FROM batches WHERE runbook_name = $1 AND completed_at IS NULL AND origin = 'source'"
)
_OPEN_MEMBERS = (
    "SELECT m.member_key, m.id, m.batch_id, m.added_by FROM batches b JOIN batch_members m ON m.batch_id = b.id"
    " WHERE b.runbook_name = $1 AND b.completed_at IS NULL AND b.origin = 'source' AND m.status = 'active'"
)
_NOT_AGAIN = (
    "SELECT m.member_key, b.batch_start_time FROM batches b JOIN batch_members m ON m.batch_id = b.id"
    " WHERE b.runbook_name = $1 AND b.origin = 'source' AND (b.completed_at IS NOT NULL AND m.status = 'active'"
    " OR m.status = 'removed' AND m.removed_by <> 'scheduler')"
)
_AT_STARTS = " AND b.batch_start_time = ANY($2::bigint[])"


def standing(row: RunbookRow, source: DataSource, found: Members) -> Script[Standing]:
    """What the tables say, as one consistent state."""
    open_batches = {line[0]: line[1] for line in (yield Fetch(_OPEN_BATCHES, [row.name]))}
    lines = yield Fetch(_OPEN_MEMBERS, [row.name])
    members = {line[0]: Membership(line[1], line[2], line[3] != trail.SCHEDULER) for line in lines}
    finished: set[tuple[str, Instant]] = set()
    ever: set[str] = set()
    if source.batch_time_column is None:
        ever = {line[0] for line in (yield Fetch(_NOT_AGAIN, [row.name]))} | set(members)
    else:
        starts = sorted({member.batch_time for member in found.members.values() if member.batch_time is not None})
        lines = yield Fetch(_NOT_AGAIN + _AT_STARTS, (row.name, starts))
        finished = {(line[0], line[1]) for line in lines}
    table = yield from open_table(row.id, row.data_table, found.columns)
    known = yield from table.known()
    return Standing(open_batches=open_batches, members=members, finished=finished, ever=ever, known=known)


def make_table(row: RunbookRow, found: Members) -> Script[None]:
    yield from open_table(row.id, row.data_table, found.columns)


async def carry_out(
    take: Take, row: RunbookRow, runbook: Runbook, found: Members, result: Comparison, now: Instant
) -> None:
    """Data first, so that whoever hears of a member finds it; then who leaves, who joins, and new batches."""
    for work in _data_pages(row, found, result):
        await take(work)
    for batch_id, leaving in result.removals.items():
        for start in range(0, len(leaving), PAGE):
            await take(_removal(batch_id, leaving[start : start + PAGE]))
    for batch_id, keys in result.joins.items():
        for page in chunks(keys, PAGE):
            await take(_join(batch_id, page, row, found, result))
    for start_time in sorted(result.batches):
        await _new_batch(take, row, runbook, found, result, start_time)
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
            # A member that was put in by hand has a row already; from now on it is the source's.
            there = yield from table.exists(keys)
            yield from table.add([one for one in rows if one.key not in there], turn.now)
            rows = [one for one in rows if one.key in there]
        yield from table.change(rows, turn.now, FROM_SOURCE)

    return work


def to_rows(found: Members, keys: Sequence[str], columns: Sequence[str]) -> list[DataRow]:
    """Members as rows of a table with these columns; those that the source no longer has are empty."""
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


async def _note_seen(take: Take, row: RunbookRow, found: Members, now: Instant) -> None:
    def bounds(turn: Turn) -> Script[tuple[int, int]]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        return (yield from table.bounds())

    def page(start: int, turn: Turn) -> Script[None]:
        table = yield from open_table(row.id, row.data_table, found.columns)
        yield from table.seen(start, start + SEEN_PAGE, now)

    first, last = await take(bounds)
    for start in range(first, last + 1, SEEN_PAGE):
        await take(partial(page, start))


def _removal(batch_id: int, leaving: Sequence[tuple[int, str]]) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        yield from remove_members(turn, turn.batches[batch_id], leaving, "the source no longer has it at this time")

    return work


def _join(
    batch_id: int, keys: Sequence[str], row: RunbookRow, found: Members, result: Comparison
) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        batch = turn.batches[batch_id]
        if batch.status not in BATCH_ENDED:  # If it has ended meanwhile they make a new one, at the next reading.
            back = [key for key in keys if key in result.returning]
            if back:
                yield from _write_rows(row, found, back, is_new=False)(turn)
            yield from add_members(turn, batch, keys, told=batch.status != DETECTED)

    return work


async def _new_batch(
    take: Take, row: RunbookRow, runbook: Runbook, found: Members, result: Comparison, start_time: Instant
) -> None:
    """If this process dies in between, the rest joins at the next reading, and the batch starts then."""

    def create(turn: Turn) -> Script[int]:
        return (yield from create_batch(turn, row, runbook, start_time, FROM_SOURCE, "time")).id

    batch_id = await take(create)
    for page in chunks(result.batches[start_time], PAGE):
        await take(_join(batch_id, page, row, found, result))
    await take(start_work(batch_id))


def start_work(batch_id: int) -> Callable[[Turn], Script[None]]:
    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        batch = turn.batches[batch_id]
        yield from start_batch(turn, batch, (yield from turn.runbook(batch)))

    return work


_DETECTED = (
    "SELECT id FROM batches WHERE runbook_name = $1 AND completed_at IS NULL AND status = 'detected'"
    " AND origin = 'source' ORDER BY id"
)


_HALF_MADE = (
    "SELECT id FROM batches WHERE completed_at IS NULL AND status = 'detected' AND origin = 'manual'"
    " AND detected_at <= $1 ORDER BY id LIMIT 100"
)
HALF_MADE_SECONDS = 600.0
"""How long the members of a batch made by hand may take to be put in; after that their maker has died."""


def half_made(now: Instant) -> Script[list[int]]:
    """Batches by hand that nobody goes on making: whoever asked for them has had no answer, and will ask again."""
    return [line[0] for line in (yield Fetch(_HALF_MADE, [after(now, -HALF_MADE_SECONDS)]))]


def give_up_half_made(batch_id: int, turn: Turn) -> Script[None]:
    yield from turn.lock([batch_id])
    batch = turn.batches[batch_id]
    if batch.status == DETECTED:
        reason = "it was not made whole: its maker died; make it again"
        yield from stop_phases(turn, batch, reason)
        yield from end_batch(turn, batch, FAILED, reason)


def left_over(name: str) -> Script[list[int]]:
    """Batches that were made and never started: their maker died. They start once their members are compared."""
    return [line[0] for line in (yield Fetch(_DETECTED, [name]))]

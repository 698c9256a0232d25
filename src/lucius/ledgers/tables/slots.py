"""Jobs in flight, exactly: a row for each open job, and a count for each scope, in one partition.

A job's row and the counts change in one transaction, under the ETags of the counts. So the counts always equal the
rows, taking or giving back twice does nothing, and a limit is never exceeded, whatever crashes. What a crash can leave
is a row of a job that was never created or has ended; repair gives it back. The same transactions count accepted and
ended jobs by minute and by hour.

All changes that a process wants to make at the same time share a transaction.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from lucius.azure.keys import decoded, encoded, instant, key, part, prefix_end
from lucius.azure.tables import Delete, Insert, Put, Row, TableConflict, TableNotFound, TableUnavailable, Write
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import Limit

ROWS_MAX = 90
TRIES_MAX = 200
PAUSE_SECONDS_MAX = 0.05
ACCEPTED = "ACCEPTED"
COUNTERS_REMEMBERED_MAX = 10_000
MILLIS_OF_MINUTE, MILLIS_OF_HOUR = 60_000, 3_600_000


class SlotGroup(Struct, frozen=True):
    """What open jobs are counted by, besides their tenant."""

    protocol_id: str
    protocol_version: int
    lane: int


class SlotMove(Struct, frozen=True, kw_only=True):
    """Take the slots of a job, or give them back."""

    job_id: str
    tenant_id: str
    scopes: tuple[str, ...]
    takes: bool
    limits: tuple[Limit, ...] = ()
    counted: tuple[tuple[Instant, str, int], ...] = ()
    """What to add to the counts: when, which outcome, how many."""
    hints: tuple[str, ...] = ()
    """The job's keys in the index, by which repair removes those of a job that was never created."""
    group: SlotGroup | None = None
    """Only where slots are taken."""


class TakenSlot(Struct, frozen=True, kw_only=True):
    """The row of a job in flight."""

    job_id: str
    tenant_id: str
    scopes: tuple[str, ...]
    accepted_at: Instant
    hints: tuple[str, ...]


class _Counter(Struct):
    value: int
    etag: str
    """Empty if there is no row yet."""


class _Waiting(Struct):
    move: SlotMove
    answer: asyncio.Future[Limit | None]


def taking(job: Job, limits: tuple[Limit, ...], hints: tuple[str, ...] = ()) -> SlotMove:
    return SlotMove(
        job_id=job.job_id,
        tenant_id=job.spec.tenant_id,
        scopes=job.slots,
        takes=True,
        limits=limits,
        counted=((job.spec.created_at, ACCEPTED, 1),),
        hints=hints,
        group=SlotGroup(job.spec.protocol_id, job.spec.protocol_version, job.spec.routing.lane),
    )


def taking_back(job_id: str, tenant_id: str, scopes: tuple[str, ...], accepted_at: Instant) -> SlotMove:
    """Of a job that was never created: it was not accepted either."""
    counted = ((accepted_at, ACCEPTED, -1),)
    return SlotMove(job_id=job_id, tenant_id=tenant_id, scopes=scopes, takes=False, counted=counted)


def giving_back(job: Job) -> SlotMove:
    """Of a job that has ended."""
    counted = () if job.completed_at is None else ((job.completed_at, job.status.value, 1),)
    return SlotMove(job_id=job.job_id, tenant_id=job.spec.tenant_id, scopes=job.slots, takes=False, counted=counted)


class Slots:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._place = store.layout.slots()
        self._table = store.table(self._place)
        self._counters: dict[str, _Counter] = {}
        self._queue: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def move(self, moves: Iterable[SlotMove]) -> list[Limit | None]:
        """In order; for a job that finds a scope full, the limit that it met. Raises a `TableFailed`."""
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(move, loop.create_future()) for move in moves]
        if not waiting:
            return []
        self._queue += waiting
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        answers = await asyncio.gather(*(one.answer for one in waiting), return_exceptions=True)
        found: list[Limit | None] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    async def close(self) -> None:
        if self._worker is not None and not self._worker.done():
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while self._queue:
            batch = self._next_batch()
            try:
                answers = await self._carry_out([one.move for one in batch])
            except asyncio.CancelledError:
                for one in batch + self._queue:
                    one.answer.cancel()
                raise
            except Exception as error:  # Told to those who wait for it.
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)

    def _next_batch(self) -> list[_Waiting]:
        rows: set[str] = set()
        batch: list[_Waiting] = []
        for one in self._queue:
            more = {*rows, slot_key(one.move.job_id), *counters_of(one.move)}
            if batch and (len(more) > ROWS_MAX or slot_key(one.move.job_id) in rows):
                break
            rows = more
            batch.append(one)
        del self._queue[: len(batch)]
        return batch

    async def _carry_out(self, moves: Sequence[SlotMove]) -> list[Limit | None]:
        done: dict[str, Limit | None] = {}
        pending, is_fresh = list(moves), False
        for _ in range(TRIES_MAX):
            await self._learn(pending, anew=False)
            refused, writes = self._plan(pending)
            if refused and not is_fresh:
                # Another process may have given slots back since.
                await self._learn(pending, anew=True)
                is_fresh = True
                continue
            if not writes:
                done |= refused
                break
            try:
                etags = await self._table.write(self._place.partition, writes)
            except TableConflict:
                pending = await self._after_conflict(pending, done)
                is_fresh = True
                continue
            except TableNotFound:
                # One of those that are to be given back was given back before.
                given = [move for move in pending if not move.takes]
                held = await self._store.each(self._has_slot, given)
                gone = {move.job_id for move, has in zip(given, held, strict=True) if not has}
                done |= dict.fromkeys(gone)
                pending = [move for move in pending if move.job_id not in gone]
                continue
            self._note(writes, etags)
            done |= {move.job_id: refused.get(move.job_id) for move in pending}
            break
        else:
            raise TableUnavailable(f"{self._table.place}: too many processes change the same counts")
        return [done.get(move.job_id) for move in moves]

    async def _after_conflict(self, pending: list[SlotMove], done: dict[str, Limit | None]) -> list[SlotMove]:
        """What is left to do: another process changed a count, or one of the slots was taken before, by a call that
        never learned of it."""
        names = {name for move in pending for name in counters_of(move)}
        before = {name: self._counters[name].etag for name in names}
        await self._learn(pending, anew=True)
        if any(self._counters[name].etag != etag for name, etag in before.items()):
            await asyncio.sleep(random.random() * PAUSE_SECONDS_MAX)
            return pending
        takes = [move for move in pending if move.takes]
        held = await self._store.each(self._has_slot, takes)
        taken = {move.job_id for move, has in zip(takes, held, strict=True) if has}
        done |= dict.fromkeys(taken)
        return [move for move in pending if move.job_id not in taken]

    async def _has_slot(self, move: SlotMove) -> bool:
        return await self._table.get(self._place.partition, slot_key(move.job_id), ["tenant_id"]) is not None

    async def _learn(self, moves: Sequence[SlotMove], anew: bool) -> None:
        """Read the counts that these moves change, and that are not known yet. A count of this minute is taken for new:
        if it is not, the transaction is refused and everything is read."""
        names = {name for move in moves for name in counters_of(move)}
        unknown = sorted(name for name in names if anew or name not in self._counters)
        if not anew:
            for name in [name for name in unknown if not name.startswith("SCOPE:")]:
                self._counters[name] = _Counter(0, "")
            unknown = [name for name in unknown if name.startswith("SCOPE:")]
        if not unknown:
            return
        if len(self._counters) > COUNTERS_REMEMBERED_MAX:
            self._counters = {name: self._counters[name] for name in names & self._counters.keys()}

        async def read(name: str) -> Row | None:
            return await self._table.get(self._place.partition, name, ["jobs"])

        for name, row in zip(unknown, await self._store.each(read, unknown), strict=True):
            self._counters[name] = _Counter(0, "") if row is None else _Counter(row.values["jobs"], row.etag)

    def _plan(self, moves: Sequence[SlotMove]) -> tuple[dict[str, Limit | None], list[Write]]:
        """Who is refused, and what is written for the others. Those who give back go first."""
        change: dict[str, int] = {}
        refused: dict[str, Limit | None] = {}
        writes: list[Write] = []
        columns = {name: named for move in moves for name, named in counters_of(move).items()}
        for move in sorted(moves, key=lambda move: move.takes):
            full = next((limit for limit in move.limits if self._count(limit.scope, change) >= limit.maximum), None)
            if move.takes and full is not None:
                refused[move.job_id] = full
                continue
            step = 1 if move.takes else -1
            for scope in move.scopes:
                change[scope_key(scope)] = change.get(scope_key(scope), 0) + step
            for at, outcome, number in move.counted:
                for name in count_keys(at, move.tenant_id, outcome):
                    change[name] = change.get(name, 0) + number
            writes.append(
                Insert(slot_key(move.job_id), _slot_values(move)) if move.takes else Delete(slot_key(move.job_id))
            )
        for name, number in change.items():
            if number:
                counter = self._counters[name]
                values_of_count: dict[str, Any] = {"jobs": counter.value + number, **columns[name]}
                is_new = not counter.etag
                writes.append(Insert(name, values_of_count) if is_new else Put(name, values_of_count, counter.etag))
        return refused, writes

    def _count(self, scope: str, change: dict[str, int]) -> int:
        name = scope_key(scope)
        counter = self._counters.get(name)
        return (0 if counter is None else counter.value) + change.get(name, 0)

    def _note(self, writes: Sequence[Write], etags: dict[str, str]) -> None:
        for write in writes:
            if isinstance(write, Delete) or write.key.startswith("SLOT:"):
                continue
            etag = etags.get(write.key)
            if etag:
                self._counters[write.key] = _Counter(int(write.values["jobs"] or 0), etag)
            else:
                self._counters.pop(write.key, None)

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def counts(self) -> dict[str, int]:
        """Jobs in flight by scope."""
        found = await self._rows("SCOPE")
        return {_scope_of(row): row.values["jobs"] for row in found}

    async def taken(self) -> dict[str, TakenSlot]:
        """By job."""
        found: dict[str, TakenSlot] = {}
        for row in await self._rows("SLOT"):
            values = row.values
            found[values["jobId"]] = TakenSlot(
                job_id=values["jobId"],
                tenant_id=values["tenant_id"],
                scopes=tuple(decoded(scope) for scope in values["scopes"].split()),
                accepted_at=values["accepted_at"],
                hints=tuple(values["hints"].split()),
            )
        return found

    async def open_groups(self, count_max: int, tenants: Sequence[str] | None) -> Counter[tuple[SlotGroup, str]]:
        """Of up to `count_max` open jobs, by group and tenant."""
        rows = await self._table.rows(self._place.partition, "SLOT:", prefix_end("SLOT"), limit=count_max)
        return Counter(
            (SlotGroup(*(row.values[name] for name in SlotGroup.__struct_fields__)), row.values["tenant_id"])
            for row in rows
            if tenants is None or row.values["tenant_id"] in tenants
        )

    async def add_counts(self, at: Instant, outcome: str, counted: Mapping[str, int]) -> None:
        """Add to the counts of this outcome, by tenant."""
        for tenant_id, number in counted.items():
            for name in count_keys(at, tenant_id, outcome):
                await self._add(name, number, _count_columns(tenant_id, outcome))

    async def _add(self, name: str, number: int, columns: Mapping[str, str]) -> None:
        for _ in range(TRIES_MAX):
            row = await self._table.get(self._place.partition, name, ["jobs"])
            values: dict[str, Any] = {"jobs": _value(row) + number, **columns}
            write: Write = Insert(name, values) if row is None else Put(name, values, row.etag)
            try:
                await self._table.write(self._place.partition, [write])
            except (TableConflict, TableNotFound):
                await asyncio.sleep(random.random() * PAUSE_SECONDS_MAX)
                continue
            return
        raise TableUnavailable(f"{self._table.place}: too many processes change the same counts")

    async def jobs_since(self, since: Instant) -> dict[tuple[str, str], int]:
        """Accepted and ended jobs, by tenant and outcome, since the minute of this time: minutes up to the next full
        hour, then hours."""
        minute = since - since % MILLIS_OF_MINUTE
        hour = -(-minute // MILLIS_OF_HOUR) * MILLIS_OF_HOUR
        found = await self._rows("MINUTE", instant(minute), instant(hour))
        found += await self._rows("HOUR", instant(hour))
        counted: dict[tuple[str, str], int] = {}
        for row in found:
            _, _, tenant, outcome = row.key.split(":")
            name = row.values.get("tenant_id") or decoded(tenant), outcome
            counted[name] = counted.get(name, 0) + row.values["jobs"]
        return counted

    async def prune_minutes(self, before: Instant, limit: int) -> None:
        """Delete counts by minute of an earlier time: those by hour stay."""
        end = key("MINUTE", instant(before - before % MILLIS_OF_HOUR))
        found = await self._table.rows(self._place.partition, "MINUTE:", end, limit=limit, select=["jobs"])
        for start in range(0, len(found), ROWS_MAX):
            writes: list[Write] = [Delete(row.key) for row in found[start : start + ROWS_MAX]]
            try:
                await self._table.write(self._place.partition, writes)
            except TableNotFound:
                return  # Another process prunes too.
            for write in writes:
                self._counters.pop(write.key, None)

    async def recount(self) -> int:
        """Set the counts to the number of rows; returns how many were wrong."""
        slots = await self.taken()
        counted = Counter(scope for slot in slots.values() for scope in slot.scopes)
        rows = {_scope_of(row): row for row in await self._rows("SCOPE")}
        wrong = [scope for scope in rows.keys() | counted if _value(rows.get(scope)) != counted[scope]]
        repaired = 0
        for scope in wrong:
            row, name = rows.get(scope), scope_key(scope)
            values: dict[str, Any] = {"jobs": counted[scope], "scope": scope}
            try:
                await self._table.write(
                    self._place.partition, [Insert(name, values) if row is None else Put(name, values, row.etag)]
                )
            except (TableConflict, TableNotFound):
                continue  # It has moved since; the next repair looks at it again.
            repaired += 1
            self._counters.pop(name, None)
        return repaired

    async def _rows(self, prefix: str, first: str = "", end: str | None = None) -> list[Row]:
        last = prefix_end(prefix) if end is None else key(prefix, end)
        return await self._table.rows(self._place.partition, f"{prefix}:{first}", last, limit=10_000_000)


def _slot_values(move: SlotMove) -> dict[str, Any]:
    return {
        "jobId": move.job_id,
        "tenant_id": move.tenant_id,
        "scopes": " ".join(map(encoded, move.scopes)),
        "accepted_at": move.counted[0][0] if move.counted else 0,
        "hints": " ".join(move.hints),
        **({} if move.group is None else asdict(move.group)),
    }


def _value(row: Row | None) -> int:
    return 0 if row is None else int(row.values["jobs"])


def slot_key(job_id: str) -> str:
    return key("SLOT", part(job_id))


def scope_key(scope: str) -> str:
    return key("SCOPE", part(scope))


def count_keys(at: Instant, tenant_id: str, outcome: str) -> tuple[str, str]:
    minute, hour = at - at % MILLIS_OF_MINUTE, at - at % MILLIS_OF_HOUR
    return (
        key("MINUTE", instant(minute), part(tenant_id), outcome),
        key("HOUR", instant(hour), part(tenant_id), outcome),
    )


def counters_of(move: SlotMove) -> dict[str, dict[str, str]]:
    """The keys of the counts that a move changes or looks at, and the columns that say what is counted: a key may have
    only the beginning of its text."""
    scopes = {*move.scopes, *(limit.scope for limit in move.limits)}
    found = {scope_key(scope): {"scope": scope} for scope in scopes}
    for at, outcome, _ in move.counted:
        found |= dict.fromkeys(count_keys(at, move.tenant_id, outcome), _count_columns(move.tenant_id, outcome))
    return found


def _count_columns(tenant_id: str, outcome: str) -> dict[str, str]:
    return {"tenant_id": tenant_id, "outcome": outcome}


def _scope_of(row: Row) -> str:
    return str(row.values.get("scope") or decoded(row.key.partition(":")[2]))

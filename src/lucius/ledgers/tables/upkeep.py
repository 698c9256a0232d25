"""Repair of what crashes leave behind, and pruning."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from lucius.azure.tables import Delete, Row, TableNotFound, Write
from lucius.domain.attempt import DispatchStatus
from lucius.domain.job import JOB_TERMINAL, Job
from lucius.domain.time import Instant, after
from lucius.ledgers.drift import needs_waking
from lucius.ledgers.sql.lists import first_id_at
from lucius.ledgers.sql.loading import read_or_report
from lucius.ledgers.tables import hints, rows
from lucius.ledgers.tables.claims import Claims
from lucius.ledgers.tables.commit import CORE_ROWS_MAX, Committer, redrive_key
from lucius.ledgers.tables.layouts import SHARDS, JobRef, Place, shard_of
from lucius.ledgers.tables.slots import Slots, TakenSlot, giving_back, taking, taking_back
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import Change, Closing, Committed, JobKey, Repairs

CREATION_SECONDS_MAX = 60.0
"""A job that does not exist so long after it was accepted never will: its process crashed."""
ALL_HINTS_MAX = 10_000_000
JOBS_AT_ONCE = 200
ROWS_OF_JOB_MAX = 100_000
HINTS_LOOKED_AT = 1_000
"""Ended jobs that one search for prunable ones looks at."""


class Upkeep:
    def __init__(self, store: Store, claims: Claims, slots: Slots, committer: Committer) -> None:
        self._store = store
        self._claims = claims
        self._slots = slots
        self._committer = committer
        self._prunable: dict[str, Row] = {}
        """The hints of the jobs that `prunable` named last."""
        self._prunable_from: dict[object, str] = {}
        """Where `prunable` goes on, by what was asked for."""

    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        """Reads every open job once. What a crash left of jobs that do not exist is removed after a row was written
        that keeps them from being created: whoever is merely slow is told to try again."""
        wrong = await self._slots.recount()
        waiting = await self._store.read_hints("WAIT", limit=ALL_HINTS_MAX)
        listed = [*waiting, *await self._store.read_hints("OPEN", limit=ALL_HINTS_MAX)]
        slots = await self._slots.taken()
        refs = {row.values["jobId"]: JobRef(row.values["jobId"], row.values["tenant_id"]) for row in listed}
        refs |= {slot.job_id: JobRef(slot.job_id, slot.tenant_id) for slot in slots.values()}
        jobs = await self._load(list(refs.values()))
        wrong += await self._repair_slots(slots, jobs, now)
        woken = await self._wake([job for job in jobs.values() if needs_waking(job, now, claim_seconds)], now)
        await self._overtake_crashed(waiting, jobs, now)
        await self._delete_stale([refs[job.job_id] for job in jobs.values() if job.is_terminal])
        await self._close_redriven(now)
        return Repairs(wrong, woken, await self._close_outbox(jobs))

    async def _load(self, refs: Sequence[JobRef]) -> dict[str, Job]:
        found: dict[str, Job] = {}

        async def load(ref: JobRef) -> None:
            core = await self._store.read_core(ref)
            job = None if core is None else read_or_report(ref.job_id, ref.tenant_id, lambda: rows.read_job(core))
            if isinstance(job, Job):
                found[ref.job_id] = job

        await self._store.each(load, refs)
        return found

    async def _repair_slots(self, slots: dict[str, TakenSlot], jobs: dict[str, Job], now: Instant) -> int:
        moves = [giving_back(jobs[job_id]) for job_id in slots if job_id in jobs and jobs[job_id].is_terminal]
        lost = [job for job_id, job in jobs.items() if job_id not in slots and not job.is_terminal]
        moves += [replace(taking(job, (), ()), counted=()) for job in lost]
        for slot in slots.values():
            is_old = after(slot.accepted_at, CREATION_SECONDS_MAX) <= now
            if slot.job_id in jobs or not is_old:
                continue
            ref = JobRef(slot.job_id, slot.tenant_id)
            if await self._claims.make_void(ref):
                await self._store.write_index({}, {shard_of(slot.job_id): list(slot.hints)})
                moves.append(taking_back(slot.job_id, slot.tenant_id, slot.scopes, slot.accepted_at))
        await self._slots.move(moves)
        return len(moves)

    async def _wake(self, jobs: Sequence[Job], now: Instant) -> int:
        changes = [
            Change(before=job, after=replace(job, wake_at=min(now, now if job.wake_at is None else job.wake_at)))
            for job in jobs
        ]
        outcomes = await self._committer.commit(changes)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _delete_stale(self, ended: Sequence[JobRef]) -> None:
        """Hints that jobs have outlived whose last process crashed before it had deleted them."""
        for ref, known in zip(ended, await self._store.each(self._committer.learn, ended), strict=True):
            if known is not None:
                await self._store.write_index({}, {shard_of(ref.job_id): known.stale})

    async def _overtake_crashed(self, waiting: Sequence[Row], jobs: dict[str, Job], now: Instant) -> None:
        """A change that was never written has left hints of a later revision than its job's. Once the job has that
        revision too, they are known to be outlived."""
        ahead = {
            row.values["jobId"]
            for row in waiting
            if (job := jobs.get(row.values["jobId"])) is not None and hints.revision_of(row.key) > job.revision
        }
        idle = [jobs[job_id] for job_id in ahead if after(jobs[job_id].updated_at, CREATION_SECONDS_MAX) <= now]
        await self._committer.commit([Change(before=job, after=job) for job in idle])
        if idle:
            await self._delete_outlived({job.job_id for job in idle})

    async def _delete_outlived(self, job_ids: set[str]) -> None:
        for row in await self._store.read_hints("WAIT", limit=ALL_HINTS_MAX):
            job_id = row.values["jobId"]
            if job_id not in job_ids:
                continue
            known = await self._committer.learn(JobRef(job_id, row.values["tenant_id"]))
            if known is not None and row.key not in known.hints and hints.revision_of(row.key) <= known.revision:
                await self._store.write_index({}, {shard_of(job_id): [row.key]})

    async def _close_redriven(self, now: Instant) -> None:
        for row in await self._store.read_hints("REDRIVE", limit=ALL_HINTS_MAX):
            ref = JobRef(row.values["jobId"], row.values["tenant_id"])
            job = (await self._load([ref])).get(ref.job_id)
            if job is None:
                if after(row.values["created_at"], CREATION_SECONDS_MAX) > now or not await self._claims.make_void(ref):
                    continue
            elif job.spec.redrive_of is not None:
                old = JobRef(job.spec.redrive_of, ref.tenant_id)
                closing = Closing(job_id=old.job_id, at=job.spec.created_at, redriven_as=job.job_id)
                await self._committer.close(old, closing)
            await self._store.write_index({}, {shard_of(ref.job_id): [redrive_key(ref.job_id)]})

    async def _close_outbox(self, open_jobs: dict[str, Job]) -> int:
        """Unsent attempts of jobs that have ended."""
        unsent = await self._store.read_hints("OUTBOX", limit=ALL_HINTS_MAX)
        refs = {row.values["jobId"]: row.values["tenant_id"] for row in unsent}
        ended = [JobRef(*one) for one in refs.items() if one[0] not in open_jobs or open_jobs[one[0]].is_terminal]
        jobs = await self._load(ended)
        changes = [
            Change(before=job, after=_with_closed_outbox(job))
            for job in jobs.values()
            if job.is_terminal and hints.is_unsent(job)
        ]
        outcomes = await self._committer.commit(changes)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    # --- Pruning -----------------------------------------------------------------------------------------------------

    async def prunable(
        self, ended_before: Instant, limit: int, tenants: Sequence[str] | None, except_tenants: Sequence[str]
    ) -> list[JobKey]:
        """Looks at some hints in each call. If none of them is wanted, the next call goes on after them, so that jobs
        that stay do not hide those behind them."""
        asked = (None if tenants is None else tuple(tenants), tuple(except_tenants))
        end = f"ENDED:{max(ended_before, 0):015d}"
        listed, is_all = await self._oldest("ENDED", self._prunable_from.get(asked, ""), end, HINTS_LOOKED_AT)
        wanted = [
            hint
            for hint in listed
            if (tenants is None or hint.values["tenant_id"] in tenants)
            and hint.values["tenant_id"] not in except_tenants
        ]
        free = await self._owing_nothing(wanted[:limit])
        self._prunable_from.pop(asked, None)
        if not free and (len(wanted) > limit or not is_all):
            self._prunable_from[asked] = f"{wanted[limit - 1].key if len(wanted) > limit else listed[-1].key}~"
        self._prunable = {hint.values["jobId"]: hint for hint in free}
        return [JobKey(hint.values["jobId"], hint.values["tenant_id"]) for hint in free]

    async def _oldest(self, prefix: str, first: str, end: str, count: int) -> tuple[list[Row], bool]:
        """The first hints of a range, about so many, and whether these are all. Jobs are spread evenly over the shards,
        so a part of them is read of each."""
        of_shard = count // SHARDS
        pages = await self._store.each(
            lambda shard: self._store.read_hints(prefix, first, end, limit=of_shard, shards=[shard]), range(SHARDS)
        )
        full = [page[-1].key for page in pages if len(page) >= of_shard]
        found = sorted((row for page in pages for row in page), key=lambda row: row.key)
        return [row for row in found if not full or row.key <= min(full)], not full

    async def _owing_nothing(self, listed: Sequence[Row]) -> list[Row]:
        """Those of which no webhook is pending, and that no open job redrives."""

        async def owes_nothing(hint: Row) -> bool:
            ref = JobRef(hint.values["jobId"], hint.values["tenant_id"])
            core = await self._store.read_packed_core(ref)
            if core is None:
                return True  # A crash has left the hint.
            webhook = core.by_name.get("WEBHOOK")
            if webhook is not None and webhook["status"] == "PENDING":
                return False
            closing = core.by_name.get("CLOSING")
            again = None if closing is None else closing.get("redriven_as")
            if again is None:
                return True
            redrive = await self._store.read_own(JobRef(again, ref.tenant_id), [])
            return redrive is None or redrive.values["status"] in JOB_TERMINAL

        free: list[Row] = []
        for first in range(0, len(listed), JOBS_AT_ONCE):
            some = listed[first : first + JOBS_AT_ONCE]
            free += [
                hint for hint, is_free in zip(some, await self._store.each(owes_nothing, some), strict=True) if is_free
            ]
        return free

    async def prune_named(self, ended_before: Instant, limit: int, job_ids: Sequence[str]) -> int:
        """Of these jobs, those that the last `prunable` has named: only their hints are known."""
        end = f"ENDED:{max(ended_before, 0):015d}"
        known = [self._prunable[job_id] for job_id in job_ids if job_id in self._prunable]
        return await self._prune_all([hint for hint in known if hint.key < end][:limit])

    async def prune(self, ended_before: Instant, limit: int) -> int:
        """The hint by which an ended job is found goes last, so that a job of which a crash has left something is
        found again."""
        end = f"ENDED:{max(ended_before, 0):015d}"
        listed = await self._owing_nothing((await self._store.read_hints("ENDED", "", end, limit=limit))[:limit])
        await self.prune_times(ended_before, limit)
        return await self._prune_all(listed)

    async def prune_times(self, before: Instant, limit: int) -> None:
        """Counts by minute, and the places of jobs that were never created."""
        await self._slots.prune_minutes(before, limit)
        await self._prune_void(before, limit)

    async def _prune_all(self, listed: Sequence[Row]) -> int:
        pruned = 0
        for first in range(0, len(listed), JOBS_AT_ONCE):
            pruned += sum(await self._store.each(self._prune, listed[first : first + JOBS_AT_ONCE]))
        return pruned

    async def _prune_void(self, before: Instant, limit: int) -> None:
        """Rows that kept jobs from being created, long after anybody could still try."""
        listed = await self._store.read_hints("VOID", "", f"VOID:{first_id_at(before)}", limit=limit)
        for hint in listed:
            ref = JobRef(hint.values["jobId"], hint.values["tenant_id"])
            place, name = self._store.layout.core(ref), self._store.layout.core_key(ref)
            row = await self._store.table(place).get(place.partition, name, ["status"])
            if row is not None and row.values["status"] == rows.VOID:
                await self._delete_keys(place, [name])
                await self._store.delete_blobs(ref.job_id)
            await self._store.write_index({}, {shard_of(ref.job_id): [hint.key]})

    async def _prune(self, hint: Row) -> bool:
        ref = JobRef(hint.values["jobId"], hint.values["tenant_id"])
        shard = shard_of(ref.job_id)
        core = await self._store.read_packed_core(ref)
        if core is not None:
            if hint.key not in core.hints:
                await self._store.write_index({}, {shard: [hint.key]})
                return False
            await self._prune_rows(ref, core, hint.key)
        self._committer.forget(ref.job_id)
        # After the rows that refer to them, before the hint by which they are found.
        await self._store.delete_blobs(ref.job_id)
        await self._store.write_index({}, {shard: [hint.key]})
        return core is not None

    async def _prune_rows(self, ref: JobRef, core: rows.CoreRows, ended_key: str) -> None:
        claim = core.own.get("claim")
        if claim:
            await self._claims.drop(claim, ref.job_id)
        names = [*core.lasting_hints, *(one for one in core.hints if one != ended_key)]
        place = hints.newest_first(ref.job_id)
        names += [f"DISMISSED:{place}"] if "CLOSING" in core.by_name else []
        shard = shard_of(ref.job_id)
        await self._store.write_index({}, {shard: names})
        index = self._store.layout.index(shard)
        # Nearly always gone with the job's end, and then the last of them is too.
        if core.stale and await self._store.table(index).get(index.partition, core.stale[-1], ["jobId"]) is not None:
            await self._store.write_index({}, {shard: core.stale})
        layout = self._store.layout
        for other, first, end in (
            (layout.events(ref), *layout.events_range(0)),
            (layout.outbox(ref), *layout.outbox_range(ref)),
            (layout.steps(ref), *layout.steps_range()),
        ):
            await self._delete_rows(other, first, end)
        # The job's own row is in the last transaction of all.
        own = layout.core_key(ref)
        others = [layout.core_key(ref, name) for name in core.by_name if name]
        await self._delete_keys(layout.core(ref), [*others, own])

    async def _delete_rows(self, place: Place, first: str, end: str | None) -> None:
        found = await self._store.table(place).rows(place.partition, first, end, limit=ROWS_OF_JOB_MAX, select=[])
        await self._delete_keys(place, [row.key for row in found])

    async def _delete_keys(self, place: Place, keys: Sequence[str]) -> None:
        table = self._store.table(place)
        for start in range(0, len(keys), CORE_ROWS_MAX):
            writes: list[Write] = [Delete(key) for key in keys[start : start + CORE_ROWS_MAX]]
            try:
                await table.write(place.partition, writes)
            except TableNotFound:
                # Another process prunes the same job.
                for write in writes:
                    await table.write(place.partition, [write])


def _with_closed_outbox(job: Job) -> Job:
    index, step = job.current_index, job.current_step
    assert step.attempt is not None
    closed = replace(step, attempt=replace(step.attempt, dispatch=DispatchStatus.FAILED_FINAL))
    return replace(job, steps=(*job.steps[:index], closed, *job.steps[index + 1 :]))

"""The writes of a commit, in an order in which every crash can be repaired.

A change of a job is written in three steps: its new hints in the index; the rows of the job, of which those that
decide are one transaction under the ETag of the job's own row; what becomes free, its slots and the hints that it has
outlived. A creation first takes its claim and its slots. So after a crash there can be a claim or a slot without a job,
or a hint too many, never a job that cannot be found or does not count. Hints that a job has outlived are listed in its
row and deleted together with the next change's, which saves a request.

Where rows of a job are in other partitions (layout `table`), the job's own row carries them until its next change: who
writes that change, or reads those rows, makes up for a process that crashed before it had written them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.azure.tables import Delete, Insert, Put, TableConflict, TableFailed, TableNotFound, TableUnavailable, Write
from lucius.domain.job import Job
from lucius.ledgers.sql.rows import claim_key
from lucius.ledgers.tables import hints, rows
from lucius.ledgers.tables.claims import Claims
from lucius.ledgers.tables.layouts import JobRef, Place, shard_of
from lucius.ledgers.tables.slots import Slots, giving_back, taking, taking_back
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import Change, Closing, CommitOutcome, Committed, Conflict, Duplicate, Saturated

KNOWN_MAX = 20_000
"""Jobs whose ETag is remembered: changing one of them needs no read."""
HINT_SECONDS_MAX = 15.0
"""How long a change may take from its hints to its rows. Repair takes older hints for those of a crash."""
CORE_ROWS_MAX = 95

_encode = msgspec.json.Encoder().encode
_decode_redo = msgspec.json.Decoder(list[tuple[str, str, str, dict[str, Any]]]).decode


def decode_redo(text: str | None) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Rows elsewhere that go with a job's own row: table, partition, key and values."""
    return _decode_redo(text) if text else []


class Known(Struct, frozen=True):
    """What must be known of a job's own row to change it."""

    revision: int
    etag: str
    hints: list[str]
    stale: list[str]
    claim: str | None


class Prepared(Struct, frozen=True):
    change: Change
    ref: JobRef
    known: Known | None
    """None creates the job."""
    hints: list[str]
    new_hints: list[str]

    @property
    def revision(self) -> int:
        return self.change.after.revision + 1

    @property
    def stale(self) -> list[str]:
        if self.known is None:
            return []
        kept = set(self.hints)
        return [hint for hint in self.known.hints if hint not in kept]


class Committer:
    def __init__(self, store: Store, claims: Claims, slots: Slots) -> None:
        self._store = store
        self._claims = claims
        self._slots = slots
        self._known: dict[str, Known] = {}

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        # Jobs that end make room for jobs that begin in the same call, wherever they stand in it.
        outcomes = await self._update([change for change in changes if change.before is not None])
        outcomes |= await self._create([change for change in changes if change.before is None])
        return [outcomes[change.after.job_id] for change in changes]

    # --- Changes of jobs that exist ----------------------------------------------------------------------------------

    async def _update(self, changes: Sequence[Change]) -> dict[str, CommitOutcome]:
        if not changes:
            return {}
        outcomes: dict[str, CommitOutcome] = {}
        prepared: list[Prepared] = []
        for change, known in zip(changes, await self._store.each(self._learn, changes), strict=True):
            if known is None or change.before is None or known.revision != change.before.revision:
                outcomes[change.after.job_id] = Conflict()
                continue
            prepared.append(_prepared(change, known))
        began = time.monotonic()
        await self._write_hints(prepared)
        written = await self._write_jobs(prepared, began)
        ended: list[Prepared] = []
        for one, is_written in zip(prepared, written, strict=True):
            outcomes[one.ref.job_id] = Committed() if is_written else Conflict()
            before = one.change.before
            if is_written and one.change.after.is_terminal and before is not None and not before.is_terminal:
                ended.append(one)
        if ended:
            await self._slots.move([giving_back(one.change.after) for one in ended])
            await self._store.write_index({}, _by_shard([(one.ref.job_id, one.stale) for one in ended]))
        return outcomes

    async def _learn(self, change: Change) -> Known | None:
        """The job's own row as far as a change needs it. A row that is read anew may be that of a process which crashed
        before it had written the rest."""
        job = change.after
        ref = JobRef(job.job_id, job.spec.tenant_id)
        known = self._known.get(ref.job_id)
        if known is not None and change.before is not None and known.revision == change.before.revision:
            return known
        return await self.learn(ref)

    async def learn(self, ref: JobRef) -> Known | None:
        row = await self._store.read_own(ref, ["revision", "hints", "stale", "claim", "redo", "redo_blob"])
        if row is None:
            return None
        values = await self._store.unpack(row.values)
        await self.redo(ref.job_id, values.get("redo"))
        hints_, stale = rows.read_keys(values.get("hints")), rows.read_keys(values.get("stale"))
        return Known(values["revision"], row.etag, hints_, stale, values.get("claim"))

    async def redo(self, job_id: str, text: str | None) -> None:
        """Write the rows elsewhere that go with a job's own row, unless they are there."""
        groups: dict[Place, list[Write]] = {}
        for table, partition, key, values in decode_redo(text):
            groups.setdefault(Place(table, partition), []).append(Put(key, values))
        await self._write_followers(job_id, groups)

    async def _write_followers(self, job_id: str, groups: dict[Place, list[Write]]) -> None:
        for place, writes in groups.items():
            for first in range(0, len(writes), CORE_ROWS_MAX):
                await self._store.write(place, writes[first : first + CORE_ROWS_MAX], job_id)

    # --- New jobs ----------------------------------------------------------------------------------------------------

    async def _create(self, changes: Sequence[Change]) -> dict[str, CommitOutcome]:
        if not changes:
            return {}
        outcomes: dict[str, CommitOutcome] = {}
        firsts: dict[bytes, Change] = {}
        for change in changes:
            if change.claim is not None:
                firsts.setdefault(change.claim.key, change)
        repeated = [one for one in changes if one.claim is not None and firsts[one.claim.key] is not one]
        own = [one for one in changes if one.claim is None or firsts[one.claim.key] is one]
        for change, duplicate in zip(own, await self._store.each(self._claim, own), strict=True):
            if duplicate is not None:
                outcomes[change.after.job_id] = duplicate
        claimed = [one for one in own if one.after.job_id not in outcomes]
        await self._take_slots(claimed, outcomes)
        await self._write_new([one for one in claimed if one.after.job_id not in outcomes], outcomes)
        for change in claimed:
            outcomes.setdefault(change.after.job_id, Committed())
        for change in repeated:
            assert change.claim is not None
            first = firsts[change.claim.key].after
            outcome = outcomes[first.job_id]
            if isinstance(outcome, Committed):
                outcome = Duplicate(first.job_id, first.spec.idempotency_hash, first.status)
            outcomes[change.after.job_id] = outcome
        return outcomes

    async def _claim(self, change: Change) -> Duplicate | None:
        if change.claim is None:
            return None
        return await self._claims.take(change.claim, _ref(change.after))

    async def _take_slots(self, changes: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> None:
        changes = [change for change in changes if not change.after.is_terminal]  # A copied job may have ended.
        moves = [taking(change.after, change.limits, tuple(_keys_of_new(change))) for change in changes]
        refused = [
            (change, full)
            for change, full in zip(changes, await self._slots.move(moves), strict=True)
            if full is not None
        ]
        for change, full in refused:
            outcomes[change.after.job_id] = Saturated(full)
        await self._store.each(self._drop_claim, [change for change, _ in refused])

    async def _drop_claim(self, change: Change) -> None:
        if change.claim is not None:
            await self._claims.drop(claim_key(change.claim.key), change.after.job_id)

    async def _write_new(self, changes: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> None:
        prepared = [_prepared(change, None) for change in changes]
        began = time.monotonic()
        await self._write_hints(prepared)
        written = await self._write_jobs(prepared, began)
        lost = [one for one, is_written in zip(prepared, written, strict=True) if not is_written]
        if lost:
            await self._give_up([one.change for one in lost])
            outcomes |= {one.ref.job_id: await self._overtaken(one) for one in lost}
        for one in prepared:
            if one in lost:
                continue
            old = one.change.after.spec.redrive_of
            if old is not None:
                spec = one.change.after.spec
                closing = Closing(job_id=old, at=spec.created_at, redriven_as=spec.job_id)
                await self.close(JobRef(old, spec.tenant_id), closing)
                await self._store.write_index({}, {shard_of(spec.job_id): [redrive_key(spec.job_id)]})

    async def _overtaken(self, one: Prepared) -> Duplicate:
        """A command that was so slow that an equal one has taken its claim over."""
        claim = one.change.claim
        duplicate = None if claim is None else await self._claims.take(claim, one.ref)
        if duplicate is None:
            await self._drop_claim(one.change)
            raise TableUnavailable(f"job {one.ref.job_id} could not be created in time; send the command again")
        return duplicate

    async def _give_up(self, changes: Sequence[Change]) -> None:
        """Undo what was written for jobs that can no longer be created."""
        jobs = [change.after for change in changes]
        moves = [
            taking_back(job.job_id, job.spec.tenant_id, job.slots, accepted_at=job.spec.created_at) for job in jobs
        ]
        await self._slots.move(moves)
        keys = [(change.after.job_id, _keys_of_new(change)) for change in changes]
        await self._store.write_index({}, _by_shard(keys))

    # --- Writing -----------------------------------------------------------------------------------------------------

    async def _write_hints(self, prepared: Sequence[Prepared]) -> None:
        puts: dict[int, list[Put]] = {}
        deletes: dict[int, list[str]] = {}
        for one in prepared:
            shard, job = shard_of(one.ref.job_id), one.change.after
            if one.known is None:
                keys = _keys_of_new(one.change)
            else:
                keys = list(one.new_hints)
                deletes.setdefault(shard, []).extend(one.known.stale)
            webhook = one.change.webhook
            if webhook is not None and webhook.next_at > 0:
                keys.append(hints.webhook_key(webhook))
            puts.setdefault(shard, []).extend(Put(key, hints.values_of(key, job)) for key in keys)
        await self._store.write_index(puts, deletes)

    async def _write_jobs(self, prepared: Sequence[Prepared], began: float) -> list[bool]:
        async def write(one: Prepared) -> bool:
            return await self._write_job(one, began)

        return await self._store.each(write, prepared)

    async def _write_job(self, one: Prepared, began: float) -> bool:
        """False if the job has changed, or exists or must not exist."""
        if time.monotonic() - began > HINT_SECONDS_MAX:
            raise TableUnavailable(f"the change of job {one.ref.job_id} took too long")
        layout, job_id = self._store.layout, one.ref.job_id
        core, followers = self._rows(one)
        try:
            etags = await self._store.write(layout.core(one.ref), core, job_id)
        except (TableConflict, TableNotFound):
            self._known.pop(job_id, None)
            if one.known is None:
                return await self._is_own(one)
            await self._drop_hints(one)
            return False
        self._store.remember(one.ref)
        try:
            await self._write_followers(job_id, followers)
        except TableFailed:
            self._known.pop(job_id, None)  # The change is written; whoever is next makes up for the rest.
            return True
        etag = etags.get(layout.core_key(one.ref))
        if etag:
            self._remember(job_id, Known(one.revision, etag, one.hints, one.stale, self._claim_of(one)))
        else:
            self._known.pop(job_id, None)
        return True

    async def _is_own(self, one: Prepared) -> bool:
        """Whether a job that exists was created by an earlier call of the same creation."""
        return await self._store.read_own(one.ref, []) is not None

    async def _drop_hints(self, one: Prepared) -> None:
        """Delete the hints of a change that was not written, but for those that another change has written too."""
        row = await self._store.read_own(one.ref, ["revision", "hints", "stale"])
        if row is None or row.values["revision"] < one.revision:
            return
        used = {*rows.read_keys(row.values["hints"]), *rows.read_keys(row.values["stale"])}
        dead = [hint for hint in one.new_hints if hint not in used]
        await self._store.write_index({}, {shard_of(one.ref.job_id): dead})

    def _claim_of(self, one: Prepared) -> str | None:
        if one.known is not None:
            return one.known.claim
        return claim_key(one.change.claim.key) if one.change.claim is not None else None

    def _rows(self, one: Prepared) -> tuple[list[Write], dict[Place, list[Write]]]:
        """The transaction that decides, and the rows that are in other partitions, or have no room in it."""
        change, ref, layout = one.change, one.ref, self._store.layout
        job, is_new = change.after, one.known is None
        place = layout.core(ref)
        core: list[Write] = []
        if is_new:
            core.append(Insert(layout.core_key(ref, "SPEC"), rows.spec_values(job, hints.lasting(job))))
        core += [
            Put(layout.core_key(ref, f"OUTPUT:{index:03d}"), values) for index, values in rows.output_values(change)
        ]
        if change.webhook is not None:
            is_pending = change.webhook.next_at > 0
            core.append(Put(layout.core_key(ref, "WEBHOOK"), rows.webhook_values(change.webhook, is_pending)))
        others: list[tuple[Place, Write]] = []
        if change.events:
            name = layout.event_key(change.events[-1].seq, change.events[0].at)
            others.append((layout.events(ref), Insert(name, rows.event_values(change))))
        for index, attempt in rows.changed_attempts(change):
            name = layout.outbox_key(ref, index, attempt.attempt_no)
            others.append((layout.outbox(ref), Put(name, rows.outbox_values(job, index, attempt))))
        for index, step in rows.changed_steps(change):
            name = layout.step_key(index, step.spec.step_id)
            others.append((layout.steps(ref), Put(name, rows.step_values(job, step))))
        followers: dict[Place, list[Write]] = {}
        for other, write in others:
            if other == place and len(core) < CORE_ROWS_MAX:
                core.append(write)
            else:
                # Written again after a crash.
                followers.setdefault(other, []).append(Put(write.key, _values(write)))
        own = rows.job_values(job, one.revision, one.hints, one.stale, self._claim_of(one))
        own["redo"] = _redo(followers)
        own_key = layout.core_key(ref)
        core.insert(0, Insert(own_key, own) if one.known is None else Put(own_key, own, one.known.etag))
        return core, followers

    def _remember(self, job_id: str, known: Known) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[job_id] = known

    def forget(self, job_id: str) -> None:
        self._known.pop(job_id, None)

    # --- Dead letters ------------------------------------------------------------------------------------------------

    async def close(self, ref: JobRef, closing: Closing) -> Closing:
        """Write a closing, unless there is one; returns the one that counts."""
        layout = self._store.layout
        place, key = layout.core(ref), layout.core_key(ref, "CLOSING")
        shard, name = shard_of(ref.job_id), hints.newest_first(ref.job_id)
        if closing.by is not None:
            values = {"jobId": ref.job_id, "tenant_id": ref.tenant_id}
            await self._store.write_index({shard: [Put(f"DISMISSED:{name}", values)]}, {})
        try:
            await self._store.write(place, [Insert(key, rows.closing_values(closing))], ref.job_id)
        except TableConflict:
            found = await self._store.table(place).get(place.partition, key)
            if found is not None:
                closing = rows.read_closing(ref.job_id, await self._store.unpack(found.values))
        row = await self._store.read_own(ref, ["hints"])
        listed = rows.read_keys(row.values["hints"]) if row is not None else []
        await self._store.write_index({}, {shard: [hint for hint in listed if hint.startswith("DEAD:")]})
        return closing


def redrive_key(job_id: str) -> str:
    return f"REDRIVE:{job_id}"


def _prepared(change: Change, known: Known | None) -> Prepared:
    before = known.hints if known is not None else []
    wanted = hints.carried_over(change.after, before, change.after.revision + 1)
    had = set(before)
    return Prepared(change, _ref(change.after), known, wanted, [hint for hint in wanted if hint not in had])


def _keys_of_new(change: Change) -> list[str]:
    job = change.after
    keys = [*hints.lasting(job), *hints.carried_over(job, [], job.revision + 1)]
    return keys if job.spec.redrive_of is None else [*keys, redrive_key(job.job_id)]


def _ref(job: Job) -> JobRef:
    return JobRef(job.job_id, job.spec.tenant_id)


def _values(write: Write) -> Any:
    assert not isinstance(write, Delete)
    return write.values


def _redo(followers: dict[Place, list[Write]]) -> str | None:
    if not followers:
        return None
    listed = [
        (
            place.table,
            place.partition,
            write.key,
            {name: one for name, one in _values(write).items() if one is not None},
        )
        for place, writes in followers.items()
        for write in writes
    ]
    return _encode(listed).decode()


def _by_shard(keys: Sequence[tuple[str, list[str]]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for job_id, names in keys:
        found.setdefault(shard_of(job_id), []).extend(names)
    return found

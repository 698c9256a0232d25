"""The ledger on Azure Table Storage."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from lucius.azure.blob import BlobAccount, BlobFailed
from lucius.azure.tables import Insert, TableAccount, TableConflict, TableFailed
from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ledgers.matching import matches
from lucius.ledgers.sql import rows as sql_rows
from lucius.ledgers.sql.loading import read_or_report
from lucius.ledgers.tables import figures, rows
from lucius.ledgers.tables.audit import TablesAudit, acts_of, dismissal_entry
from lucius.ledgers.tables.claims import Claims
from lucius.ledgers.tables.commit import Committer, decode_redo
from lucius.ledgers.tables.finding import Finder
from lucius.ledgers.tables.layouts import JobRef, Layout
from lucius.ledgers.tables.lists import Lister
from lucius.ledgers.tables.slots import Slots
from lucius.ledgers.tables.store import Store
from lucius.ledgers.tables.upkeep import Upkeep
from lucius.ledgers.tables.webhooks import Webhooks
from lucius.ports.audit import AuditEntry
from lucius.ports.bus import Bus
from lucius.ports.ledger import (
    REFUSED,
    Change,
    Closing,
    CommitOutcome,
    Committed,
    Duplicate,
    FailureGroups,
    HeldLine,
    JobFilter,
    JobKey,
    LedgerUnavailable,
    OpenGroups,
    OutboxRow,
    Repairs,
    Tally,
    UnreadableJob,
    Webhook,
)

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("lucius.ledger")

LOGGED_IDS_MAX = 1_000
EVENTS_OF_JOB_MAX = 1_000_000
TALLY_PAGE = 200
"""Jobs that are read at once in order to be counted."""


def _asks_azure(
    call: Callable[Concatenate[TablesLedger, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[TablesLedger, P], Coroutine[Any, Any, T]]:
    @wraps(call)
    async def asked(self: TablesLedger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(self, *args, **kwargs)
        except (TableFailed, BlobFailed) as error:
            raise LedgerUnavailable(str(error)) from error

    return asked


class TablesLedger:
    def __init__(self, tables: TableAccount, blobs: BlobAccount, layout: Layout, prefix: str = "lucius") -> None:
        """The accounts are closed with the ledger."""
        self.store = Store(tables, blobs, layout, prefix)
        self.slots = Slots(self.store)
        self._claims = Claims(self.store)
        self.committer = Committer(self.store, self._claims, self.slots)
        self._finder = Finder(self.store)
        self._lister = Lister(self.store, self._claims, self.slots)
        self._webhooks = Webhooks(self.store)
        self._upkeep = Upkeep(self.store, self._claims, self.slots, self.committer)
        self.acts = TablesAudit(self.store.operators)
        self._logged_ids: set[str] = set()

    async def __aenter__(self) -> TablesLedger:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.slots.close()
        await self.store.account.close()
        await self.store.blobs.close()

    def enlists(self, bus: Bus) -> bool:
        return False

    @_asks_azure
    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        outcomes = await self.committer.commit(changes)
        written = [one for one, outcome in zip(changes, outcomes, strict=True) if isinstance(outcome, Committed)]
        acts = [entry for one in written for entry in acts_of(one.after, one.events)]
        if acts:
            await self._note(acts)
        return outcomes

    async def _note(self, acts: Sequence[AuditEntry]) -> None:
        """The jobs are written: without the audit, their own events tell who did it."""
        try:
            await self.acts.note(acts)
        except LedgerUnavailable as error:
            named = ", ".join(f"{act.action} of {act.target} by {act.actor}" for act in acts)
            log.error("the audit lacks what was done, because its table does not answer (%s): %s", error, named)

    # --- Single jobs -------------------------------------------------------------------------------------------------

    @_asks_azure
    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        found = await self.store.each(self._load, await self.store.refs(dict.fromkeys(job_ids)))
        return {job.job_id: job for job in found if isinstance(job, Job)}

    async def _load(self, ref: JobRef) -> Job | UnreadableJob | None:
        return (await self._load_with_closing(ref))[0]

    async def _load_with_closing(self, ref: JobRef) -> tuple[Job | UnreadableJob | None, Closing | None]:
        core = await self.store.read_core(ref)
        if core is None:
            return None, None
        job = read_or_report(core.job_id, str(core.own.get("tenant_id", "")), partial(rows.read_job, core))
        closing = core.by_name.get("CLOSING")
        self._log_unreadable(job)
        return job, None if closing is None else rows.read_closing(core.job_id, closing)

    @_asks_azure
    async def note_holder(
        self, job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
    ) -> str | None:
        for ref in await self.store.refs([job_id]):
            job = await self._load(ref)
            attempt = job.steps[step_index].attempt if isinstance(job, Job) else None
            if attempt is None or not sql_rows.is_unanswered(attempt):
                return None
            if (attempt.attempt_no, attempt.lease_id) != (attempt_no, lease_id):
                return None
            if attempt.acked_by is not None:
                return attempt.acked_by
            place = self.store.layout.core(ref)
            name = self.store.layout.core_key(ref, f"HOLDER:{step_index:03d}:{attempt_no:06d}")
            values: dict[str, Any] = {"step_index": step_index, "attempt_no": attempt_no, "instance": instance}
            try:
                await self.store.write(place, [Insert(name, values)], job_id)
            except TableConflict:
                row = await self.store.table(place).get(place.partition, name)
                return None if row is None else str(row.values["instance"])
            return instance
        return None

    @_asks_azure
    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        refs = await self.store.refs([job_id])
        core = await self.store.read_core(refs[0]) if refs else None
        if core is None:
            return {}
        await self.committer.redo(job_id, core.own.get("redo"))
        job = read_or_report(job_id, core.tenant_id, partial(rows.read_job, core))
        if not isinstance(job, Job):
            return {}
        place, (first, end) = self.store.layout.outbox(refs[0]), self.store.layout.outbox_range(refs[0])
        by_index: dict[int, dict[int, Attempt]] = {}
        for row in await self.store.table(place).rows(place.partition, first, end, limit=EVENTS_OF_JOB_MAX):
            index, attempt = rows.read_attempt(row)
            by_index.setdefault(index, {})[attempt.attempt_no] = attempt
        for index, step in enumerate(job.steps):
            if step.attempt is not None:
                by_index.setdefault(index, {})[step.attempt_no] = step.attempt
        return {
            job.steps[index].spec.step_id: [attempts[number] for number in sorted(attempts)]
            for index, attempts in sorted(by_index.items())
        }

    @_asks_azure
    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        for ref in await self.store.refs([job_id]):
            place = self.store.layout.events(ref)
            first, end = self.store.layout.events_range(after_seq)
            wanted = limit if end is not None else EVENTS_OF_JOB_MAX
            found = await self.store.table(place).rows(place.partition, first, end, limit=wanted)
            by_key = {row.key: row.values for row in found}
            if self.store.layout.needs_tenant:
                own = await self.store.read_own(ref, ["redo", "redo_blob"])
                values = {} if own is None else await self.store.unpack(own.values)
                by_key |= {key: one for table, _, key, one in decode_redo(values.get("redo")) if table == place.table}
            by_seq = sorted([(one["last_seq"], await self.store.unpack(one)) for one in by_key.values()], key=_first)
            events = [event for seq, one in by_seq for event in sql_rows.read_events((seq, one["payload"]))]
            return [event for event in events if event.seq > after_seq][:limit]
        return []

    @_asks_azure
    async def find_claim(self, key: bytes) -> Duplicate | None:
        ref = await self._claims.holder(key)
        row = None if ref is None else await self.store.read_own(ref, ["idempotency_hash"])
        if ref is None or row is None:
            return None
        return Duplicate(ref.job_id, row.values["idempotency_hash"], row.values["status"])

    @_asks_azure
    async def find_claims(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        found = await self.store.each(self._claims.holder, keys)
        return {key: ref.job_id for key, ref in zip(keys, found, strict=True) if ref is not None}

    @_asks_azure
    async def statuses(self, job_ids: Sequence[str]) -> dict[str, str]:
        found = await self._column(job_ids, "status")
        return {job_id: status for job_id, status in found.items() if status is not None}

    @_asks_azure
    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        return await self._column(job_ids, "wait_cause")

    async def _column(self, job_ids: Sequence[str], name: str) -> dict[str, str | None]:
        refs = await self.store.refs(dict.fromkeys(job_ids))

        async def read(ref: JobRef) -> tuple[str, str | None] | None:
            row = await self.store.read_own(ref, [name])
            return None if row is None else (ref.job_id, row.values.get(name))

        return dict(one for one in await self.store.each(read, refs) if one is not None)

    # --- What engines look for ---------------------------------------------------------------------------------------

    @_asks_azure
    async def due(self, now: Instant, limit: int) -> list[str]:
        return await self._finder.due(now, limit)

    @_asks_azure
    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        return await self._finder.unsent(None if ignore_claims else now, limit)

    @_asks_azure
    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        return await self._finder.held(line, engine, limit)

    @_asks_azure
    async def held_lines(self, limit: int) -> list[HeldLine]:
        return await self._finder.held_lines(limit)

    @_asks_azure
    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return await self._finder.unacknowledged(engine, limit, after_id)

    @_asks_azure
    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return await self._finder.undelivered(engine, limit, after_id)

    @_asks_azure
    async def outbox(self, limit: int) -> list[OutboxRow | UnreadableJob]:
        job_ids = await self._finder.outbox(limit)
        found = await self.store.each(self._load, await self.store.refs(job_ids))
        return [row for job in found if (row := _outbox_row(job)) is not None]

    # --- Lists and figures -------------------------------------------------------------------------------------------

    @_asks_azure
    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job | UnreadableJob]:
        found: list[Job | UnreadableJob] = []
        if limit <= 0:
            return found
        async for refs in self._lister.candidates(filter_, before_id, limit):
            for start in range(0, len(refs), limit):
                loaded = await self.store.each(self._load_with_closing, refs[start : start + limit])
                for job, closing in loaded:
                    if job is not None and (isinstance(job, UnreadableJob) or matches(job, filter_, closing)):
                        found.append(job)
                if len(found) >= limit:
                    return found[:limit]
        return found

    @_asks_azure
    async def matching(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[JobKey]:
        found = await self.jobs(filter_, limit, before_id)
        return [JobKey(job.job_id, job.spec.tenant_id if isinstance(job, Job) else job.tenant_id) for job in found]

    @_asks_azure
    async def tally(self, filter_: JobFilter, oldest: int, limit: int) -> Tally:
        """A page at a time, and no further than `limit`: what counts is each job's own row."""
        jobs, last = 0, deque[JobKey](maxlen=oldest)
        before_id: str | None = None
        while jobs <= limit:
            page = await self.matching(filter_, TALLY_PAGE, before_id)
            jobs += len(page)
            last.extend(page)
            if len(page) < TALLY_PAGE:
                break
            before_id = page[-1].job_id
        return Tally(min(jobs, limit), [*reversed(last)])

    @_asks_azure
    async def inflight(self) -> dict[str, int]:
        return {scope: jobs for scope, jobs in (await self.slots.counts()).items() if jobs}

    @_asks_azure
    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for (tenant_id, outcome), jobs in (await self.slots.jobs_since(since)).items():
            if tenants is None or tenant_id in tenants:
                counted[outcome] += jobs
        return {outcome: jobs for outcome, jobs in counted.items() if jobs}

    @_asks_azure
    async def counts_by_tenant(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, dict[str, int]]:
        counted: dict[str, dict[str, int]] = {}
        for (tenant_id, outcome), jobs in (await self.slots.jobs_since(since)).items():
            if jobs and (tenants is None or tenant_id in tenants):
                counted.setdefault(tenant_id, {})[outcome] = jobs
        return counted

    @_asks_azure
    async def count_refused(self, at: Instant, refused: Mapping[str, int]) -> None:
        await self.slots.add_counts(at, REFUSED, refused)

    @_asks_azure
    async def open_groups(self, scanned_max: int, tenants: Sequence[str] | None) -> OpenGroups:
        return figures.open_groups(await self.slots.open_groups(scanned_max + 1, tenants), scanned_max)

    @_asks_azure
    async def oldest_waiting(self, tenants: Sequence[str] | None) -> dict[str, str]:
        return await figures.oldest_waiting(self.store, tenants)

    @_asks_azure
    async def count_wait_causes(self, tenants: Sequence[str] | None) -> dict[str, int]:
        return await figures.count_wait_causes(self.store, tenants)

    @_asks_azure
    async def step_millis(
        self, request_type: str, tenants: Sequence[str] | None, limit: int
    ) -> list[Mapping[str, int]]:
        return await figures.step_millis(self.store, request_type, tenants, limit)

    @_asks_azure
    async def failures(self, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
        return await figures.failures(self.store, filter_, scanned_max, limit)

    # --- Dead letters and webhooks -----------------------------------------------------------------------------------

    @_asks_azure
    async def dismiss(self, closing: Closing) -> Closing:
        for ref in await self.store.refs([closing.job_id]):
            row = await self.store.read_own(ref, ["tenant_id"])
            kept = await self.committer.close(ref, closing)
            if kept == closing:
                await self.acts.note([dismissal_entry(closing, None if row is None else row.values["tenant_id"])])
            return kept
        return closing

    @_asks_azure
    async def closings(self, job_ids: Sequence[str]) -> dict[str, Closing]:
        async def read(ref: JobRef) -> Closing | None:
            place, name = self.store.layout.core(ref), self.store.layout.core_key(ref, "CLOSING")
            row = await self.store.table(place).get(place.partition, name)
            return None if row is None else rows.read_closing(ref.job_id, await self.store.unpack(row.values))

        found = await self.store.each(read, await self.store.refs(dict.fromkeys(job_ids)))
        return {closing.job_id: closing for closing in found if closing is not None}

    @_asks_azure
    async def webhooks_due(
        self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
    ) -> list[Webhook]:
        return await self._webhooks.due(now, after_tenant, tenants_max, per_tenant_max)

    @_asks_azure
    async def claim_webhooks(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        return await self._webhooks.claim(job_ids, now, claim_until)

    @_asks_azure
    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        await self._webhooks.done(webhook, delivered)

    @_asks_azure
    async def shorten_webhooks(self, latest: Sequence[Instant]) -> None:
        await self._webhooks.shorten(latest)

    # --- Upkeep ------------------------------------------------------------------------------------------------------

    @_asks_azure
    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        return await self._upkeep.repair(now, claim_seconds)

    @_asks_azure
    async def prunable(
        self,
        ended_before: Instant,
        limit: int,
        tenants: Sequence[str] | None = None,
        except_tenants: Sequence[str] = (),
    ) -> list[JobKey]:
        return await self._upkeep.prunable(ended_before, limit, tenants, except_tenants)

    @_asks_azure
    async def prune(self, ended_before: Instant, limit: int, job_ids: Sequence[str] | None = None) -> int:
        if job_ids is not None:
            return await self._upkeep.prune_named(ended_before, limit, job_ids)
        await self.acts.prune(ended_before, limit)
        return await self._upkeep.prune(ended_before, limit)

    async def note_act(self, act: AuditEntry) -> None:
        await self.acts.note([act])

    @_asks_azure
    async def prune_audit(self, before: Instant, limit: int) -> None:
        await self.acts.prune(before, limit)
        await self._upkeep.prune_times(before, limit)

    @_asks_azure
    async def create_tables(self) -> list[str]:
        return await self.store.create()

    @_asks_azure
    async def missing_tables(self) -> list[str]:
        known = {name.lower() for name in await self.store.account.table_names()}
        return [name for name in self.store.table_names() if name not in known]

    @_asks_azure
    async def health(self) -> str:
        place = self.store.layout.slots()
        await self.store.table(place).get(place.partition, "HEALTH", [])
        return f"Azure Tables, layout {self.store.layout.name}, of {self.store.account.account}"

    def _log_unreadable(self, job: Job | UnreadableJob) -> None:
        """Each job once: whoever looks for what is due meets it again and again."""
        if not isinstance(job, UnreadableJob) or job.job_id in self._logged_ids:
            return
        if len(self._logged_ids) >= LOGGED_IDS_MAX:
            self._logged_ids.clear()
        self._logged_ids.add(job.job_id)
        log.error(
            "the rows of job %s cannot be read, and it is passed over until they are put right: %s",
            job.job_id, job.reason, extra={"job_id": job.job_id, "tenant_id": job.tenant_id},
        )  # fmt: skip


def _first(one: tuple[int, object]) -> int:
    return one[0]


def _outbox_row(job: Job | UnreadableJob | None) -> OutboxRow | UnreadableJob | None:
    if job is None or isinstance(job, UnreadableJob):
        return job
    step = job.current_step
    if step.attempt is None:
        return None
    return OutboxRow(
        job_id=job.job_id,
        step_id=step.spec.step_id,
        service=step.spec.service,
        tenant_id=job.spec.tenant_id,
        routing=job.spec.routing,
        attempt=step.attempt,
    )

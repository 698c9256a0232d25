"""The ledger in memory: for tests, and for trying things out. Every call is atomic because nothing in it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType

from msgspec.structs import replace

from lucius.domain.attempt import Attempt, DispatchStatus
from lucius.domain.canonical import idempotency_scope_key
from lucius.domain.effects import Event
from lucius.domain.job import OUTBOX, Job, JobStatus
from lucius.domain.signature import error_signature
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import Instant
from lucius.domain.waiting import wait_cause
from lucius.ledgers.drift import needs_waking
from lucius.ledgers.matching import matches as matches_filter
from lucius.ledgers.step_times import step_millis_of_jobs
from lucius.ports.audit import (
    AuditEntry,
    AuditFilter,
    dismissal_of,
    entry_of,
    is_act,
    matches,
    new_entry_id,
)
from lucius.ports.bus import Bus
from lucius.ports.ledger import (
    REFUSED,
    Change,
    Closing,
    CommitOutcome,
    Committed,
    Conflict,
    Duplicate,
    FailureGroup,
    FailureGroups,
    HeldLine,
    JobFilter,
    JobKey,
    OpenGroup,
    OpenGroups,
    OutboxRow,
    Repairs,
    Saturated,
    Tally,
    UnreadableJob,
    Webhook,
)


class MemoryLedger:
    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._attempts: dict[str, dict[tuple[int, int], Attempt]] = {}
        self._events: dict[str, list[Event]] = {}
        self._claims: dict[bytes, str] = {}
        self._claim_of: dict[str, bytes] = {}
        self._slots: dict[str, int] = {}
        self._webhooks: dict[str, Webhook] = {}
        self._closings: dict[str, Closing] = {}
        self._counts: Counter[tuple[int, str, str]] = Counter()
        self._audit: list[AuditEntry] = []

    async def __aenter__(self) -> MemoryLedger:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def enlists(self, bus: Bus) -> bool:
        return False

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        return {job_id: self._jobs[job_id] for job_id in job_ids if job_id in self._jobs}

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        # Jobs that end make room for jobs that begin in the same call, wherever they stand in it.
        ordered = sorted(changes, key=lambda change: change.before is None)
        outcomes = {change.after.job_id: self._commit_one(change) for change in ordered}
        return [outcomes[change.after.job_id] for change in changes]

    def _commit_one(self, change: Change) -> CommitOutcome:
        job = change.after
        if change.before is None:
            if change.claim is not None and change.claim.key in self._claims:
                first = self._jobs[self._claims[change.claim.key]]
                return Duplicate(first.job_id, first.spec.idempotency_hash, first.status)
            for limit in change.limits:
                if self._slots.get(limit.scope, 0) >= limit.maximum:
                    return Saturated(limit)
            if change.claim is not None:
                self._claims[change.claim.key] = job.job_id
                self._claim_of[job.job_id] = change.claim.key
            old = job.spec.redrive_of
            if old is not None:
                closing = Closing(job_id=old, at=job.spec.created_at, redriven_as=job.job_id)
                self._closings.setdefault(old, closing)
        else:
            current = self._jobs.get(job.job_id)
            if current is None or current.revision != change.before.revision:
                return Conflict()
        self._move_slots(change)
        self._count(change)
        job = self._with_noted_holders(job)
        self._jobs[job.job_id] = replace(job, revision=job.revision + 1)
        attempts = self._attempts.setdefault(job.job_id, {})
        attempts.update({(index, attempt.attempt_no): attempt for index, attempt in change.past_attempts})
        for index, step in enumerate(job.steps):
            if step.attempt is not None:
                attempts[index, step.attempt.attempt_no] = step.attempt
        self._events.setdefault(job.job_id, []).extend(change.events)
        self._audit += [entry_of(job, event, new_entry_id(event.at)) for event in change.events if is_act(event)]
        if change.webhook is not None:
            self._webhooks.setdefault(job.job_id, change.webhook)
        return Committed()

    def _with_noted_holders(self, job: Job) -> Job:
        current = self._jobs.get(job.job_id)
        if current is None:
            return job
        pairs = zip(current.steps, job.steps, strict=True)
        return replace(job, steps=tuple(_with_noted_holder(was, step) for was, step in pairs))

    async def note_holder(
        self, job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
    ) -> str | None:
        job = self._jobs.get(job_id)
        step = job.steps[step_index] if job is not None else None
        if job is None or step is None or step.attempt is None or not _is_unanswered(step.attempt):
            return None
        if (step.attempt.attempt_no, step.attempt.lease_id) != (attempt_no, lease_id):
            return None
        attempt = replace(step.attempt, acked_by=step.attempt.acked_by or instance)
        steps = (*job.steps[:step_index], replace(step, attempt=attempt), *job.steps[step_index + 1 :])
        self._jobs[job_id] = replace(job, steps=steps)
        self._attempts[job_id][step_index, attempt_no] = attempt
        return attempt.acked_by

    def _count(self, change: Change) -> None:
        job, before = change.after, change.before
        if before is None:
            self._counts[job.spec.created_at // 60_000, job.spec.tenant_id, "ACCEPTED"] += 1
        if job.completed_at is not None and (before is None or before.completed_at is None):
            self._counts[job.completed_at // 60_000, job.spec.tenant_id, str(job.status.value)] += 1

    def _move_slots(self, change: Change) -> None:
        was_open = change.before is not None and not change.before.is_terminal
        delta = (not change.after.is_terminal) - was_open
        if delta:
            for scope in change.after.slots:
                self._slots[scope] = self._slots.get(scope, 0) + delta

    async def due(self, now: Instant, limit: int) -> list[str]:
        own = [job for job in self._jobs.values() if job.engine == OUTBOX]
        waiting = [(job.wake_at, job.job_id) for job in own if job.wake_at is not None]
        return [job_id for wake_at, job_id in sorted(waiting) if wake_at <= now][:limit]

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        own = [row for row in self._unsent() if self._jobs[row.job_id].engine == OUTBOX]
        own = [row for row in own if not row.attempt.is_held]
        rows = [row for row in own if ignore_claims or row.attempt.claimed_until <= now]
        return [row.job_id for row in rows[:limit]]

    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        held = [row for row in self._unsent() if row.attempt.is_held and self._line(row.job_id) == line]
        return sorted(row.job_id for row in held if self._jobs[row.job_id].engine == engine)[:limit]

    async def held_lines(self, limit: int) -> list[HeldLine]:
        found = dict.fromkeys(self._line(row.job_id) for row in self._unsent() if row.attempt.is_held)
        return list(found)[:limit]

    def _line(self, job_id: str) -> HeldLine:
        job = self._jobs[job_id]
        return HeldLine(job.spec.tenant_id, job.spec.routing.lane, job.current_step.spec.service)

    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        found = [
            job.job_id for job in self._jobs.values() if job.engine == engine and wait_cause(job) in ("BUS", "ACK")
        ]
        return sorted(job_id for job_id in found if after_id is None or job_id > after_id)[:limit]

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        return {job_id: wait_cause(self._jobs[job_id]) for job_id in job_ids if job_id in self._jobs}

    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        unsent = {row.job_id for row in self._unsent()}
        found = [
            job.job_id
            for job in self._jobs.values()
            if job.engine == engine and not job.is_terminal
            and (job.job_id in unsent or job.current_step.status is StepStatus.FAILED_RETRY)
        ]  # fmt: skip
        return sorted(job_id for job_id in found if after_id is None or job_id > after_id)[:limit]

    async def outbox(self, limit: int) -> list[OutboxRow | UnreadableJob]:
        return [*self._unsent()[:limit]]

    def _unsent(self) -> list[OutboxRow]:
        rows = [
            OutboxRow(
                job_id=job.job_id,
                step_id=job.steps[index].spec.step_id,
                service=job.steps[index].spec.service,
                tenant_id=job.spec.tenant_id,
                routing=job.spec.routing,
                attempt=attempt,
            )
            for job in self._jobs.values()
            for (index, _), attempt in self._attempts[job.job_id].items()
            if attempt.dispatch is DispatchStatus.PENDING
        ]
        return sorted(rows, key=lambda row: (row.attempt.created_at, row.job_id))

    async def find_claim(self, key: bytes) -> Duplicate | None:
        job_id = self._claims.get(key)
        if job_id is None:
            return None
        job = self._jobs[job_id]
        return Duplicate(job.job_id, job.spec.idempotency_hash, job.status)

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job | UnreadableJob]:
        found = [
            job
            for job_id, job in self._jobs.items()
            if (before_id is None or job_id < before_id)
            and matches_filter(job, filter_, self._closings.get(job_id))
            and self._has_key(job, filter_.idempotency_key)
        ]
        return [*sorted(found, key=lambda job: job.job_id, reverse=True)[:limit]]

    def _has_key(self, job: Job, key: str | None) -> bool:
        return key is None or self._claims.get(idempotency_scope_key(job.spec.tenant_id, key, "")) == job.job_id

    async def dismiss(self, closing: Closing) -> Closing:
        kept = self._closings.setdefault(closing.job_id, closing)
        if kept is closing:
            tenant_id = self._jobs[closing.job_id].spec.tenant_id
            self._audit.append(dismissal_of(closing, tenant_id, new_entry_id(closing.at)))
        return kept

    async def closings(self, job_ids: Sequence[str]) -> dict[str, Closing]:
        return {job_id: self._closings[job_id] for job_id in job_ids if job_id in self._closings}

    async def matching(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[JobKey]:
        found = await self.jobs(filter_, limit, before_id)
        return [JobKey(job.job_id, job.spec.tenant_id) for job in found if isinstance(job, Job)]

    async def tally(self, filter_: JobFilter, oldest: int, limit: int) -> Tally:
        found = await self.matching(filter_, len(self._jobs), None)
        return Tally(min(len(found), limit), found[::-1][:oldest])

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, str]:
        return {job_id: self._jobs[job_id].status.value for job_id in job_ids if job_id in self._jobs}

    async def find_claims(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        return {key: self._claims[key] for key in keys if key in self._claims}

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        by_step: dict[str, list[Attempt]] = {}
        for (index, _), attempt in sorted(self._attempts.get(job_id, {}).items()):
            by_step.setdefault(self._jobs[job_id].steps[index].spec.step_id, []).append(attempt)
        return by_step

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        return [event for event in self._events.get(job_id, []) if event.seq > after_seq][:limit]

    async def audit(self, filter_: AuditFilter, limit: int, before_id: str | None) -> list[AuditEntry]:
        found = [entry for entry in self._audit if before_id is None or entry.entry_id < before_id]
        found = [entry for entry in found if matches(entry, filter_)]
        return sorted(found, key=lambda entry: entry.entry_id, reverse=True)[:limit]

    async def inflight(self) -> dict[str, int]:
        return {scope: count for scope, count in self._slots.items() if count}

    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for (minute, tenant_id, outcome), jobs in self._counts.items():
            if minute >= since // 60_000 and (tenants is None or tenant_id in tenants):
                counted[outcome] += jobs
        return dict(counted)

    async def counts_by_tenant(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, dict[str, int]]:
        counted: dict[str, Counter[str]] = {}
        for (minute, tenant_id, outcome), jobs in self._counts.items():
            if minute >= since // 60_000 and (tenants is None or tenant_id in tenants):
                counted.setdefault(tenant_id, Counter())[outcome] += jobs
        return {tenant_id: dict(outcomes) for tenant_id, outcomes in counted.items()}

    async def count_refused(self, at: Instant, refused: Mapping[str, int]) -> None:
        for tenant_id, count in refused.items():
            self._counts[at // 60_000, tenant_id, REFUSED] += count

    async def open_groups(self, scanned_max: int, tenants: Sequence[str] | None) -> OpenGroups:
        open_ = self._open(tenants)
        counted = Counter(
            (job.spec.protocol_id, job.spec.protocol_version, job.spec.routing.lane, job.spec.tenant_id)
            for job in open_[: scanned_max + 1]
        )
        groups = [
            OpenGroup(protocol_id=protocol, protocol_version=version, lane=lane, tenant_id=tenant_id, jobs=jobs)
            for (protocol, version, lane, tenant_id), jobs in counted.items()
        ]
        return OpenGroups(groups, len(open_) > scanned_max)

    async def oldest_waiting(self, tenants: Sequence[str] | None) -> dict[str, str]:
        oldest: dict[str, str] = {}
        for job in self._open(tenants):
            if wait_cause(job) not in (None, "RESULT"):
                before = oldest.get(job.spec.tenant_id, job.job_id)
                oldest[job.spec.tenant_id] = min(before, job.job_id)
        return oldest

    def _open(self, tenants: Sequence[str] | None) -> list[Job]:
        jobs = (job for job in self._jobs.values() if tenants is None or job.spec.tenant_id in tenants)
        return [job for job in jobs if not job.is_terminal]

    async def count_wait_causes(self, tenants: Sequence[str] | None) -> dict[str, int]:
        open_ = (job for job in self._jobs.values() if tenants is None or job.spec.tenant_id in tenants)
        return dict(Counter(cause for job in open_ if (cause := wait_cause(job)) is not None))

    async def step_millis(
        self, request_type: str, tenants: Sequence[str] | None, limit: int
    ) -> list[Mapping[str, int]]:
        return await step_millis_of_jobs(self, request_type, tenants, limit)

    async def failures(self, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
        found = [job for job in await self.jobs(_failed(filter_), scanned_max + 1, None) if isinstance(job, Job)]
        by_reason: dict[str | None, list[Job]] = {}
        for job in found[:scanned_max]:
            by_reason.setdefault(error_signature(job), []).append(job)
        groups = [_group(reason, jobs) for reason, jobs in by_reason.items()]
        groups.sort(key=lambda group: (-group.jobs, group.error_signature or ""))
        return FailureGroups(groups[:limit], min(len(found), scanned_max), len(found) > scanned_max)

    async def webhooks_due(
        self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
    ) -> list[Webhook]:
        by_tenant: dict[str, list[Webhook]] = {}
        for webhook in sorted(self._webhooks.values(), key=lambda one: one.next_at):
            if 0 < webhook.next_at <= now:
                by_tenant.setdefault(webhook.tenant_id, []).append(webhook)
        tenants = sorted(by_tenant, key=lambda tenant: (tenant <= after_tenant, tenant))[:tenants_max]
        return [webhook for tenant in tenants for webhook in by_tenant[tenant][:per_tenant_max]]

    async def claim_webhooks(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        owed = [self._webhooks[job_id] for job_id in job_ids if job_id in self._webhooks]
        claimed = {webhook.job_id for webhook in owed if 0 < webhook.next_at <= now}
        for job_id in claimed:
            self._webhooks[job_id] = replace(self._webhooks[job_id], next_at=claim_until)
        return claimed

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        self._webhooks[webhook.job_id] = replace(webhook, next_at=0) if delivered else webhook

    async def shorten_webhooks(self, latest: Sequence[Instant]) -> None:
        for job_id, webhook in self._webhooks.items():
            allowed = latest[min(webhook.attempts, len(latest) - 1)] + webhook.asked_wait_ms
            if webhook.next_at > allowed:
                self._webhooks[job_id] = replace(webhook, next_at=allowed)

    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        counted: dict[str, int] = {}
        woken = 0
        for job in list(self._jobs.values()):
            if job.is_terminal:
                continue
            for scope in job.slots:
                counted[scope] = counted.get(scope, 0) + 1
            if needs_waking(job, now, claim_seconds):
                self._jobs[job.job_id] = replace(job, wake_at=min(now, job.wake_at or now), revision=job.revision + 1)
                woken += 1
        wrong = [s for s in self._slots | counted if self._slots.get(s, 0) != counted.get(s, 0)]
        self._slots = counted
        closed = 0
        for job_id, attempts in self._attempts.items():
            for key, attempt in attempts.items():
                if attempt.dispatch is DispatchStatus.PENDING and self._jobs[job_id].is_terminal:
                    attempts[key] = replace(attempt, dispatch=DispatchStatus.FAILED_FINAL)
                    closed += 1
        return Repairs(len(wrong), woken, closed)

    async def prunable(
        self,
        ended_before: Instant,
        limit: int,
        tenants: Sequence[str] | None = None,
        except_tenants: Sequence[str] = (),
    ) -> list[JobKey]:
        old = [
            JobKey(job.job_id, job.spec.tenant_id)
            for job in sorted(self._jobs.values(), key=lambda job: job.job_id)
            if self._owes_nothing(job, ended_before)
        ]
        wanted = [one for one in old if tenants is None or one.tenant_id in tenants]
        return [one for one in wanted if one.tenant_id not in except_tenants][:limit]

    def _owes_nothing(self, job: Job, ended_before: Instant) -> bool:
        if job.completed_at is None or job.completed_at >= ended_before:
            return False
        webhook, closing = self._webhooks.get(job.job_id), self._closings.get(job.job_id)
        again = self._jobs.get(closing.redriven_as or "") if closing is not None else None
        return (webhook is None or not webhook.next_at) and (again is None or again.is_terminal)

    async def note_act(self, act: AuditEntry) -> None:
        self._audit.append(act)

    async def prune_audit(self, before: Instant, limit: int) -> None:
        self._audit = [entry for entry in self._audit if entry.at >= before]

    async def prune(self, ended_before: Instant, limit: int, job_ids: Sequence[str] | None = None) -> int:
        if job_ids is None:
            await self.prune_audit(ended_before, limit)
        found = await self.prunable(ended_before, len(self._jobs))
        old = [one.job_id for one in found if job_ids is None or one.job_id in job_ids]
        for job_id in old[:limit]:
            for table in (self._jobs, self._attempts, self._events, self._webhooks, self._closings):
                table.pop(job_id, None)
            key = self._claim_of.pop(job_id, None)
            if key is not None:
                del self._claims[key]
        return len(old[:limit])

    async def health(self) -> str:
        return "memory"


def _is_unanswered(attempt: Attempt) -> bool:
    return attempt.acked_at is None and attempt.verdict is None


def _with_noted_holder(was: Step, step: Step) -> Step:
    """A holder that was noted stays until the ACK or the RESULT is written."""
    before, after = was.attempt, step.attempt
    if before is None or after is None or before.lease_id != after.lease_id or not _is_unanswered(after):
        return step
    return (
        step
        if after.acked_by or not before.acked_by
        else replace(step, attempt=replace(after, acked_by=before.acked_by))
    )


def _failed(filter_: JobFilter) -> JobFilter:
    return JobFilter(
        tenants=filter_.tenants,
        status=JobStatus.FAILED_FINAL,
        created_from=filter_.created_from,
        dead_letter=filter_.dead_letter,
    )


def _group(reason: str | None, jobs: list[Job]) -> FailureGroup:
    ends = [job.completed_at or job.updated_at for job in jobs]
    return FailureGroup(
        error_signature=reason,
        jobs=len(jobs),
        tenants=len({job.spec.tenant_id for job in jobs}),
        first_at=min(ends),
        last_at=max(ends),
        newest_id=max(job.job_id for job in jobs),
    )

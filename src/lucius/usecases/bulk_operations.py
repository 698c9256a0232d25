"""Bulk operations: one action on every job that matches a filter. Created, looked at and steered here; `bulk_runner`
carries them out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.bulk_operation import (
    APPLIES_TO,
    BULK_TRANSITIONS,
    UNLESS_NAMED,
    BulkAction,
    BulkEvent,
    BulkFilter,
    BulkMove,
    BulkOperation,
    ItemStatus,
    moved,
    settled,
)
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.job import Job, JobStatus
from lucius.domain.time import Instant
from lucius.ports.bulk_operations import BulkItem, BulkOperations
from lucius.ports.clock import Clock
from lucius.ports.ledger import JobFilter, JobKey, Ledger, LedgerUnavailable, Tally
from lucius.ports.observer import Observer
from lucius.usecases.operate import first_redrive_claim

JOBS_MAX = 100_000
"""Jobs of one operation."""
OPEN_MAX = 20
"""Operations of one caller that have not ended."""
PAGE_JOBS = 1_000
"""Jobs that are looked at in one read."""
SAMPLE_MAX = 20
RATE_DEFAULT, RATE_MAX = 20.0, 1_000.0

_encode = msgspec.json.Encoder(order="deterministic").encode

Tenants = frozenset[str] | None
"""Those of a caller; None is all of them."""


class BulkWish(Struct, frozen=True, kw_only=True):
    """What a caller asks for."""

    action: BulkAction
    filter: BulkFilter
    reason: str
    rate_per_second: float = RATE_DEFAULT
    canary: int = 0
    canary_max_failures: int = 0
    max_failures: int | None = None


class Preview(Struct, frozen=True, kw_only=True):
    count: int
    sample: list[Job]
    """The oldest of them: those that it would begin with."""


class Bulk:
    def __init__(
        self, store: BulkOperations, ledger: Ledger, clock: Clock, observer: Observer, jobs_max: int = JOBS_MAX
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._jobs_max = jobs_max

    async def preview(self, action: BulkAction, filter_: BulkFilter) -> Preview:
        """Exactly how many jobs an operation would act on now, and the first of them."""
        found = await self._tally(action, filter_)
        oldest = [key.job_id for key in found.oldest]
        try:
            jobs = await self._ledger.load(oldest)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        return Preview(count=found.jobs, sample=[jobs[job_id] for job_id in oldest if job_id in jobs])

    async def create(self, wish: BulkWish, by: str, key: str | None) -> tuple[BulkOperation, bool]:
        """A new operation, or the one that was created with the same key; and whether it was created before."""
        check_status(wish.action, wish.filter)
        await self._tally(wish.action, wish.filter)
        now = self._clock.now()
        operation = BulkOperation(
            operation_id=self._clock.job_id(),
            by=by,
            created_at=now,
            updated_at=now,
            events=(BulkEvent(at=now, type="CREATED", by=by, reason=wish.reason),),
            request_hash=hashlib.sha256(_encode(wish)).hexdigest(),
            **{name: getattr(wish, name) for name in BulkWish.__struct_fields__},
        )
        claim = None if key is None else hashlib.sha256(f"{by}\n{key}".encode()).hexdigest()
        kept = await self._store.create(operation, claim, OPEN_MAX)
        if kept is None:
            detail = f"{OPEN_MAX} operations of this caller have not ended: wait for one, or abandon it"
            raise CallerError.of("CONFLICT", detail)
        if kept.request_hash != operation.request_hash:
            detail = f"this key belongs to operation {kept.operation_id}, which does something else"
            raise CallerError.of("IDEMPOTENCY_KEY_REUSED", detail)
        self._observer.operation_changed(kept.filter.tenants)
        return kept, kept.operation_id != operation.operation_id

    async def get(self, operation_id: str, tenants: Tenants) -> BulkOperation:
        """The operation, or NOT_FOUND: one that concerns other tenants is not found, not forbidden."""
        operation = await self._store.get(operation_id)
        if operation is None or not operation.is_visible_to(tenants):
            raise CallerError.of("NOT_FOUND", "there is no such operation")
        return operation

    async def newest(
        self, tenants: Tenants, limit: int, before_id: str | None
    ) -> tuple[list[BulkOperation], str | None]:
        found = await self._store.newest(limit + 1, before_id, lambda operation: operation.is_visible_to(tenants))
        page = found[:limit]
        return page, page[-1].operation_id if len(found) > limit else None

    async def items(
        self, operation: BulkOperation, limit: int, after_id: str | None, status: ItemStatus | None
    ) -> tuple[list[BulkItem], str | None]:
        found = await self._store.items(operation.operation_id, limit + 1, after_id, status)
        page = found[:limit]
        return page, page[-1].job_id if len(found) > limit else None

    async def steer(
        self, operation_id: str, move: BulkMove, tenants: Tenants, by: str, reason: str | None
    ) -> BulkOperation:
        """Pause, resume or abandon."""
        await self.get(operation_id, tenants)
        decide = partial(_steered, move=move, now=self._clock.now(), by=by, reason=reason)
        operation = await self._store.change(operation_id, decide)
        if operation is None:
            raise CallerError.of("NOT_FOUND", "there is no such operation")
        self._observer.operation_changed(operation.filter.tenants)
        return operation

    async def _tally(self, action: BulkAction, filter_: BulkFilter) -> Tally:
        """How many jobs an operation would act on now, and the first of them: counted, not read."""
        check_status(action, filter_)
        wanted, most = job_filter(action, filter_), self._jobs_max + 1
        if action is BulkAction.REDRIVE:
            wanted = replace(wanted, unclosed=True)
        try:
            found = await self._ledger.tally(wanted, SAMPLE_MAX, most)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        if action is BulkAction.REDRIVE and JobStatus.FAILED_FINAL in (wanted.statuses or ()):
            dismissed = await self._dismissed(replace(wanted, unclosed=False, dismissed=True), most - found.jobs)
            oldest = sorted([*found.oldest, *dismissed], key=lambda key: key.job_id)[:SAMPLE_MAX]
            found = Tally(found.jobs + len(dismissed), oldest)
        if found.jobs > self._jobs_max:
            detail = f"the filter matches more than {self._jobs_max} jobs, the maximum of one operation: narrow it"
            raise CallerError.of("ENVELOPE_INVALID", f"{detail} by tenant, request type or time", "/filter")
        return found

    async def _dismissed(self, wanted: JobFilter, most: int) -> list[JobKey]:
        """Dead letters that somebody has dismissed and nobody has redriven: few, and only their claims tell."""
        found: list[JobKey] = []
        before_id: str | None = None
        while len(found) < most:
            page, before_id = await next_page(self._ledger, BulkAction.REDRIVE, wanted, before_id)
            found += page
            if before_id is None:
                break
        return found


def _steered(operation: BulkOperation, move: BulkMove, now: Instant, by: str, reason: str | None) -> BulkOperation:
    if (operation.status, move) not in BULK_TRANSITIONS:
        raise CallerError.of("CONFLICT", f"not possible while the operation is {operation.status.value}")
    return settled(moved(operation, move, now, by, reason), now)


def check_status(action: BulkAction, filter_: BulkFilter) -> None:
    if filter_.status is not None and filter_.status not in APPLIES_TO[action]:
        possible = ", ".join(APPLIES_TO[action])
        detail = f"{action.value} does not apply to jobs that are {filter_.status.value}, only to {possible}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/filter/status")


def job_filter(action: BulkAction, filter_: BulkFilter, created_until: Instant | None = None) -> JobFilter:
    """The filter of the ledger. Jobs made after `created_until` are left out, those of the same millisecond are not."""
    until = None if created_until is None else created_until + 1
    ends = [end for end in (filter_.created_to, until) if end is not None]
    return JobFilter(
        tenants=filter_.tenants,
        statuses=UNLESS_NAMED[action] if filter_.status is None else (filter_.status,),
        request_type=filter_.request_type,
        created_from=filter_.created_from,
        created_to=min(ends) if ends else None,
        error_signature=filter_.error_signature,
    )


async def next_page(
    ledger: Ledger, action: BulkAction, wanted: JobFilter, before_id: str | None
) -> tuple[Sequence[JobKey], str | None]:
    """Jobs to act on, and where the next page begins. What was redriven before is left out: the job that came of it
    stands for it, and is among those that match if it failed too."""
    try:
        keys = await ledger.matching(wanted, PAGE_JOBS, before_id)
        last = keys[-1].job_id if len(keys) == PAGE_JOBS else None
        if action is not BulkAction.REDRIVE or not keys:
            return keys, last
        closings = await ledger.closings([key.job_id for key in keys])
        redriven = {closing.job_id for closing in closings.values() if closing.redriven_as is not None}
        # The closing of a job that was dismissed does not say whether it was redriven all the same; its claim does.
        claims = {first_redrive_claim(one.job_id): one.job_id for one in closings.values() if one.by is not None}
        if claims:
            redriven.update(claims[claim] for claim in await ledger.find_claims(list(claims)))
        return [key for key in keys if key.job_id not in redriven], last
    except LedgerUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error

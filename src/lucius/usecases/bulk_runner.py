"""Carries out bulk operations, one process for each at a time.

A job is acted on under a key that is made of the operation's id and its own, and its outcome is written afterwards. If
the process dies in between, the next one acts again under the same key, and is told that it was done before: nothing
happens twice, and the counts stay exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.bulk_operation import BulkAction, BulkOperation, BulkStatus, ItemStatus, sentence
from lucius.domain.errors import InfrastructureError, LuciusError
from lucius.domain.inputs import CancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.domain.job import JOB_TERMINAL, JobStatus
from lucius.domain.time import Instant, after
from lucius.ports.audit import OPERATION_KEY
from lucius.ports.bulk_operations import BulkItem, BulkLeaseLost, BulkOperations
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.usecases.bulk_operations import job_filter, next_page
from lucius.usecases.operate import Operations

LEASE_SECONDS = 15.0
OPERATIONS_MAX = 100
"""Operations that are carried on in one round."""
CHUNK_JOBS = 20
"""Jobs acted on at once. After a pause was answered, at most these are still finished."""
CHECK_JOBS = 500
"""New jobs whose ends are looked for in one round."""
CHECK_SECONDS = 0.5
"""How long a new job is left alone after it was looked at; more with each second that it takes."""
CHECK_SECONDS_MAX = 10.0
SATURATED_SECONDS = 1.0
"""How long a job waits whose tenant has as many in flight as it may."""
SELECT_PAGES_MAX = 10

RETRIED = frozenset({"TENANT_SATURATED", "MODE_SATURATED", "GLOBAL_SATURATED", "RATE_LIMITED"})
SKIPPED = frozenset({"JOB_TERMINAL", "CONFLICT", "JOB_NOT_FOUND"})


class Budget(Struct):
    """How many jobs may be acted on now: as many a second as the operation says, without saving up."""

    rate_per_second: float
    at: Instant
    left: float = 1.0

    def refill(self, now: Instant) -> int:
        passed = max(0, now - self.at) / 1000
        self.left = min(max(1.0, self.rate_per_second), self.left + passed * self.rate_per_second)
        self.at = now
        return int(self.left)


class BulkRunner:
    def __init__(
        self,
        store: BulkOperations,
        ledger: Ledger,
        operations: Operations,
        clock: Clock,
        observer: Observer,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._operations = operations
        self._clock = clock
        self._observer = observer
        self._lease_seconds = lease_seconds
        self._holder = clock.lease_id()
        self._budgets: dict[str, Budget] = {}

    async def round(self) -> None:
        """Carry on with every operation that nobody else does. Raises the first error, after all had their turn."""
        now = self._clock.now()
        taken = await self._store.take(self._holder, now, self._lease_seconds, OPERATIONS_MAX)
        known = {operation.operation_id for operation in taken}
        self._budgets = {name: budget for name, budget in self._budgets.items() if name in known}
        results = await asyncio.gather(*(self._carry_on(one) for one in taken), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, BulkLeaseLost):
                raise result

    async def stop(self) -> None:
        """Leave the operations to others."""
        await self._store.release(self._holder)

    async def _carry_on(self, operation: BulkOperation) -> None:
        before = operation
        operation = await self._select(operation)
        operation = await self._check(operation)
        operation = await self._act(operation)
        if before.status is not operation.status:
            self._observer.operation_moved(
                operation.operation_id, operation.action.value, operation.status.value, sentence(operation)
            )

    async def _select(self, operation: BulkOperation) -> BulkOperation:
        """Record the jobs that match, a page at a time."""
        for _ in range(SELECT_PAGES_MAX):
            if operation.status is not BulkStatus.SELECTING or operation.is_selected:
                break
            # Jobs that it makes itself, if they fail, would match too.
            wanted = job_filter(operation.action, operation.filter, operation.created_at)
            keys, last = await next_page(self._ledger, operation.action, wanted, operation.selected_to)
            items = [BulkItem(job_id=key.job_id, tenant_id=key.tenant_id) for key in keys]
            operation = await self._store.select(operation.operation_id, self._holder, items, last, self._clock.now())
            self._observer.operation_changed(operation.filter.tenants)
        return operation

    async def _check(self, operation: BulkOperation) -> BulkOperation:
        """Look whether the jobs that it started have ended."""
        now = self._clock.now()
        if not operation.counts.started:
            return operation
        items = await self._store.due(operation.operation_id, ItemStatus.STARTED, now, CHECK_JOBS)
        if not items:
            return operation
        statuses = await self._ledger.statuses([item.new_job_id for item in items if item.new_job_id])
        changes = [(item, _checked(item, statuses.get(item.new_job_id or ""), now)) for item in items]
        return await self._record(operation, changes, now)

    async def _act(self, operation: BulkOperation) -> BulkOperation:
        now = self._clock.now()
        budget = self._budgets.setdefault(operation.operation_id, Budget(operation.rate_per_second, now))
        allowed, end = budget.refill(now), after(now, self._lease_seconds / 3)
        while (count := min(allowed, operation.act_max, CHUNK_JOBS)) > 0 and now < end:
            items = await self._store.due(operation.operation_id, ItemStatus.PENDING, now, count)
            if not items:
                break
            results = await asyncio.gather(*(self._act_on(operation, item) for item in items), return_exceptions=True)
            allowed -= len(items)
            budget.left -= len(items)
            now = self._clock.now()
            changes = [(item, new) for item, new in zip(items, results, strict=True) if isinstance(new, BulkItem)]
            operation = await self._record(operation, changes, now)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        return operation

    async def _record(
        self, operation: BulkOperation, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation:
        operation = await self._store.record(operation.operation_id, self._holder, changes, now)
        self._observer.operation_changed(operation.filter.tenants)
        for before, item in changes:
            if before.status is not item.status:
                self._observer.operation_acted(operation.action.value, item.status.value)
        return operation

    async def _act_on(self, operation: BulkOperation, item: BulkItem) -> BulkItem:
        """What became of the job. Raises `InfrastructureError` if that is not known; then it is tried again."""
        key = f"{OPERATION_KEY}{operation.operation_id}:{item.job_id}"
        tenants = operation.filter.tenants
        try:
            done = await self._apply(operation, item.job_id, key, lambda tenant: tenants is None or tenant in tenants)
        except LuciusError as error:
            if error.code == "UNAVAILABLE":
                raise
            return _refused(item, error, self._clock.now())
        except Exception as error:
            self._observer.failed(f"operation {operation.operation_id} on job {item.job_id}", error)
            defect = InfrastructureError.of("INTERNAL", "a defect: the server's log has the reason")
            return _refused(item, defect, self._clock.now())
        now = self._clock.now()
        if operation.action is BulkAction.REDRIVE:
            return replace(
                item, status=ItemStatus.STARTED, new_job_id=done, code=None, detail=None, acted_at=now,
                next_at=after(now, CHECK_SECONDS),
            )  # fmt: skip
        return replace(item, status=ItemStatus.SUCCEEDED, code=None, detail=None, acted_at=now, ended_at=now)

    async def _apply(self, operation: BulkOperation, job_id: str, key: str, sees: Callable[[str], bool]) -> str:
        fact: Operation
        match operation.action:
            case BulkAction.REDRIVE:
                by, reason = operation.by, operation.reason
                return (await self._operations.redrive(job_id, sees, key, True, by, reason)).job_id
            case BulkAction.CANCEL:
                fact = CancelAsked(operation.by, operation.reason, key)
            case BulkAction.PAUSE:
                fact = PauseAsked(operation.by, key, operation.reason)
            case BulkAction.RESUME:
                fact = ResumeAsked(operation.by, key, operation.reason)
        return (await self._operations.apply(job_id, fact, sees)).job_id


def _checked(item: BulkItem, status: str | None, now: Instant) -> BulkItem:
    if status is None:
        detail = f"job {item.new_job_id} was pruned before its end was seen"
        return replace(item, status=ItemStatus.FAILED, code="JOB_NOT_FOUND", detail=detail, ended_at=now)
    if status == JobStatus.SUCCEEDED:
        return replace(item, status=ItemStatus.SUCCEEDED, ended_at=now)
    if status in JOB_TERMINAL:
        detail = f"job {item.new_job_id} ended as {status}"
        return replace(item, status=ItemStatus.FAILED, code=status, detail=detail, ended_at=now)
    age_seconds = max(0, now - (item.acted_at or now)) / 1000
    return replace(item, next_at=after(now, min(CHECK_SECONDS_MAX, max(CHECK_SECONDS, age_seconds / 10))))


def _refused(item: BulkItem, error: LuciusError, now: Instant) -> BulkItem:
    if error.code in RETRIED:
        return replace(item, code=error.code, detail=error.detail, next_at=after(now, SATURATED_SECONDS))
    status = ItemStatus.SKIPPED if error.code in SKIPPED else ItemStatus.FAILED
    return replace(item, status=status, code=error.code, detail=error.detail, acted_at=now, ended_at=now)

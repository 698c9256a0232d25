"""Conformance suite for stores of bulk operations.

Subclass `BulkSuite` in a test module and provide two fixtures: `bulk`, an open and empty store, and `clock`, a
`ManualClock`. A store that several processes share passes `SharedBulkSuite`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from lucius.domain.bulk_operation import (
    BulkAction,
    BulkEvent,
    BulkFilter,
    BulkMove,
    BulkOperation,
    BulkStatus,
    Counts,
    ItemStatus,
    moved,
)
from lucius.domain.job import JobStatus
from lucius.domain.time import after
from lucius.ports.bulk_operations import BulkItem, BulkLeaseLost, BulkOperations
from lucius.testing.samples import ManualClock

ME, OTHER = "me", "other"
LEASE_SECONDS = 15.0
OPEN_MAX = 20


class BulkSuite:
    def _new(self, clock: ManualClock, **fields: Any) -> BulkOperation:
        plain = BulkOperation(
            operation_id=clock.job_id(), action=BulkAction.REDRIVE, by="key:ops", reason="fixed", rate_per_second=5.0,
            filter=BulkFilter(tenants=("acme",), status=JobStatus.FAILED_FINAL, created_from=1, error_signature="x"),
            created_at=clock.now(), updated_at=clock.now(),
            events=(BulkEvent(at=clock.now(), type="CREATED", by="key:ops", reason="fixed"),),
        )  # fmt: skip
        return replace(plain, **fields)

    async def _selected(
        self, bulk: BulkOperations, clock: ManualClock, jobs: int, **fields: Any
    ) -> tuple[BulkOperation, list[BulkItem]]:
        """An operation that this process has, with its jobs, oldest first."""
        operation = self._new(clock, **fields)
        assert await bulk.create(operation, None, OPEN_MAX) == operation
        await bulk.take(ME, clock.now(), LEASE_SECONDS, 10)
        items = [BulkItem(job_id=clock.job_id(), tenant_id="acme") for _ in range(jobs)]
        operation = await bulk.select(operation.operation_id, ME, items[::-1], None, clock.now())
        return operation, items

    # --- Creating and reading ----------------------------------------------------------------------------------------

    async def test_operation_is_read_as_it_was_created(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation = self._new(clock, canary=3, max_failures=7)
        assert await bulk.create(operation, None, OPEN_MAX) == operation
        assert await bulk.get(operation.operation_id) == operation
        assert await bulk.get(clock.job_id()) is None

    async def test_same_key_means_the_same_operation(self, bulk: BulkOperations, clock: ManualClock) -> None:
        first = self._new(clock)
        again = self._new(clock)
        results = await asyncio.gather(*(bulk.create(one, "key", OPEN_MAX) for one in (first, again)))
        assert results[0] == results[1]
        assert results[0] in (first, again)
        assert len(await bulk.newest(10, None, lambda one: True)) == 1

    async def test_creator_has_only_so_many_open_operations(self, bulk: BulkOperations, clock: ManualClock) -> None:
        first, second = self._new(clock), self._new(clock)
        assert await bulk.create(first, None, 1) == first
        assert await bulk.create(second, None, 1) is None
        other = self._new(clock, by="key:another")
        assert await bulk.create(other, None, 1) == other
        await bulk.change(first.operation_id, lambda one: moved(one, BulkMove.ABANDONED, 5))
        assert await bulk.create(second, None, 1) == second

    async def test_newest_come_first_and_only_the_wanted(self, bulk: BulkOperations, clock: ManualClock) -> None:
        made = []
        for place in range(5):
            clock.advance(1)
            made.append(self._new(clock, reason="even" if place % 2 == 0 else "odd"))
            await bulk.create(made[-1], None, OPEN_MAX)
        assert await bulk.newest(3, None, lambda one: True) == made[:1:-1]
        assert await bulk.newest(9, made[2].operation_id, lambda one: True) == made[1::-1]
        assert await bulk.newest(2, None, lambda one: one.reason == "even") == [made[4], made[2]]

    # --- Changing ----------------------------------------------------------------------------------------------------

    async def test_change_decides_on_the_newest_state(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation = self._new(clock)
        await bulk.create(operation, None, OPEN_MAX)
        paused = await bulk.change(operation.operation_id, lambda one: moved(one, BulkMove.PAUSED, 9, "key:ops", "why"))
        assert paused is not None
        assert (paused.status, paused.events[-1].reason) == (BulkStatus.PAUSED, "why")
        assert await bulk.get(operation.operation_id) == paused
        with pytest.raises(KeyError):
            await bulk.change(operation.operation_id, lambda one: moved(one, BulkMove.PAUSED, 9))
        assert await bulk.get(operation.operation_id) == paused
        assert await bulk.change(clock.job_id(), lambda one: one) is None

    # --- Leases ------------------------------------------------------------------------------------------------------

    async def test_take_leases_what_is_active(self, bulk: BulkOperations, clock: ManualClock) -> None:
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == []
        active, paused, ended = [self._new(clock) for _ in range(3)]
        for operation in (active, paused, ended):
            await bulk.create(operation, None, OPEN_MAX)
        await bulk.change(paused.operation_id, lambda one: moved(one, BulkMove.PAUSED, 5))
        await bulk.change(ended.operation_id, lambda one: moved(one, BulkMove.ABANDONED, 5))
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == [active]
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == [active]

    # --- Jobs --------------------------------------------------------------------------------------------------------

    async def test_selected_jobs_are_counted_once(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation = self._new(clock)
        await bulk.create(operation, None, OPEN_MAX)
        await bulk.take(ME, clock.now(), LEASE_SECONDS, 10)
        items = [BulkItem(job_id=clock.job_id(), tenant_id=f"tenant-{place}") for place in range(4)]
        operation = await bulk.select(operation.operation_id, ME, items[2:], items[2].job_id, clock.now())
        assert (operation.status, operation.selected_to) == (BulkStatus.SELECTING, items[2].job_id)
        operation = await bulk.select(operation.operation_id, ME, items[:3], None, clock.now())
        assert (operation.status, operation.counts) == (BulkStatus.RUNNING, Counts(pending=4))
        assert await bulk.get(operation.operation_id) == operation
        assert await bulk.items(operation.operation_id, 10, None) == items
        assert await bulk.items(operation.operation_id, 2, items[0].job_id) == items[1:3]

    async def test_operation_without_jobs_ends_when_it_is_selected(
        self, bulk: BulkOperations, clock: ManualClock
    ) -> None:
        operation, _ = await self._selected(bulk, clock, 0)
        assert (operation.status, operation.ended_at) == (BulkStatus.COMPLETED, clock.now())
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == []

    async def test_due_answers_what_has_waited_longest(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation, items = await self._selected(bulk, clock, 4)
        waits = [(items[0], replace(items[0], next_at=clock.now() + 5, code="TENANT_SATURATED", detail="full"))]
        changed = await bulk.record(operation.operation_id, ME, waits, clock.now())
        assert changed.counts == Counts(pending=4)
        due = await bulk.due(operation.operation_id, ItemStatus.PENDING, clock.now(), 10)
        assert due == items[1:]
        assert await bulk.due(operation.operation_id, ItemStatus.PENDING, clock.now(), 2) == items[1:3]
        due = await bulk.due(operation.operation_id, ItemStatus.PENDING, clock.now() + 5, 10)
        assert due == [*items[1:], waits[0][1]]
        assert await bulk.due(operation.operation_id, ItemStatus.STARTED, clock.now() + 5, 10) == []

    async def test_record_changes_jobs_counts_and_state_together(
        self, bulk: BulkOperations, clock: ManualClock
    ) -> None:
        operation, items = await self._selected(bulk, clock, 4)
        started = replace(items[0], status=ItemStatus.STARTED, new_job_id=clock.job_id(), acted_at=clock.now())
        failed = replace(items[1], status=ItemStatus.FAILED, code="FORBIDDEN", detail="no", ended_at=clock.now())
        skipped = replace(items[2], status=ItemStatus.SKIPPED, code="CONFLICT", detail="it has ended")
        changes = list(zip(items, (started, failed, skipped), strict=False))
        operation = await bulk.record(operation.operation_id, ME, changes, clock.now())
        assert operation.counts == Counts(pending=1, started=1, failed=1, skipped=1)
        assert await bulk.items(operation.operation_id, 10, None) == [started, failed, skipped, items[3]]
        assert await bulk.items(operation.operation_id, 10, None, ItemStatus.FAILED) == [failed]
        done = replace(items[3], status=ItemStatus.SUCCEEDED)
        operation = await bulk.record(operation.operation_id, ME, [(items[3], done)], clock.now())
        assert operation.status is BulkStatus.FINISHING
        ended = replace(started, status=ItemStatus.SUCCEEDED, ended_at=clock.now())
        operation = await bulk.record(operation.operation_id, ME, [(started, ended)], clock.now())
        assert (operation.status, operation.counts.total) == (BulkStatus.COMPLETED, 4)

    async def test_outcome_that_is_known_is_not_written_again(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation, items = await self._selected(bulk, clock, 2)
        done = replace(items[0], status=ItemStatus.SUCCEEDED)
        for _ in range(2):
            operation = await bulk.record(operation.operation_id, ME, [(items[0], done)], clock.now())
        assert operation.counts == Counts(pending=1, succeeded=1)
        wrong = replace(items[0], status=ItemStatus.FAILED)
        operation = await bulk.record(operation.operation_id, ME, [(items[0], wrong)], clock.now())
        assert operation.counts == Counts(pending=1, succeeded=1)
        assert await bulk.items(operation.operation_id, 1, None) == [done]

    async def test_paused_operation_is_active_while_its_jobs_are(
        self, bulk: BulkOperations, clock: ManualClock
    ) -> None:
        operation, items = await self._selected(bulk, clock, 2)
        started = replace(items[0], status=ItemStatus.STARTED, new_job_id=clock.job_id())
        await bulk.record(operation.operation_id, ME, [(items[0], started)], clock.now())
        await bulk.change(operation.operation_id, lambda one: moved(one, BulkMove.PAUSED, 5))
        assert len(await bulk.take(ME, clock.now(), LEASE_SECONDS, 10)) == 1
        ended = replace(started, status=ItemStatus.SUCCEEDED)
        operation = await bulk.record(operation.operation_id, ME, [(started, ended)], clock.now())
        assert (operation.status, operation.counts) == (BulkStatus.PAUSED, Counts(pending=1, succeeded=1))
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == []

    # --- Upkeep ------------------------------------------------------------------------------------------------------

    async def test_prune_removes_what_ended_long_ago(self, bulk: BulkOperations, clock: ManualClock) -> None:
        old, _ = await self._selected(bulk, clock, 2)
        await bulk.change(old.operation_id, lambda one: moved(one, BulkMove.ABANDONED, 1_000))
        young, _ = await self._selected(bulk, clock, 1)
        assert await bulk.prune(1_000, 10) == 0
        assert await bulk.prune(1_001, 10) == 1
        assert await bulk.get(old.operation_id) is None
        assert await bulk.items(old.operation_id, 10, None) == []
        assert await bulk.get(young.operation_id) == young


class SharedBulkSuite(BulkSuite):
    """For a store that several processes share."""

    async def test_lease_keeps_others_out_until_it_ends(self, bulk: BulkOperations, clock: ManualClock) -> None:
        operation = self._new(clock)
        await bulk.create(operation, None, OPEN_MAX)
        await bulk.take(ME, clock.now(), LEASE_SECONDS, 10)
        assert await bulk.take(OTHER, clock.now(), LEASE_SECONDS, 10) == []
        assert await bulk.take(OTHER, after(clock.now(), LEASE_SECONDS), LEASE_SECONDS, 10) == [operation]
        with pytest.raises(BulkLeaseLost):
            await bulk.select(operation.operation_id, ME, [], None, clock.now())
        with pytest.raises(BulkLeaseLost):
            await bulk.record(operation.operation_id, ME, [], clock.now())
        await bulk.release(OTHER)
        assert await bulk.take(ME, clock.now(), LEASE_SECONDS, 10) == [operation]
        far = after(clock.now(), -1_000)  # The clock was set back, or its holder's was ahead.
        assert await bulk.take(OTHER, far, LEASE_SECONDS, 10) == [operation]

    async def test_only_one_of_many_takes_an_operation(self, bulk: BulkOperations, clock: ManualClock) -> None:
        await bulk.create(self._new(clock), None, OPEN_MAX)
        results = await asyncio.gather(
            *(bulk.take(f"holder-{number}", clock.now(), LEASE_SECONDS, 10) for number in range(8))
        )
        assert sum(len(result) for result in results) == 1

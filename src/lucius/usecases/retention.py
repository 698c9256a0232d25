"""Retention: jobs that ended long ago are archived, if there is an archive, and then deleted, a slice at a time.

A slice is archived durably before any of it is deleted. A process that dies in between leaves jobs that are archived
and still in the ledger; they are archived once more, and deleted then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant, after, iso
from lucius.ports.archive import Archive
from lucius.ports.audit import AuditEntry, AuditKind, new_entry_id
from lucius.ports.bulk_operations import BulkOperations
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry
from lucius.usecases.archived_jobs import read_for_archive

SLICE_JOBS = 100
"""Deleted in one transaction: turns wait for one no longer than for a turn."""
PAUSE_SECONDS = 0.02
ROUND_SECONDS = 60.0
"""How often what has grown too old is looked for."""
ROUND_SECONDS_MAX = 20.0
SECONDS_OF_DAY = 86_400.0

log = logging.getLogger("lucius.retention")


class Pruned(Struct, frozen=True):
    jobs: int = 0
    archived: int = 0
    operations: int = 0
    is_more: bool = False
    """Whether there is more to prune."""

    def plus(self, later: Pruned) -> Pruned:
        jobs, archived, operations = (
            self.jobs + later.jobs,
            self.archived + later.archived,
            self.operations + later.operations,
        )
        return Pruned(jobs, archived, operations, later.is_more)

    def __str__(self) -> str:
        lines = [f"{self.jobs} jobs removed."]
        if self.archived:
            lines.append(f"{self.archived} jobs archived.")
        if self.operations:
            lines.append(f"{self.operations} bulk operations removed.")
        return "\n".join(lines)


class Retention:
    def __init__(
        self,
        ledger: Ledger,
        operations: BulkOperations,
        registry: Registry | None,
        clock: Clock,
        observer: Observer,
        archive: Archive | None,
        days: float | None,
    ) -> None:
        """`days`: how long jobs are kept whose tenant does not say; None: until somebody prunes them."""
        self._ledger = ledger
        self._operations = operations
        self._registry = registry
        self._clock = clock
        self._observer = observer
        self.archive = archive
        self._days = days

    async def round(self) -> None:
        """Prune what tenants and the settings let go, for a while."""
        until = time.monotonic() + ROUND_SECONDS_MAX
        own = {
            tenant.id: tenant.retention_days
            for tenant in (() if self._registry is None else self._registry.snapshot().tenants.values())
            if tenant.retention_days is not None
        }
        total = Pruned()
        for tenant, days in sorted(own.items()):
            total = total.plus(await self._prune(self._before(days), until, [tenant], ()))
        if self._days is not None:
            before = self._before(self._days)
            total = total.plus(await self._prune(before, until, None, sorted(own)))
            await self._ledger.prune_audit(before, SLICE_JOBS)
            await self._operations.prune(before, SLICE_JOBS)
        if total.jobs:
            log.info("%d jobs removed because of their age, %d archived before", total.jobs, total.archived)

    async def prune(self, older_than_seconds: float, seconds_max: float, by: str) -> Pruned:
        """Prune every tenant's jobs that ended so long ago, for a while. Raises `ArchiveUnavailable`."""
        before, until = after(self._clock.now(), -older_than_seconds), time.monotonic() + seconds_max
        done = await self._prune(before, until, None, ())
        operations = 0
        if not done.is_more:
            await self._ledger.prune_audit(before, SLICE_JOBS)
            operations = await self._operations.prune(before, SLICE_JOBS)
        if done.jobs:
            log.info("%d jobs removed by %s, %d archived before", done.jobs, by, done.archived)
            await self._ledger.note_act(self._act(by, before, done))
            self._observer.acted()
        return Pruned(done.jobs, done.archived, operations, done.is_more or operations == SLICE_JOBS)

    def _act(self, by: str, before: Instant, done: Pruned) -> AuditEntry:
        now = self._clock.now()
        detail = {"ended_before": iso(before), "jobs": done.jobs, "archived": done.archived}
        return AuditEntry(
            entry_id=new_entry_id(now), at=now, actor=by, action="prune", kind=AuditKind.LEDGER, target="jobs",
            tenant_id=None, reason=None, detail=msgspec.json.encode(detail).decode(),
        )  # fmt: skip

    def _before(self, days: float) -> Instant:
        return after(self._clock.now(), -days * SECONDS_OF_DAY)

    async def _prune(
        self, before: Instant, until: float, tenants: Sequence[str] | None, except_tenants: Sequence[str]
    ) -> Pruned:
        jobs = archived = 0
        while time.monotonic() < until:
            keys = await self._ledger.prunable(before, SLICE_JOBS, tenants, except_tenants)
            if not keys:
                return Pruned(jobs, archived)
            job_ids = [key.job_id for key in keys]
            if self.archive is not None:
                kept = await read_for_archive(self._ledger, job_ids, self._clock.now())
                await self.archive.write(kept)
                archived += len(kept)
                # A job that cannot be read stays, for somebody to look at.
                job_ids = [job.job_id for job in kept]
            removed = await self._ledger.prune(before, SLICE_JOBS, job_ids)
            self._observer.jobs_pruned(removed, len(job_ids) if self.archive is not None else 0)
            jobs += removed
            if not removed:
                return Pruned(jobs, archived)
            await asyncio.sleep(PAUSE_SECONDS)
        return Pruned(jobs, archived, is_more=True)

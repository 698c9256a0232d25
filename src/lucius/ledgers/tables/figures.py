"""Figures for people, from what the index says about jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from lucius.azure.tables import Row
from lucius.domain.job import JobStatus
from lucius.domain.waiting import WAIT_CAUSES
from lucius.ledgers.sql.lists import ID_LEAD_MILLIS, first_id_at
from lucius.ledgers.tables import hints
from lucius.ledgers.tables.layouts import SHARDS
from lucius.ledgers.tables.slots import SlotGroup
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import FailureGroup, FailureGroups, JobFilter, OpenGroup, OpenGroups

OPEN_MAX = 10_000_000
READ_FOR_ONE = 2
"""Hints that are read for each job whose steps are measured."""
AT_WORK = "RESULT"
"""The wait cause of a job that a service is working on."""


async def count_wait_causes(store: Store, tenants: Sequence[str] | None) -> dict[str, int]:
    return dict(Counter(cause for cause, tenant in (await _waiting(store, tenants)).values()))


async def oldest_waiting(store: Store, tenants: Sequence[str] | None) -> dict[str, str]:
    oldest: dict[str, str] = {}
    for job_id, (cause, tenant) in (await _waiting(store, tenants)).items():
        if cause != AT_WORK:
            oldest[tenant] = min(oldest.get(tenant, job_id), job_id)
    return oldest


async def _waiting(store: Store, tenants: Sequence[str] | None) -> dict[str, tuple[str, str]]:
    """What each open job waits for, and its tenant. Reads a hint for each, a thousand a request. Of a job with several,
    the one of the latest revision counts."""
    newest: dict[str, tuple[int, str, str]] = {}
    for cause in WAIT_CAUSES:
        for row in await store.read_hints(hints.by_wait_cause(cause), limit=OPEN_MAX):
            job_id, revision = row.values["jobId"], hints.revision_of(row.key)
            if revision > newest.get(job_id, (0, "", ""))[0]:
                newest[job_id] = (revision, cause, row.values["tenant_id"])
    return {
        job_id: (cause, tenant) for job_id, (_, cause, tenant) in newest.items() if tenants is None or tenant in tenants
    }


def open_groups(counted: Counter[tuple[SlotGroup, str]], scanned_max: int) -> OpenGroups:
    groups = [OpenGroup(**asdict(group), tenant_id=tenant, jobs=jobs) for (group, tenant), jobs in counted.items()]
    return OpenGroups(groups, counted.total() > scanned_max)


async def step_millis(
    store: Store, request_type: str, tenants: Sequence[str] | None, limit: int
) -> list[Mapping[str, int]]:
    """Jobs are spread evenly over the shards, so that a few of each hold the newest of all. If one has more than
    were read, those older than what was read of it are left out."""
    of_tenants: Sequence[str | None] = [None] if tenants is None else tenants
    prefixes = [hints.succeeded(request_type, tenant) for tenant in of_tenants]
    of_shard = -(-READ_FOR_ONE * limit // SHARDS)
    pages = await store.each(
        lambda one: store.read_hints(one[0], limit=of_shard, shards=[one[1]]),
        [(prefix, shard) for prefix in prefixes for shard in range(SHARDS)],
    )
    found: dict[str, Row] = {}
    for page in pages:
        found |= {row.values["jobId"]: row for row in page}
    oldest = max((page[-1].values["jobId"] for page in pages if len(page) >= of_shard), default="")
    newest = sorted((job_id for job_id in found if job_id >= oldest), reverse=True)[:limit]
    return [hints.read_step_millis(found[job_id].values) for job_id in newest]


async def failures(store: Store, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
    """One more than `scanned_max` is looked at, to know whether there are more."""
    prefixes = ["DEAD"] if filter_.dead_letter else [hints.by_status(JobStatus.FAILED_FINAL.value)]
    if filter_.tenants is not None and not filter_.dead_letter:
        prefixes = [hints.by_status(JobStatus.FAILED_FINAL.value, tenant) for tenant in filter_.tenants]
    found: dict[str, tuple[str, Row]] = {}
    for prefix in prefixes:
        end = None
        if filter_.created_from is not None:
            end = f"{prefix}:{hints.newest_first(first_id_at(filter_.created_from - ID_LEAD_MILLIS))};"
        for row in await store.read_hints(prefix, "", end, limit=scanned_max + 1):
            if _is_wanted(row, filter_):
                found[row.values["jobId"]] = (row.key[len(prefix) :], row)
    newest = [row for _, row in sorted(found.values(), key=lambda one: one[0])][: scanned_max + 1]
    by_reason: dict[str | None, list[Row]] = {}
    for row in newest[:scanned_max]:
        by_reason.setdefault(row.values.get("error_signature"), []).append(row)
    groups = [_group(reason, rows) for reason, rows in by_reason.items()]
    groups.sort(key=lambda group: (-group.jobs, group.error_signature or ""))
    return FailureGroups(groups[:limit], min(len(newest), scanned_max), len(newest) > scanned_max)


def _is_wanted(row: Row, filter_: JobFilter) -> bool:
    created_from = filter_.created_from
    return (filter_.tenants is None or row.values["tenant_id"] in filter_.tenants) and (
        created_from is None or row.values["created_at"] >= created_from
    )


def _group(reason: str | None, rows: list[Row]) -> FailureGroup:
    ends = [row.values.get("completed_at") or 0 for row in rows]
    return FailureGroup(
        error_signature=reason,
        jobs=len(rows),
        tenants=len({row.values["tenant_id"] for row in rows}),
        first_at=min(ends),
        last_at=max(ends),
        newest_id=max(row.values["jobId"] for row in rows),
    )

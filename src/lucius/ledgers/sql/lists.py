"""Lists of jobs, newest first.

Every list is read in two steps: the ids of a page from an index that holds all that was asked for, then those jobs. The
index has the columns that must be equal, followed by `job_id`, so a page costs as much as it has rows, however many
jobs there are. A job's id begins with the moment it was made at, so a range of time is a range of ids.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from lucius.domain.canonical import idempotency_scope_key
from lucius.domain.job import JOB_TERMINAL, Job, JobStatus
from lucius.domain.time import Instant
from lucius.ledgers.sql import statements
from lucius.ledgers.sql.loading import Policies, load_script
from lucius.ledgers.sql.rows import claim_key
from lucius.ledgers.sql.statements import BY_CORRELATION, BY_SEARCH_VALUE, JOBS, JobSource
from lucius.ports.ledger import JobFilter, JobKey, Tally, UnreadableJob
from lucius.sql.database import Fetch, Script

OPEN: tuple[str | None, ...] = tuple(status.value for status in JobStatus if status not in JOB_TERMINAL)
OWN_ID = ""
"""Stands for the correlation id of a job that was given none."""
_SMALLEST_ID = "00000000-0000-0000-0000-000000000000"
EDGE_PAGE = 1_000
ID_LEAD_MILLIS = 1_000
"""How far the moment in a job's id may be from its `created_at`: the two are taken one right after the other."""


def list_jobs(
    filter_: JobFilter, limit: int, before_id: str | None, policies: Policies
) -> Script[list[Job | UnreadableJob]]:
    found: list[Job | UnreadableJob] = []
    while len(found) < limit:
        wanted = limit - len(found)
        ids = yield from _page_of_ids(filter_, wanted, before_id)
        if ids:
            page = yield from load_script(ids, policies)
            found += sorted((job for job in page if _is_within(job, filter_)), key=attrgetter("job_id"), reverse=True)
            before_id = ids[-1]
        if len(ids) < wanted:
            break
    return found


def matching_jobs(filter_: JobFilter, limit: int, before_id: str | None, policies: Policies) -> Script[list[JobKey]]:
    found: list[JobKey] = []
    while len(found) < limit:
        wanted = limit - len(found)
        ids = yield from _page_of_ids(filter_, wanted, before_id)
        # Only a job whose id is close to one end of the range has to be read to know whether it is within.
        unsure = [job_id for job_id in ids if _is_close_to_an_end(job_id, filter_)]
        page = (yield from load_script(unsure, policies)) if unsure else []
        outside = {job.job_id for job in page if not _is_within(job, filter_)}
        tenants = {row[0]: row[1] for row in (yield Fetch(statements.TENANTS, [ids]))} if ids else {}
        found += [JobKey(job_id, tenants[job_id]) for job_id in ids if job_id not in outside]
        if len(ids) < wanted:
            break
        before_id = ids[-1]
    return found


def tally_jobs(filter_: JobFilter, oldest: int, limit: int, policies: Policies) -> Script[Tally]:
    """Counted by id alone. A range of time is a range of ids but for its ends, whose jobs are read."""
    outside: set[str] = set()
    for end in {filter_.created_from, filter_.created_to} - {None}:
        close = replace(filter_, created_from=end, created_to=end)
        before_id: str | None = None
        while True:
            ids = yield from _page_of_ids(close, EDGE_PAGE, before_id)
            page = (yield from load_script(ids, policies)) if ids else []
            outside.update(job.job_id for job in page if not _is_within(job, filter_) and _may_be_within(job, filter_))
            if len(ids) < EDGE_PAGE:
                break
            before_id = ids[-1]
    parts = yield from _parts(filter_)
    jobs, most = 0, limit + len(outside)
    for one, tenant_id, owners in parts:
        if jobs < most:
            jobs += (yield count_of_ids(one, tenant_id, most - jobs, owners))[0][0]
    found: list[str] = []
    after_id: str | None = None
    while len(found) < oldest:
        wanted = oldest - len(found)
        ids = yield from _page_of_ids(filter_, wanted, after_id, oldest_first=True)
        found += [job_id for job_id in ids if job_id not in outside]
        if len(ids) < wanted:
            break
        after_id = ids[-1]
    tenants = {row[0]: row[1] for row in (yield Fetch(statements.TENANTS, [found]))} if found else {}
    return Tally(jobs - len(outside), [JobKey(job_id, tenants[job_id]) for job_id in found])


def _may_be_within(job: Job | UnreadableJob, filter_: JobFilter) -> bool:
    """Whether its id is in the range of ids."""
    first, end = filter_.created_from, filter_.created_to
    lead = ID_LEAD_MILLIS
    return (first is None or job.job_id >= first_id_at(first - lead)) and (
        end is None or job.job_id < first_id_at(end + lead)
    )


def _is_close_to_an_end(job_id: str, filter_: JobFilter) -> bool:
    lead = ID_LEAD_MILLIS
    return any(
        end is not None and first_id_at(end - lead) <= job_id < first_id_at(end + lead)
        for end in (filter_.created_from, filter_.created_to)
    )


def _page_of_ids(
    filter_: JobFilter, limit: int, beyond_id: str | None, oldest_first: bool = False
) -> Script[list[str]]:
    """With several tenants or states, one page of each is read and the first of them all are taken: one index serves
    them. `beyond_id`: where the page before it ended."""
    ids: list[str] = []
    for one, tenant_id, owners in (yield from _parts(filter_)):
        ids += [row[0] for row in (yield page_of_ids(one, tenant_id, limit, beyond_id, owners, oldest_first))]
    return sorted(ids, reverse=not oldest_first)[:limit]


_Part = tuple[JobFilter, str | None, list[str] | None]
"""A filter on one state, a tenant or None, and the only jobs that may match, if they are known."""


def _parts(filter_: JobFilter) -> Script[list[_Part]]:
    """No job is in two of them."""
    statuses: tuple[str | None, ...] = (filter_.status,) if filter_.statuses is None else filter_.statuses
    if filter_.wait_cause is not None and statuses == (None,):
        statuses = OPEN  # Found through the index by status.
    owners: list[str] | None = None
    if filter_.idempotency_key is not None:
        owners = yield from _accepted_under(filter_.idempotency_key, filter_.tenants)
        if not owners:
            return []
    return [
        (one, tenant_id, owners)
        for tenant_id in ((None,) if filter_.tenants is None else filter_.tenants)
        for status in statuses
        for one in _by_correlation(replace(filter_, status=status))
    ]


def _accepted_under(key: str, tenants: tuple[str, ...] | None) -> Script[list[str]]:
    """The jobs that have a claim by this key: no index is needed but that of the claims."""
    if tenants is None:
        scopes = yield Fetch(statements.TENANT_SCOPES)
        tenants = tuple(row[0].removeprefix("tenant:") for row in scopes)
    claims = [claim_key(idempotency_scope_key(tenant, key, "")) for tenant in tenants]
    return [row[1] for row in (yield Fetch(statements.CLAIM_OWNERS, [claims]))]


def _by_correlation(filter_: JobFilter) -> tuple[JobFilter, ...]:
    """A job that was given no correlation id has its own id, which is not written twice."""
    wanted = filter_.correlation_id
    if wanted is None or filter_.job_id not in (None, wanted):
        return (filter_,)
    return filter_, replace(filter_, correlation_id=OWN_ID, job_id=wanted)


def page_of_ids(
    filter_: JobFilter,
    tenant_id: str | None,
    limit: int,
    beyond_id: str | None,
    owners: list[str] | None = None,
    oldest_first: bool = False,
) -> Fetch:
    """`beyond_id`: where the page before it ended. `owners`: only these jobs."""
    after_id, before_id = (beyond_id, None) if oldest_first else (None, beyond_id)
    source, conditions, args = _conditions(filter_, tenant_id, limit, after_id, before_id, owners)
    return Fetch(statements.list_job_ids(source, conditions, oldest_first), args)


def count_of_ids(filter_: JobFilter, tenant_id: str | None, limit: int, owners: list[str] | None = None) -> Fetch:
    source, conditions, args = _conditions(filter_, tenant_id, limit, None, None, owners)
    return Fetch(statements.count_job_ids(source, conditions), args)


def _conditions(
    filter_: JobFilter,
    tenant_id: str | None,
    limit: int,
    after_id: str | None,
    before_id: str | None,
    owners: list[str] | None,
) -> tuple[JobSource, list[str], list[Any]]:
    conditions: list[str] = []
    args: list[Any] = [limit]

    def add(condition: str, *values: Any) -> None:
        places = [f"${len(args) + place}" for place in range(1, len(values) + 1)]
        args.extend(values)
        conditions.append(condition.format(*places))

    def add_bound(sign: str, job_id: str) -> None:
        add(f"{source.job_id} {sign} {{0}}", job_id)
        if source is not JOBS:
            # PostgreSQL does not see by itself that this holds for both tables, and would merge them from one end.
            conditions.append(f"job_states.job_id {sign} ${len(args)}")

    source = _add_search(filter_, tenant_id, add)
    if tenant_id is not None:
        add("job_states.tenant_id = {}", tenant_id)
    # The dead letters among the jobs are those that failed.
    is_dead_letter = filter_.dead_letter or filter_.dismissed
    status = JobStatus.FAILED_FINAL.value if is_dead_letter else filter_.status
    if filter_.error_signature is not None and status == JobStatus.FAILED_FINAL:
        status = None  # Only failed jobs have one, and its index serves better.
    if status is not None:
        add("status = {}", status)
        conditions.append(_index_part(status, is_alone=tenant_id is None and filter_.request_type is None))
    if filter_.dead_letter or filter_.unclosed:
        conditions.append(statements.NOT_CLOSED)
    if filter_.dismissed:
        conditions.append(statements.DISMISSED)
    if filter_.request_type is not None:
        add("request_type = {}", filter_.request_type)
    if filter_.error_signature is not None:
        add("error_signature = {} AND error_signature IS NOT NULL", filter_.error_signature)
    starts = [] if filter_.created_from is None else [first_id_at(filter_.created_from - ID_LEAD_MILLIS)]
    if after_id is not None:
        starts.append(after_id + "0")  # Ids have one length, so every larger one comes after this.
    ends = [] if before_id is None else [before_id]
    if filter_.created_to is not None:
        ends.append(first_id_at(filter_.created_to + ID_LEAD_MILLIS))
    if filter_.job_id_prefix is not None:
        first, last = ids_with_prefix(filter_.job_id_prefix)
        starts.append(first)
        ends.append(last + "0")  # The bound is exclusive, and the last id is among them.
    # Of two bounds on a side SQLite would search by one, and weigh its indexes wrongly.
    if starts:
        add_bound(">=", max(starts))
    if filter_.job_id is not None:
        add(f"{source.job_id} = {{}}", filter_.job_id)
    if owners is not None:
        add(f"{source.job_id} = ANY({{}}::text[])", owners)
    if filter_.wait_cause is not None:
        add("wait_cause = {}", filter_.wait_cause)
    if filter_.open_on is not None:
        add("engine = {} AND engine <> 'outbox' AND completed_at IS NULL", filter_.open_on)
    if ends:
        add_bound("<", min(ends))
    return source, conditions, args


def _add_search(filter_: JobFilter, tenant_id: str | None, add: Callable[..., None]) -> JobSource:
    """The index to read along: that of a correlation id, or of a value of the payload, holds the fewest jobs."""
    search, source = filter_.search, JOBS
    if filter_.correlation_id == OWN_ID:
        add(statements.IS_ITS_OWN_CORRELATION)
    elif filter_.correlation_id is not None:
        source = BY_CORRELATION
        add("p.correlation_id = {} AND p.correlation_id IS NOT NULL", filter_.correlation_id)
    if search is None:
        return source
    if filter_.correlation_id is not None:
        add(statements.HAS_SEARCH_VALUE, search.field, search.value)
        return source
    add("v.field = {} AND v.value = {}", search.field, search.value)
    if tenant_id is not None:
        add("v.tenant_id = {}", tenant_id)
    return BY_SEARCH_VALUE


def _index_part(status: str, is_alone: bool) -> str:
    """A partial index serves only a query that repeats what the index is limited to."""
    if status in JOB_TERMINAL and not is_alone:
        return "completed_at IS NOT NULL"
    return "status = 'SUCCEEDED'" if status == JobStatus.SUCCEEDED else "status <> 'SUCCEEDED'"


def first_id_at(instant: Instant) -> str:
    """The smallest id that a job made at this moment can have."""
    millis = f"{min(max(instant, 0), (1 << 48) - 1):012x}"
    return f"{millis[:8]}-{millis[8:]}-0000-0000-000000000000"


def ids_with_prefix(prefix: str) -> tuple[str, str]:
    """The smallest and the largest id that begins with these characters."""
    return prefix + _SMALLEST_ID[len(prefix) :], prefix + _SMALLEST_ID.replace("0", "f")[len(prefix) :]


def _is_within(job: Job | UnreadableJob, filter_: JobFilter) -> bool:
    first, end = filter_.created_from, filter_.created_to
    if isinstance(job, UnreadableJob):
        return True  # It is shown as such.
    created_at = job.spec.created_at
    return (first is None or created_at >= first) and (end is None or created_at < end)

"""Lists of jobs, newest first.

A list is read along the index that serves it best: from it come candidates, in order, and each is compared with the
filter when it is read. Where so few candidates match that a page would take a scan, the filter is refused by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from msgspec import Struct

from lucius.azure.tables import Row
from lucius.domain.canonical import idempotency_scope_key
from lucius.domain.errors import CallerError
from lucius.domain.job import JobStatus
from lucius.ledgers.sql.lists import ID_LEAD_MILLIS, first_id_at, ids_with_prefix
from lucius.ledgers.tables import hints
from lucius.ledgers.tables.claims import Claims
from lucius.ledgers.tables.layouts import SHARDS, JobRef
from lucius.ledgers.tables.slots import Slots
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import JobFilter

EXAMINED_MAX = 5_000
"""Candidates of one page that do not match."""
PAGE_ROWS_MAX = 500
"""Of a shard, in one request."""
TENANT_SCOPE = "tenant:"


class Plan(Struct, frozen=True):
    prefixes: list[str]
    """Of the index; a job that matches is under one of them."""
    served: tuple[str, ...]
    """The fields of the filter that the index serves by itself."""


def plan_of(filter_: JobFilter) -> Plan:
    tenants, statuses = filter_.tenants, filter_.statuses
    if filter_.status is not None:
        statuses = (filter_.status,)
    if filter_.correlation_id is not None:
        return Plan([hints.by_correlation(filter_.correlation_id)], ("correlation_id",))
    if filter_.search is not None:
        return Plan([hints.by_search_value(filter_.search)], ("search",))
    if filter_.dismissed:
        return Plan(["DISMISSED"], ("dismissed",))
    if filter_.error_signature is not None:
        return Plan([hints.by_signature(filter_.error_signature)], ("error_signature",))
    if filter_.dead_letter:
        if tenants is None:
            return Plan(["DEAD"], ("dead_letter",))
        statuses = (JobStatus.FAILED_FINAL.value,)
    if filter_.open_on is not None:
        return Plan([hints.by_engine(filter_.open_on)], ("open_on",))
    if filter_.wait_cause is not None:
        return Plan([hints.by_wait_cause(filter_.wait_cause)], ("wait_cause",))
    if filter_.request_type is not None and tenants is None and statuses == (JobStatus.SUCCEEDED.value,):
        # Nearly all jobs succeed: the type leaves fewer.
        return Plan([hints.by_request_type(filter_.request_type)], ("request_type",))
    if statuses is not None and tenants is not None:
        found = [hints.by_status(status, tenant_id) for tenant_id in tenants for status in statuses]
        return Plan(found, ("status", "statuses", "tenants", "dead_letter"))
    if statuses is not None:
        return Plan([hints.by_status(status) for status in statuses], ("status", "statuses"))
    if tenants is not None:
        return Plan([hints.by_tenant(tenant_id) for tenant_id in tenants], ("tenants",))
    if filter_.request_type is not None:
        return Plan([hints.by_request_type(filter_.request_type)], ("request_type",))
    return Plan(["JOB"], ())


class Lister:
    def __init__(self, store: Store, claims: Claims, slots: Slots) -> None:
        self._store = store
        self._claims = claims
        self._slots = slots

    async def candidates(self, filter_: JobFilter, before_id: str | None, at_once: int) -> AsyncIterator[list[JobRef]]:
        """Jobs that may match, newest first, a page at a time."""
        if filter_.tenants == () or filter_.statuses == ():
            return
        few = await self._few(filter_)
        if few is not None:
            chosen = [ref for ref in few if before_id is None or ref.job_id < before_id]
            yield sorted(chosen, key=lambda ref: ref.job_id, reverse=True)
            return
        plan = plan_of(filter_)
        is_own_wanted = filter_.correlation_id is not None
        examined = 0
        async for rows in self._pages(plan, filter_, before_id, at_once):
            examined += len(rows)
            found = {row.values["jobId"]: row for row in rows if _may_match(row, filter_)}
            refs = [JobRef(job_id, row.values["tenant_id"]) for job_id, row in found.items()]
            if is_own_wanted:
                refs, is_own_wanted = await self._with_own(filter_, before_id, refs), False
            yield refs
            if examined > EXAMINED_MAX:
                raise unsupported(filter_, plan)
        if is_own_wanted:
            yield await self._with_own(filter_, before_id, [])

    async def _with_own(self, filter_: JobFilter, before_id: str | None, refs: list[JobRef]) -> list[JobRef]:
        """A job that was given no correlation id has its own id."""
        own = await self._store.refs([filter_.correlation_id or ""])
        own = [ref for ref in own if before_id is None or ref.job_id < before_id]
        return sorted({ref.job_id: ref for ref in (*refs, *own)}.values(), key=lambda ref: ref.job_id, reverse=True)

    async def _few(self, filter_: JobFilter) -> list[JobRef] | None:
        """The only jobs that may match, if that is known without the index."""
        if filter_.job_id is not None:
            return await self._store.refs([filter_.job_id])
        if filter_.idempotency_key is None:
            return None
        tenants: Sequence[str] | None = filter_.tenants
        if tenants is None:
            scopes = await self._slots.counts()
            tenants = [scope.removeprefix(TENANT_SCOPE) for scope in scopes if scope.startswith(TENANT_SCOPE)]
        keys = [idempotency_scope_key(tenant_id, filter_.idempotency_key, "") for tenant_id in tenants]
        return [ref for ref in await self._store.each(self._claims.holder, keys) if ref is not None]

    async def _pages(
        self, plan: Plan, filter_: JobFilter, before_id: str | None, at_once: int
    ) -> AsyncIterator[list[Row]]:
        first, end = _bounds(filter_, before_id)
        while True:
            rows: list[tuple[str, Row]] = []
            cut: str | None = None
            for prefix, shard, page in await self._store.each(
                self._reader(first, end, at_once),
                [(prefix, shard) for prefix in plan.prefixes for shard in range(SHARDS)],
            ):
                del shard
                places = [_place(prefix, row.key) for row in page]
                rows += zip(places, page, strict=True)
                if len(page) >= at_once:
                    cut = places[-1] if cut is None else min(cut, places[-1])
            rows.sort(key=lambda one: one[0])
            yield [row for place, row in rows if cut is None or place <= cut]
            if cut is None:
                return
            first = cut + ";"
            at_once = max(at_once, min(2 * at_once, PAGE_ROWS_MAX))  # Few of them match.

    def _reader(
        self, first: str, end: str | None, limit: int
    ) -> Callable[[tuple[str, int]], Awaitable[tuple[str, int, list[Row]]]]:
        async def read(one: tuple[str, int]) -> tuple[str, int, list[Row]]:
            prefix, shard = one
            last = None if end is None else f"{prefix}:{end}"
            return (
                prefix,
                shard,
                await self._store.read_hints(prefix, f"{prefix}:{first}", last, limit=limit, shards=[shard]),
            )

        return read


def unsupported(filter_: JobFilter, plan: Plan) -> CallerError:
    fields = [
        name
        for name in JobFilter.__struct_fields__
        if name not in plan.served and getattr(filter_, name) not in (None, False)
    ]
    named = ", ".join(fields)
    return CallerError.of(
        "FILTER_UNSUPPORTED",
        f"the ledger has no index for {named} in this combination, and among the {EXAMINED_MAX} jobs looked at too few"
        " match; narrow the filter by tenant, status or time",
    )


def _may_match(row: Row, filter_: JobFilter) -> bool:
    values = row.values
    return (filter_.tenants is None or values["tenant_id"] in filter_.tenants) and (
        filter_.request_type is None or values.get("request_type") in (None, filter_.request_type)
    )


def _place(prefix: str, key: str) -> str:
    return key[len(prefix) + 1 :].partition(":")[0]


def _bounds(filter_: JobFilter, before_id: str | None) -> tuple[str, str | None]:
    """Where the list begins and ends. A job's id begins with the time at which it was made."""
    first = "" if before_id is None else hints.newest_first(before_id) + ";"
    if filter_.created_to is not None:
        first = max(first, hints.newest_first(first_id_at(filter_.created_to + ID_LEAD_MILLIS)))
    ends = []
    if filter_.created_from is not None:
        ends.append(hints.newest_first(first_id_at(filter_.created_from - ID_LEAD_MILLIS)) + ";")
    if filter_.job_id_prefix is not None:
        smallest, largest = ids_with_prefix(filter_.job_id_prefix)
        first = max(first, hints.newest_first(largest))
        ends.append(hints.newest_first(smallest) + ";")
    return first, min(ends, default=None)

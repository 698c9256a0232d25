"""The ledger in SQL: SQLite for one machine, PostgreSQL for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.step import Step
from lucius.domain.time import Instant
from lucius.ledgers.sql import rows, statements
from lucius.ledgers.sql.commit import commit_script
from lucius.ports.bus import Bus, DeliveryRef, Message
from lucius.ports.ledger import (
    Change,
    CommitOutcome,
    Committed,
    Duplicate,
    JobFilter,
    LedgerUnavailable,
    OutboxRow,
    Repairs,
    Webhook,
)
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script

T = TypeVar("T")

FAR_FUTURE: Instant = 1 << 62


class EnlistingBus(Protocol):
    """A bus in the ledger's own database: its messages join the ledger's transaction."""

    database: Database

    def enlisted(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> Script[None]: ...

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None: ...


class SqlLedger:
    def __init__(self, database: Database, bus: EnlistingBus | None = None) -> None:
        if bus is not None and bus.database is not database:
            raise ValueError("a bus can be enlisted only where it lives in the ledger's own database")
        self._database = database
        self._bus = bus
        self._write_failed = False

    async def __aenter__(self) -> SqlLedger:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def enlists(self, bus: Bus) -> bool:
        return self._bus is not None and id(self._bus) == id(bus)

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        enlisted = self._bus.enlisted if self._bus is not None else None
        outcomes = await self._write(lambda: commit_script(changes, enlisted, self._database.is_shared))
        if self._bus is not None:
            written = [c for c, outcome in zip(changes, outcomes, strict=True) if isinstance(outcome, Committed)]
            self._bus.committed([m for c in written for m in c.messages], [r for c in written for r in c.settled])
        return outcomes

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        return await self._read(lambda: _load_script(list(job_ids)))

    async def due(self, now: Instant, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch(statements.DUE, now, limit)]

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        moment = FAR_FUTURE if ignore_claims else now
        return [row[0] for row in await self._fetch(statements.UNDISPATCHED, moment, limit)]

    async def outbox(self, limit: int) -> list[OutboxRow]:
        found = await self._fetch(statements.OUTBOX, limit)
        return [
            OutboxRow(job_id=row[0], step_id=row[3], tenant_id=row[5], lane=row[7], attempt=rows.read_attempt(row))
            for row in found
        ]

    async def find_claim(self, key: bytes) -> Duplicate | None:
        found = await self._fetch(statements.READ_CLAIMS, [rows.claim_key(key)])
        return Duplicate(found[0][1], found[0][2], found[0][3]) if found else None

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job]:
        return await self._read(lambda: _list_script(filter_, limit, before_id))

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        by_step: dict[str, list[Attempt]] = {}
        for row in await self._fetch(statements.ATTEMPTS, job_id):
            by_step.setdefault(row[3], []).append(rows.read_attempt(row))
        return by_step

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        return [rows.read_event(row) for row in await self._fetch(statements.EVENTS, job_id, after_seq, limit)]

    async def inflight(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._fetch(statements.INFLIGHT)}

    async def webhooks_due(self, now: Instant, limit: int, claim_until: Instant) -> list[Webhook]:
        def script() -> Script[list[Webhook]]:
            found = yield Fetch(statements.WEBHOOKS_DUE, (now, limit))
            if found:
                yield Run(statements.CLAIM_WEBHOOK, [(row[0], claim_until) for row in found])
            return [rows.read_webhook(row) for row in found]

        if not await self._fetch(statements.WEBHOOKS_DUE.removesuffix(" FOR UPDATE SKIP LOCKED"), now, 1):
            return []
        return await self._write(script)

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        is_owed = not delivered and webhook.next_at > 0
        status = "DELIVERED" if delivered else "PENDING" if is_owed else "FAILED"
        row = (webhook.job_id, status, webhook.attempts, webhook.next_at, webhook.last_error)

        def script() -> Script[None]:
            yield Run(statements.FINISH_WEBHOOK, [row])

        await self._write(script)

    async def repair(self, now: Instant) -> Repairs:
        return await self._write(lambda: _repair_script(now))

    async def prune(self, ended_before: Instant, limit: int) -> int:
        return await self._write(lambda: _prune_script(ended_before, limit))

    async def health(self) -> dict[str, Any]:
        """A full disk can still be read: where the last write failed, only one that succeeds is proof of health."""
        await self._fetch(statements.PING)
        if self._write_failed:
            await self._write(_touch_script)
        return {"ledger": self._database.name}

    async def _fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        def script() -> Script[Sequence[Row]]:
            found = yield Fetch(sql, args)
            return found

        return await self._read(script)

    async def _read(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.read(script)
        except DatabaseUnavailable as error:
            raise LedgerUnavailable(str(error)) from error

    async def _write(self, script: Callable[[], Script[T]]) -> T:
        try:
            result = await self._database.write(script)
        except DatabaseUnavailable as error:
            self._write_failed = True
            raise LedgerUnavailable(str(error)) from error
        self._write_failed = False
        return result


def _touch_script() -> Script[None]:
    """Leaves everything as it was, but for pages that had to be written."""
    yield Run(statements.TOUCH, [(0,)])
    yield Run(statements.UNTOUCH, [(0,)])


def _load_script(job_ids: list[str]) -> Script[dict[str, Job]]:
    if not job_ids:
        return {}
    jobs = yield Fetch(statements.LOAD_JOBS, [job_ids])
    built = yield from _build_jobs(jobs)
    return {job.job_id: job for job in built}


def _build_jobs(job_rows: Sequence[Row]) -> Script[list[Job]]:
    job_ids = [row[0] for row in job_rows]
    if not job_ids:
        return []
    attempts = yield Fetch(statements.LOAD_CURRENT_ATTEMPTS, [job_ids])
    current = {(row[0], row[1]): rows.read_attempt(row) for row in attempts}
    steps: dict[str, list[Step]] = {}
    found = yield Fetch(statements.LOAD_STEPS, [job_ids])
    for row in found:
        steps.setdefault(row[0], []).append(rows.read_step(row, current.get((row[0], row[1]))))
    return [rows.read_job(row, tuple(steps[row[0]])) for row in job_rows]


def _list_script(filter_: JobFilter, limit: int, before_id: str | None) -> Script[list[Job]]:
    conditions: list[str] = []
    args: list[Any] = [limit]

    def add(condition: str, value: Any) -> None:
        args.append(value)
        conditions.append(condition.format(f"${len(args)}"))

    if filter_.tenants is not None:
        add("tenant_id = ANY({}::text[])", list(filter_.tenants))
    if filter_.status is not None:
        add("status = {}", filter_.status)
        if filter_.status != "SUCCEEDED":
            conditions.append("status <> 'SUCCEEDED'")  # Lets the planner use the partial index.
    if filter_.request_type is not None:
        add("request_type = {}", filter_.request_type)
    if filter_.created_from is not None:
        add("created_at >= {}", filter_.created_from)
    if filter_.created_to is not None:
        add("created_at < {}", filter_.created_to)
    if filter_.dead_letter:
        conditions.append("dead_letter = 1 AND status = 'FAILED_FINAL' AND status <> 'SUCCEEDED'")
    if filter_.open_on is not None:
        add("engine = {} AND engine <> 'outbox' AND completed_at IS NULL", filter_.open_on)
    if before_id is not None:
        add("job_id < {}", before_id)
    found = yield Fetch(statements.list_jobs(conditions), args)
    return (yield from _build_jobs(found))


def _repair_script(now: Instant) -> Script[Repairs]:
    # Holding the counters keeps every turn that creates or ends a job from committing while the jobs are counted. The
    # first of them, which every such turn moves first, must be there to be held.
    yield Run(statements.MAKE_GLOBAL_SLOT)
    found = yield Fetch(statements.ALL_SLOTS)
    kept = {row[0]: row[1] for row in found}
    counted: dict[str, int] = {}
    for tenant_id, mode, jobs in (yield Fetch(statements.COUNT_BY_TENANT_AND_MODE)):
        for scope in ("global", f"mode:{mode}", f"tenant:{tenant_id}"):
            counted[scope] = counted.get(scope, 0) + jobs
    wrong = {scope: counted.get(scope, 0) for scope in kept | counted if kept.get(scope, 0) != counted.get(scope, 0)}
    if wrong:
        yield Run(statements.SET_SLOTS, sorted(wrong.items()))
    woken = yield Fetch(statements.WAKE_SLEEPERS, [now])
    closed = yield Fetch(statements.CLOSE_ORPHANED_OUTBOX)
    return Repairs(len(wrong), len(woken), len(closed))


def _prune_script(ended_before: Instant, limit: int) -> Script[int]:
    found = yield Fetch(statements.PRUNABLE, (ended_before, limit))
    if not found:
        return 0
    claims = [(row[1], row[0]) for row in found if row[1]]
    if claims:
        yield Run(statements.PRUNE_CLAIM, claims)
    for statement in statements.PRUNE:
        yield Run(statement, [(row[0],) for row in found])
    return len(found)

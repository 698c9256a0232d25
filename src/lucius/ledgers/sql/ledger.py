"""The ledger in SQL: SQLite for one machine, PostgreSQL for many."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.domain.time import Instant
from lucius.ledgers.sql import documents, figures, rows, statements
from lucius.ledgers.sql.audit import note_act, note_dismissal
from lucius.ledgers.sql.commit import BusScript, NoticesOf, commit_script
from lucius.ledgers.sql.commit_at_once import commit_at_once_script
from lucius.ledgers.sql.lists import list_jobs, matching_jobs, tally_jobs
from lucius.ledgers.sql.loading import Policies, load_script, read_or_report
from lucius.ledgers.sql.upkeep import prunable_script, prune_audit_script, prune_script, repair_script
from lucius.ledgers.step_times import step_millis_of_jobs
from lucius.ports.audit import AuditEntry
from lucius.ports.bus import Bus, DeliveryRef, Message
from lucius.ports.ledger import (
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
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script

T = TypeVar("T")

log = logging.getLogger("lucius.ledger")

LOGGED_IDS_MAX = 1_000
"""Unreadable jobs that are remembered, so that each is logged once."""

LOOKS_FIRST_TURNS = 100
"""How many turns compare revisions before they write, once one could not be written as one statement."""

FAR_FUTURE: Instant = 1 << 62
CALLS_MAX = 1 << 31
"""More calls than any webhook is worth."""


class EnlistingBus(Protocol):
    """A bus in the ledger's own database: its messages join the ledger's transaction."""

    database: Database

    def enlisted(
        self,
        messages: Sequence[Message],
        settled: Sequence[DeliveryRef],
        are_unique: bool = False,
        at_once: bool = False,
    ) -> Script[None]:
        """`are_unique`: nobody publishes these ids again. `at_once`: as part of one statement."""
        ...

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None: ...


class SqlLedger:
    def __init__(self, database: Database, bus: EnlistingBus | None = None) -> None:
        if bus is not None and bus.database is not database:
            raise ValueError("a bus can be enlisted only where it lives in the ledger's own database")
        self._database = database
        self._bus = bus
        self._write_failed = False
        self._looks_first = 0
        self._logged_ids: set[str] = set()
        self._policies = Policies()
        self.notices_of: NoticesOf | None = None
        """Who is told, in the transaction that ends a job."""

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
        policies = self._policies.new_in(changes)
        outcomes = await self._write(self._commit_scripts(changes, enlisted, policies))
        if policies and any(
            isinstance(outcome, Committed) and change.before is None
            for change, outcome in zip(changes, outcomes, strict=True)
        ):
            self._policies.add(policies)
        if self._bus is not None:
            written = [c for c, outcome in zip(changes, outcomes, strict=True) if isinstance(outcome, Committed)]
            self._bus.committed([m for c in written for m in c.messages], [r for c in written for r in c.settled])
        return outcomes

    def _commit_scripts(
        self, changes: Sequence[Change], enlisted: BusScript | None, policies: Mapping[str, Policy]
    ) -> Callable[[], Script[list[CommitOutcome]]]:
        """Where processes share the database, a turn is tried as one statement first."""
        is_shared = self._database.is_shared
        is_tried = not is_shared

        def script() -> Script[list[CommitOutcome]]:
            nonlocal is_tried
            if is_tried:
                if is_shared:
                    self._looks_first = LOOKS_FIRST_TURNS
                return commit_script(changes, enlisted, is_shared, policies, self.notices_of)
            is_tried = True
            looks_first, self._looks_first = self._looks_first > 0, max(0, self._looks_first - 1)
            return commit_at_once_script(changes, enlisted, policies, self.notices_of, looks_first)

        return script

    async def load(self, job_ids: Sequence[str]) -> dict[str, Job]:
        if not job_ids:
            return {}
        found = self._logged(await self._read(lambda: load_script(job_ids, self._policies)))
        return {job.job_id: job for job in found if isinstance(job, Job)}

    async def note_holder(
        self, job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
    ) -> str | None:
        return await self._write(lambda: _note_holder_script(job_id, step_index, attempt_no, lease_id, instance))

    async def due(self, now: Instant, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch(statements.DUE, now, limit)]

    async def undispatched(self, now: Instant, limit: int, ignore_claims: bool = False) -> list[str]:
        moment = FAR_FUTURE if ignore_claims else now
        return [row[0] for row in await self._fetch(statements.UNDISPATCHED, moment, limit)]

    async def held(self, line: HeldLine, engine: str, limit: int) -> list[str]:
        held_for = rows.held_for_text(line.lane, line.service)
        return [row[0] for row in await self._fetch(statements.HELD, line.tenant_id, held_for, engine, limit)]

    async def held_lines(self, limit: int) -> list[HeldLine]:
        return [rows.read_held_line(row) for row in await self._fetch(statements.HELD_LINES, limit)]

    async def unacknowledged(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return [row[0] for row in await self._fetch(statements.UNACKNOWLEDGED, engine, limit, after_id or "")]

    async def wait_causes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        return {row[0]: row[1] for row in await self._fetch(statements.WAIT_CAUSES, list(job_ids))}

    async def undelivered(self, engine: str, limit: int, after_id: str | None) -> list[str]:
        return [row[0] for row in await self._fetch(statements.UNDELIVERED, engine, limit, after_id or "")]

    async def outbox(self, limit: int) -> list[OutboxRow | UnreadableJob]:
        def script() -> Script[Sequence[Row]]:
            found = yield Fetch(statements.OUTBOX, [limit])
            return found

        found = await self._scan(script)
        return self._logged([read_or_report(row[0], row[1], partial(rows.read_outbox_row, row)) for row in found])

    async def find_claim(self, key: bytes) -> Duplicate | None:
        found = await self._fetch(statements.READ_CLAIMS, [rows.claim_key(key)])
        return Duplicate(found[0][1], found[0][2], found[0][3]) if found else None

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[Job | UnreadableJob]:
        return self._logged(await self._scan(lambda: list_jobs(filter_, limit, before_id, self._policies)))

    async def dismiss(self, closing: Closing) -> Closing:
        def script() -> Script[Closing]:
            known = yield Fetch(statements.READ_CLOSINGS, [[closing.job_id]])
            if known:
                return rows.read_closing(known[0])
            yield Run(statements.INSERT_CLOSING, [rows.closing_row(closing)])
            found = yield Fetch(statements.READ_CLOSINGS, [[closing.job_id]])
            kept = rows.read_closing(found[0])
            if kept == closing:
                tenants = yield Fetch(statements.TENANTS, [[closing.job_id]])
                yield note_dismissal(closing, tenants[0][1] if tenants else None)
            return kept

        return await self._write(script)

    async def closings(self, job_ids: Sequence[str]) -> dict[str, Closing]:
        found = await self._fetch(statements.READ_CLOSINGS, list(job_ids))
        return {row[0]: rows.read_closing(row) for row in found}

    async def matching(self, filter_: JobFilter, limit: int, before_id: str | None) -> list[JobKey]:
        return await self._scan(lambda: matching_jobs(filter_, limit, before_id, self._policies))

    async def tally(self, filter_: JobFilter, oldest: int, limit: int) -> Tally:
        return await self._scan(lambda: tally_jobs(filter_, oldest, limit, self._policies))

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._fetch(statements.STATUSES, list(job_ids))}

    async def find_claims(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        texts = {rows.claim_key(key): key for key in keys}
        found = await self._fetch(statements.CLAIM_OWNERS, list(texts))
        return {texts[row[0]]: row[1] for row in found}

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        return await self._read(lambda: _attempts_script(job_id, self._policies))

    async def events(self, job_id: str, after_seq: int, limit: int) -> list[Event]:
        found = await self._fetch(statements.EVENTS, job_id, after_seq, limit)
        return [event for row in found for event in rows.read_events(row) if event.seq > after_seq][:limit]

    async def inflight(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._fetch(statements.INFLIGHT)}

    async def webhooks_due(
        self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
    ) -> list[Webhook]:
        return await self._read(lambda: _webhooks_due_script(now, after_tenant, tenants_max, per_tenant_max))

    async def claim_webhooks(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        def script() -> Script[set[str]]:
            found = yield Fetch(statements.STILL_DUE, (list(job_ids), now))
            yield Run(statements.CLAIM_WEBHOOK, [(row[0], claim_until) for row in found])
            return {row[0] for row in found}

        return await self._write(script)

    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        return await self._scan(lambda: figures.counts_script(since, tenants))

    async def counts_by_tenant(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, dict[str, int]]:
        return await self._scan(lambda: figures.counts_by_tenant_script(since, tenants))

    async def count_refused(self, at: Instant, refused: Mapping[str, int]) -> None:
        await self._write(lambda: figures.count_refused_script(at, refused))

    async def open_groups(self, scanned_max: int, tenants: Sequence[str] | None) -> OpenGroups:
        return await self._scan(lambda: figures.open_groups_script(scanned_max, tenants))

    async def oldest_waiting(self, tenants: Sequence[str] | None) -> dict[str, str]:
        return await self._scan(lambda: figures.oldest_waiting_script(tenants))

    async def count_wait_causes(self, tenants: Sequence[str] | None) -> dict[str, int]:
        return await self._scan(lambda: figures.wait_causes_script(tenants))

    async def step_millis(
        self, request_type: str, tenants: Sequence[str] | None, limit: int
    ) -> list[Mapping[str, int]]:
        return await step_millis_of_jobs(self, request_type, tenants, limit)

    async def failures(self, filter_: JobFilter, scanned_max: int, limit: int) -> FailureGroups:
        return await self._scan(lambda: figures.failures_script(filter_, scanned_max, limit))

    async def webhook_done(self, webhook: Webhook, delivered: bool) -> None:
        is_owed = not delivered and webhook.next_at > 0
        status = "DELIVERED" if delivered else "PENDING" if is_owed else "FAILED"
        row = (
            webhook.job_id, status, webhook.attempts, webhook.next_at, webhook.last_error, webhook.asked_wait_ms,
        )  # fmt: skip

        def script() -> Script[None]:
            yield Run(statements.FINISH_WEBHOOK, [row])

        await self._write(script)

    async def shorten_webhooks(self, latest: Sequence[Instant]) -> None:
        last = len(latest) - 1
        rows = [(calls, calls if calls < last else CALLS_MAX, moment) for calls, moment in enumerate(latest)]

        def script() -> Script[None]:
            yield Run(statements.SHORTEN_WEBHOOKS, rows)

        await self._write(script)

    async def repair(self, now: Instant, claim_seconds: float) -> Repairs:
        return await self._write(lambda: repair_script(now, claim_seconds))

    async def prunable(
        self,
        ended_before: Instant,
        limit: int,
        tenants: Sequence[str] | None = None,
        except_tenants: Sequence[str] = (),
    ) -> list[JobKey]:
        return await self._scan(partial(prunable_script, ended_before, limit, tenants, except_tenants))

    async def prune(self, ended_before: Instant, limit: int, job_ids: Sequence[str] | None = None) -> int:
        return await self._write(partial(prune_script, ended_before, limit, job_ids))

    async def note_act(self, act: AuditEntry) -> None:
        await self._write(partial(note_act, act))

    async def prune_audit(self, before: Instant, limit: int) -> None:
        await self._write(partial(prune_audit_script, before, limit))

    async def health(self) -> str:
        """Asks as a writer: a database that is read-only, locked or frozen may still be read. On a full disk even that
        succeeds, so where the last write failed, only one that succeeds is proof of health."""
        try:
            await self._database.write(_ping_script)
        except DatabaseUnavailable as error:
            raise LedgerUnavailable(str(error)) from error
        if self._write_failed:
            await self._write(_touch_script)
        return self._database.name

    def _logged(self, found: list[T | UnreadableJob]) -> list[T | UnreadableJob]:
        """Each job once: whoever looks for what is due meets it again and again."""
        for one in found:
            if isinstance(one, UnreadableJob) and one.job_id not in self._logged_ids:
                if len(self._logged_ids) >= LOGGED_IDS_MAX:
                    self._logged_ids.clear()
                self._logged_ids.add(one.job_id)
                log.error(
                    "the rows of job %s cannot be read, and it is passed over until they are put right: %s",
                    one.job_id, one.reason, extra={"job_id": one.job_id, "tenant_id": one.tenant_id},
                )  # fmt: skip
        return found

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

    async def _scan(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.scan(script)
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


def _ping_script() -> Script[None]:
    yield Fetch(statements.PING)


def _touch_script() -> Script[None]:
    """Leaves everything as it was, but for pages that had to be written."""
    yield Run(statements.TOUCH, [(0,)])
    yield Run(statements.UNTOUCH, [(0,)])


def _note_holder_script(
    job_id: str, step_index: int, attempt_no: int, lease_id: str, instance: str
) -> Script[str | None]:
    found = yield Fetch(statements.LOCK_HOLDER, [job_id])
    if not found:
        return None
    attempt = documents.decode_state(found[0][0]).steps[step_index].attempt
    if attempt is None or (attempt.attempt_no, attempt.lease_id) != (attempt_no, lease_id):
        return None
    if not rows.is_unanswered(attempt):
        return None
    if attempt.acked_by is not None:
        return attempt.acked_by
    noted = rows.read_holder(found[0][1])
    if noted is not None and noted[:2] == (step_index, attempt_no):
        return noted[2]
    yield Run(statements.NOTE_HOLDER, [(job_id, rows.encode_holder(step_index, attempt_no, instance))])
    return instance


def _attempts_script(job_id: str, policies: Policies) -> Script[dict[str, list[Attempt]]]:
    found = yield from load_script([job_id], policies)
    job = found[0] if found else None
    if not isinstance(job, Job):
        return {}
    by_index: dict[int, list[Attempt]] = {}
    for row in (yield Fetch(statements.PAST_ATTEMPTS, [job_id])):
        by_index.setdefault(row[0], []).append(documents.read_attempt(documents.decode_attempt(row[1])))
    for index, step in enumerate(job.steps):
        if step.attempt is not None:
            by_index.setdefault(index, []).append(step.attempt)
    return {job.steps[index].spec.step_id: by_index[index] for index in sorted(by_index)}


def _webhooks_due_script(
    now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int
) -> Script[list[Webhook]]:
    if not (yield Fetch(statements.IS_ANY_WEBHOOK_DUE, [now])):
        return []
    tenants: dict[str, None] = {}
    for beginning in (after_tenant, ""):
        if len(tenants) < tenants_max:
            found = yield Fetch(statements.TENANTS_WITH_WEBHOOKS_DUE, (now, beginning, tenants_max - len(tenants)))
            tenants |= dict.fromkeys(row[0] for row in found)
    due: list[Webhook] = []
    for tenant_id in tenants:
        found = yield Fetch(statements.WEBHOOKS_DUE, (tenant_id, now, per_tenant_max))
        due += [rows.read_webhook(row) for row in found]
    return due

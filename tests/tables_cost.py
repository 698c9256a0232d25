"""What calls cost on Azure Tables: the requests, and the rows that they return.

The number of requests alone would not show a scan: a request returns up to a thousand rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from lucius.azure.tables import Table
from lucius.domain.attempt import Failure, Verdict
from lucius.domain.bulk_operation import BulkMove, BulkOperation, ItemStatus, moved
from lucius.domain.job import Job, JobStatus
from lucius.domain.search import SearchValue
from lucius.domain.signature import error_signature
from lucius.domain.time import Instant, after
from lucius.ledgers.tables import TablesLedger
from lucius.ledgers.tables.audit import dismissal_entry
from lucius.ledgers.tables.finding import EXTRA_HINTS
from lucius.ledgers.tables.layouts import SHARDS
from lucius.ports.audit import AuditEntry, AuditFilter, AuditKind, new_entry_id
from lucius.ports.bulk_operations import BulkItem
from lucius.ports.console_tokens import ConsoleToken, TokenKind
from lucius.ports.console_views import SavedView
from lucius.ports.lane_samples import LaneSample
from lucius.ports.ledger import Change, Closing, HeldLine, JobFilter, Webhook
from lucius.ports.workers import Failures, Sighting, WorkerKind
from lucius.testing.bulk_suite import LEASE_SECONDS, ME, OPEN_MAX, BulkSuite
from lucius.testing.ledger_driver import LedgerDriver, result, standing
from lucius.testing.samples import CLAIM_SECONDS, ManualClock

CALL, COMMIT, TENANTS = 100, 20, 20
EVERY = 5
"""Of so many jobs of the first call one stays open and one fails; all others succeed."""
OPEN = CALL // EVERY
PAGE = 10
ACTS = 60
ROWS_OF_JOB = 10

ROWS_MAX = SHARDS * (PAGE + EXTRA_HINTS) + PAGE * ROWS_OF_JOB
"""Of a page of jobs."""
REQUESTS_MAX = SHARDS + 2 * PAGE
ROWS_OF_OPEN_MAX = 3 * OPEN + 12 * TENANTS
"""Of a figure that counts open jobs, tenants and minutes."""


class Cost(NamedTuple):
    requests: int
    rows: int

    def exceeds(self, other: Cost) -> bool:
        return self.requests > other.requests or self.rows > other.rows


ONE_ROW = Cost(2, ROWS_OF_JOB)
ONE_JOB = Cost(6, 2 * ROWS_OF_JOB)
A_CHANGE = Cost(40, 4 * ROWS_OF_JOB)
A_PAGE = Cost(REQUESTS_MAX, ROWS_MAX)
A_SWEEP = Cost(REQUESTS_MAX + SHARDS * EXTRA_HINTS, ROWS_MAX)
A_FIGURE = Cost(16 * SHARDS, ROWS_OF_OPEN_MAX)


class Call(NamedTuple):
    name: str
    """A method, or an operation of the API; then perhaps words about it."""
    most: Cost
    make: Callable[[], Awaitable[Any]]


class Meter:
    """What is asked of Azure Tables, by whomever in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Table]) -> None:
        self.requests = self.rows = 0
        self._get, self._page, self._write = kind.get, kind.page, kind.write
        meter = self

        async def get(table: Table, *words: Any, **options: Any) -> Any:
            row = await meter._get(table, *words, **options)
            meter._add(row is not None)
            return row

        async def page(table: Table, *words: Any, **options: Any) -> Any:
            found = await meter._page(table, *words, **options)
            meter._add(len(found.rows))
            return found

        async def write(table: Table, *words: Any, **options: Any) -> Any:
            meter._add(0)
            return await meter._write(table, *words, **options)

        for name, counted in {"get": get, "page": page, "write": write}.items():
            monkeypatch.setattr(kind, name, counted)

    def _add(self, rows: int) -> None:
        self.requests += 1
        self.rows += rows

    async def too_dear(self, calls: list[Call]) -> dict[str, tuple[Cost, Cost]]:
        """Of the calls that cost more than they may: what they cost, and what they may."""
        costs: dict[str, Cost] = {}
        for call in calls:
            self.requests = self.rows = 0
            await call.make()
            costs[call.name] = Cost(self.requests, self.rows)
        print(f"\nrequests and rows: { {name: tuple(cost) for name, cost in costs.items()} }")
        return {call.name: (costs[call.name], call.most) for call in calls if costs[call.name].exceeds(call.most)}


def methods(*ports: type) -> set[str]:
    return {
        name
        for port in ports
        for name, method in vars(port).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }


def named(calls: list[Call]) -> set[str]:
    return {call.name.partition(" ")[0] for call in calls}


# --- Jobs ------------------------------------------------------------------------------------------------------------


async def fill(ledger: TablesLedger, driver: LedgerDriver, count: int) -> list[Job]:
    """Jobs of many tenants, most of which have succeeded; returns those that have failed."""
    failed: list[Job] = []
    for first in range(0, count, CALL):
        created: list[Change] = []
        for place in range(first, first + CALL):
            created.append(
                driver.creation(
                    key=f"key {place}", tenant_id=f"tenant-{place % TENANTS}", steps=["ocr"],
                    searchable=(SearchValue("customer", str(place % 500)),), correlation_id=f"order {place}",
                )
            )  # fmt: skip
        await _commit(ledger, created)
        jobs = [standing(change) for change in created]
        ends = [
            _end(driver, job, first == 0 and place % EVERY == 1)
            for place, job in enumerate(jobs)
            if first > 0 or place % EVERY
        ]
        await _commit(ledger, ends)
        failed += [standing(end) for end in ends if end.after.status is JobStatus.FAILED_FINAL]
        driver.clock.advance(0.1)
    return failed


async def _commit(ledger: TablesLedger, changes: list[Change]) -> None:
    """A part at a time: Azurite needs so long for a hundred changes that the ledger would give them up."""
    for first in range(0, len(changes), COMMIT):
        await ledger.commit(changes[first : first + COMMIT])


def _end(driver: LedgerDriver, job: Job, fails: bool) -> Change:
    broken = Failure("BROKEN", "it broke")
    return driver.change(job, result(job, Verdict.FAILED, retryable=False, error=broken) if fails else result(job))


def ledger_calls(ledger: TablesLedger, driver: LedgerDriver, one: Job, ended: Job, failed: list[Job]) -> list[Call]:
    clock = driver.clock
    now, early, far = clock.now(), after(clock.now(), -(10**6)), after(clock.now(), 10**6)
    webhook = Webhook(job_id=ended.job_id, url="https://client.example", tenant_id="acme", next_at=now)
    closing = Closing(job_id=failed[0].job_id, at=now, by="ann", reason="known")

    def jobs(about: str, most: Cost = A_PAGE, **filter_: Any) -> Call:
        return Call(f"jobs {about}", most, lambda: ledger.jobs(JobFilter(**filter_), PAGE, None))

    return [
        Call("load", ONE_JOB, lambda: ledger.load([one.job_id])),
        Call("commit a new job", A_CHANGE, lambda: driver.create(key="another", tenant_id="acme")),
        Call("commit a change", A_CHANGE, lambda: driver.tell(one, result(one))),
        Call("note_holder", ONE_JOB, lambda: ledger.note_holder(one.job_id, 0, 1, "lease", "me")),
        Call("due none", A_SWEEP, lambda: ledger.due(early, PAGE)),
        Call("due all", A_SWEEP, lambda: ledger.due(far, PAGE)),
        Call("undispatched none", A_SWEEP, lambda: ledger.undispatched(early, PAGE)),
        Call("undispatched all", A_SWEEP, lambda: ledger.undispatched(far, PAGE)),
        Call("held", A_SWEEP, lambda: ledger.held(HeldLine("tenant-1", 0, "ocr"), "outbox", PAGE)),
        Call("held_lines", A_SWEEP, lambda: ledger.held_lines(PAGE)),
        Call("unacknowledged", A_SWEEP, lambda: ledger.unacknowledged("outbox", PAGE, None)),
        Call("undelivered", A_SWEEP, lambda: ledger.undelivered("outbox", PAGE, None)),
        Call("outbox", A_SWEEP, lambda: ledger.outbox(PAGE)),
        Call("wait_causes", ONE_JOB, lambda: ledger.wait_causes([one.job_id])),
        Call("find_claim", ONE_JOB, lambda: ledger.find_claim(b"unknown")),
        Call("find_claims", ONE_JOB, lambda: ledger.find_claims([b"unknown"])),
        jobs("of everybody"),
        jobs("of a tenant", tenants=("tenant-1",)),
        jobs("of a status", status="SUCCEEDED"),
        jobs("of a tenant and a status", tenants=("tenant-1",), status="SUCCEEDED"),
        jobs("of a request type", request_type=one.spec.request_type),
        jobs("by correlation id", correlation_id="order 7"),
        jobs("by value", search=SearchValue("customer", "7")),
        jobs("by key", Cost(3 * TENANTS, ROWS_MAX), idempotency_key="key 7"),
        jobs("by key and tenant", tenants=("tenant-7",), idempotency_key="key 7"),
        jobs("by wait cause", wait_cause="BUS"),
        jobs("of an engine", open_on="outbox"),
        jobs("with a signature", error_signature=error_signature(failed[0])),
        jobs("that are dead letters", dead_letter=True),
        jobs("that are dead letters of a tenant", dead_letter=True, tenants=("tenant-1",)),
        jobs("that are dismissed", dismissed=True),
        Call("dismiss", A_CHANGE, lambda: ledger.dismiss(closing)),
        Call("closings", ONE_JOB, lambda: ledger.closings([failed[0].job_id])),
        Call("matching", A_PAGE, lambda: ledger.matching(JobFilter(tenants=("tenant-1",)), PAGE, None)),
        Call("tally", Cost(2 * SHARDS + 2 * OPEN, 20 * OPEN + 100),
             lambda: ledger.tally(JobFilter(status="FAILED_FINAL", unclosed=True), PAGE, 1_000)),
        Call("statuses", ONE_JOB, lambda: ledger.statuses([one.job_id])),
        Call("attempts", ONE_JOB, lambda: ledger.attempts(one.job_id)),
        Call("events", ONE_JOB, lambda: ledger.events(one.job_id, 0, 100)),
        Call("inflight", Cost(1, TENANTS + ROWS_OF_JOB), ledger.inflight),
        Call("counts", A_FIGURE, lambda: ledger.counts(early, None)),
        Call("counts_by_tenant", A_FIGURE, lambda: ledger.counts_by_tenant(early, None)),
        Call("count_refused", A_CHANGE, lambda: ledger.count_refused(now, {"acme": 1})),
        Call("open_groups", A_FIGURE, lambda: ledger.open_groups(1_000, None)),
        Call("oldest_waiting", A_FIGURE, lambda: ledger.oldest_waiting(None)),
        Call("count_wait_causes", A_FIGURE, lambda: ledger.count_wait_causes(None)),
        Call("step_millis", Cost(SHARDS, 2 * 200), lambda: ledger.step_millis(one.spec.request_type, None, 200)),
        Call("step_millis of a tenant", Cost(SHARDS, 2 * 200),
             lambda: ledger.step_millis(one.spec.request_type, ["tenant-1"], 200)),
        Call("failures", Cost(SHARDS, ROWS_OF_OPEN_MAX), lambda: ledger.failures(JobFilter(), 1_000, PAGE)),
        Call("webhook_done", A_CHANGE, lambda: ledger.webhook_done(webhook, False)),
        Call("webhooks_due", A_SWEEP, lambda: ledger.webhooks_due(now, "", PAGE, PAGE)),
        Call("claim_webhooks", A_CHANGE, lambda: ledger.claim_webhooks([ended.job_id], now, far)),
        Call("shorten_webhooks", A_SWEEP, lambda: ledger.shorten_webhooks([far])),
        # It looks at every open job, and at no other.
        Call("repair", Cost(8 * SHARDS + 4 * OPEN, 20 * OPEN + 100), lambda: ledger.repair(now, CLAIM_SECONDS)),
        Call("prune", Cost(4 * SHARDS + 20 * PAGE, ROWS_MAX + 4 * PAGE * ROWS_OF_JOB), lambda: ledger.prune(now, PAGE)),
        Call("prunable", Cost(4 * SHARDS + 20 * PAGE, 2_000 + 4 * PAGE * ROWS_OF_JOB),
             lambda: ledger.prunable(now, PAGE, None, ())),
        Call("prune_audit", Cost(4 * SHARDS + 20 * PAGE, ROWS_MAX), lambda: ledger.prune_audit(early, PAGE)),
        Call("note_act", A_CHANGE, lambda: ledger.note_act(_act(now))),
        Call("health", ONE_ROW, ledger.health),
    ]  # fmt: skip


def _act(now: Instant) -> AuditEntry:
    return AuditEntry(
        entry_id=new_entry_id(now), at=now, actor="key:ops", action="prune", kind=AuditKind.LEDGER, target="jobs",
        tenant_id=None, reason=None, detail="{}",
    )  # fmt: skip


# --- What is beside the ledger ---------------------------------------------------------------------------------------


def bulk_calls(bulk: Any, clock: ManualClock) -> list[Call]:
    now, suite = clock.now(), BulkSuite()
    operation, other = suite._new(clock), suite._new(clock)
    items = [BulkItem(job_id=clock.job_id(), tenant_id="acme") for _ in range(PAGE)]
    done = [(item, replace(item, status=ItemStatus.SUCCEEDED)) for item in items]
    id_ = operation.operation_id

    def abandoned(one: BulkOperation) -> BulkOperation:
        return moved(one, BulkMove.ABANDONED, after(now, 1), "ann", "why")

    return [
        Call("create", A_CHANGE, lambda: bulk.create(operation, None, OPEN_MAX)),
        Call("create another", A_CHANGE, lambda: bulk.create(other, None, OPEN_MAX)),
        Call("take", A_PAGE, lambda: bulk.take(ME, now, LEASE_SECONDS, PAGE)),
        Call("select", A_CHANGE, lambda: bulk.select(id_, ME, items, None, now)),
        Call("due", ONE_ROW, lambda: bulk.due(id_, ItemStatus.PENDING, now, PAGE)),
        Call("items", ONE_ROW, lambda: bulk.items(id_, PAGE, None)),
        Call("items of a status", A_PAGE, lambda: bulk.items(id_, PAGE, None, ItemStatus.PENDING)),
        Call("record", A_CHANGE, lambda: bulk.record(id_, ME, done, now)),
        Call("get", ONE_ROW, lambda: bulk.get(id_)),
        Call("newest", ONE_ROW, lambda: bulk.newest(PAGE, None, lambda one: True)),
        Call("change", ONE_ROW, lambda: bulk.change(other.operation_id, abandoned)),
        Call("release", A_PAGE, lambda: bulk.release(ME)),
        Call("prune", A_CHANGE, lambda: bulk.prune(after(now, 2), PAGE)),
    ]  # fmt: skip


def acts_of_somebody(now: int) -> list[AuditEntry]:
    closings = [Closing(job_id=f"job {place}", at=now, by="ann", reason="known") for place in range(ACTS)]
    return [dismissal_entry(closing, "tenant-1") for closing in closings]


def audit_calls(audit: Any) -> list[Call]:
    asked = {
        "": {}, " of a tenant": {"tenants": ("tenant-1",)}, " by somebody": {"actor": "ann"},
        " of an action": {"action": "dismiss"}, " of a tenant, by nobody": {"tenants": ("tenant-1",), "actor": "bob"},
    }  # fmt: skip
    few = Cost(3, ROWS_MAX)
    return [
        Call(f"audit{about}", few, lambda fields=fields: audit.audit(AuditFilter(**fields), PAGE, None))  # type: ignore[misc]
        for about, fields in asked.items()
    ]


def worker_calls(workers: Any, now: int) -> list[Call]:
    kind, minute = WorkerKind.SERVICE, now // 60_000
    seen = Sighting(kind=kind, name="ocr", instance="one", first_seen_at=now, last_seen_at=now)
    failed = Failures(kind=kind, name="ocr", instance="one", minute=minute, failures=1)
    return [
        Call("write", ONE_ROW, lambda: workers.write([seen])),
        Call("newest", ONE_ROW, lambda: workers.newest(PAGE)),
        Call("add_failures", ONE_JOB, lambda: workers.add_failures([failed])),
        Call("failures", ONE_ROW, lambda: workers.failures(minute - 60)),
        Call("forget", ONE_ROW, lambda: workers.forget(after(now, 1), PAGE)),
    ]


def console_calls(tokens: Any, views: Any, lanes: Any, now: int) -> list[Call]:
    link = ConsoleToken(token_hash="a", kind=TokenKind.LINK, key_hash="k", created_at=now, expires_at=now + 10**6)
    session = replace(link, token_hash="b", kind=TokenKind.SESSION)
    view, minute = SavedView(name="mine", query="status=FAILED_FINAL", created_at=now), now // 60_000
    return [
        Call("add a link", ONE_JOB, lambda: tokens.add(link, PAGE)),
        Call("exchange", Cost(5, ROWS_OF_JOB), lambda: tokens.exchange("a", session, PAGE)),
        Call("find", ONE_ROW, lambda: tokens.find("b")),
        Call("remove a session", ONE_JOB, lambda: tokens.remove("b")),
        Call("save", ONE_ROW, lambda: views.save("owner", "jobs", view, PAGE)),
        Call("all", ONE_ROW, lambda: views.all("owner", "jobs")),
        Call("remove a view", ONE_ROW, lambda: views.remove("owner", "jobs", "mine")),
        Call("add a sample", ONE_ROW, lambda: lanes.add(LaneSample(minute, (0.0,)), minute - 60)),
        Call("since", ONE_ROW, lambda: lanes.since(minute - 60)),
    ]

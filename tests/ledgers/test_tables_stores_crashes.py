"""A crash at any write to the stores beside a ledger on Azure Tables leaves nothing half done: whoever does the same
again, as clients and sweeps do, comes to the same end."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.ledgers.test_tables_crashes import Crash, CrashSwitch
from tests.long_form import IS_LONG
from tests.tables_ledger import open_ledger, opened_ledger

from lucius.bootstrap.operator_stores import OperatorStores, tables_stores
from lucius.domain.bulk_operation import BulkMove, BulkOperation, BulkStatus, Counts, ItemStatus, moved
from lucius.domain.time import after
from lucius.ledgers.tables import TablesLedger
from lucius.ports.audit import AuditFilter
from lucius.ports.bulk_operations import BulkItem
from lucius.ports.console_tokens import ConsoleToken, TokenKind
from lucius.ports.console_views import SavedView
from lucius.ports.lane_samples import LaneSample
from lucius.ports.workers import Failures, Sighting, WorkerKind
from lucius.testing.bulk_suite import LEASE_SECONDS, OPEN_MAX, BulkSuite
from lucius.testing.samples import START, ManualClock

JOBS = 40
"""More than one transaction holds."""
KEPT = 2
WRITES_MAX = 100
MINUTE = START // 60_000
VIEW = SavedView(name="mine", query="status=FAILED_FINAL", created_at=START)
SEEN = Sighting(kind=WorkerKind.SERVICE, name="ocr", instance="one", first_seen_at=START, last_seen_at=START)


class Story:
    """The same in every life of the process: what was decided before it is told again."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.operation = BulkSuite()._new(clock)
        self.items = [BulkItem(job_id=clock.job_id(), tenant_id="acme") for _ in range(JOBS)]

    async def tell(self, stores: OperatorStores, holder: str) -> None:
        await self._operate(stores, holder)
        await self._sign_in(stores)
        await stores.console_views.save("owner", "jobs", VIEW, KEPT)
        await stores.workers.write([SEEN])
        counted = Failures(kind=SEEN.kind, name=SEEN.name, instance=SEEN.instance, minute=MINUTE, failures=1)
        await stores.workers.add_failures([counted])
        for minute in (MINUTE - 100, MINUTE):
            await stores.lane_samples.add(LaneSample(minute, (1.0, 2.0)), MINUTE - 60)

    async def _operate(self, stores: OperatorStores, holder: str) -> None:
        bulk, id_ = stores.bulk, self.operation.operation_id
        now = START if holder == "first" else after(START, 2 * LEASE_SECONDS)
        await bulk.create(self.operation, "key", OPEN_MAX)
        await bulk.change(id_, _paused_once)
        await bulk.change(id_, _resumed)
        await bulk.take(holder, now, LEASE_SECONDS, 10)
        operation = await bulk.get(id_)
        assert operation is not None
        if not operation.is_selected:
            await bulk.select(id_, holder, self.items, None, now)
        while due := await bulk.due(id_, ItemStatus.PENDING, now, 1_000):
            done = [(item, replace(item, status=ItemStatus.SUCCEEDED, acted_at=now, ended_at=now)) for item in due]
            await bulk.record(id_, holder, done, now)

    async def _sign_in(self, stores: OperatorStores) -> None:
        tokens = stores.console_tokens
        for number in range(KEPT + 1):
            await tokens.add(_token(f"link {number}", TokenKind.LINK, START + number), KEPT)
        await tokens.exchange(f"link {KEPT}", _token("session", TokenKind.SESSION, START + KEPT), KEPT)

    async def check(self, stores: OperatorStores, ledger: TablesLedger) -> None:
        operation = await stores.bulk.get(self.operation.operation_id)
        assert operation is not None
        assert (operation.status, operation.counts) == (BulkStatus.COMPLETED, Counts(succeeded=JOBS))
        items = await stores.bulk.items(operation.operation_id, 1_000, None)
        assert [item.job_id for item in items] == [item.job_id for item in self.items]
        acts = await stores.audit[0].audit(AuditFilter(), 100, None)
        assert Counter(act.action for act in acts) == {"create": 1, "pause": 1, "resume": 1}
        session = await stores.console_tokens.find("session")
        assert session is not None
        assert session.key_hash == "owner"
        rows = await ledger.store.operators.rows("console", limit=1_000)
        assert set(Counter(str(row.values["token_hash"]) for row in rows).values()) == {3}
        assert await stores.console_views.all("owner", "jobs") == [VIEW]
        assert await stores.workers.newest(10) == [SEEN]
        failures = await stores.workers.failures(MINUTE)
        assert set(failures.values()) <= {1, 2}  # It is counted again if the answer to the first write was lost.
        assert [sample.minute for sample in await stores.lane_samples.since(0)] == [MINUTE]

        assert await stores.bulk.prune(after(START, 10**6), 10) == 1
        left = await ledger.store.operators.rows("operations", limit=1_000)
        assert [row.key for row in left if not row.key.startswith("audit:")] == []


def _paused_once(operation: BulkOperation) -> BulkOperation:
    if any(event.type == BulkMove.PAUSED.value for event in operation.events):
        return operation
    return moved(operation, BulkMove.PAUSED, START, "key:ops", "wait")


def _resumed(operation: BulkOperation) -> BulkOperation:
    is_paused = operation.status is BulkStatus.PAUSED
    return moved(operation, BulkMove.RESUMED, START, "key:ops", "go on") if is_paused else operation


def _token(name: str, kind: TokenKind, at: int) -> ConsoleToken:
    return ConsoleToken(token_hash=name, kind=kind, key_hash="owner", created_at=at, expires_at=after(START, 10**6))


async def _crash_at(azurite: Azurite, write: int) -> bool:
    """Whether the story has that many writes."""
    story = Story()
    async with opened_ledger(azurite, "ledger") as survivor:
        async with open_ledger(azurite.connection, "ledger", survivor.store.prefix) as victim:
            CrashSwitch(victim, write)
            try:
                await story.tell(tables_stores(victim), "first")
                is_over = True
            except Crash:
                is_over = False
        stores = tables_stores(survivor)
        try:
            await story.tell(stores, "second")
            await story.check(stores, survivor)
        except AssertionError as error:
            raise AssertionError(f"after a crash at write {write + 1}: {error}") from error
    return not is_over


@pytest.mark.timeout(300)
async def test_crash_at_any_write_is_made_good_by_doing_the_same_again(azurite: Azurite) -> None:
    step = 1 if IS_LONG else 6
    write = 0 if IS_LONG else 2
    while await _crash_at(azurite, write):
        write += step
        assert write < WRITES_MAX
    assert write > 12

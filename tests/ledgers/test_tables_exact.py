"""The ledger on Azure Tables is exact when many write at once, when answers are lost, and with keys of any text."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.azure.lossy_proxy import LossyProxy
from tests.azurite import Azurite
from tests.long_form import IS_LONG, sized
from tests.tables_ledger import open_ledger, opened_ledger

from lucius.azure.keys import key_fault
from lucius.azure.tables import TRANSACTION_BYTES_MAX
from lucius.bootstrap.operator_stores import tables_stores
from lucius.domain.effects import Event
from lucius.domain.inputs import PublishHeld
from lucius.domain.job import Job
from lucius.domain.search import SearchValue
from lucius.ledgers.tables import TablesLedger
from lucius.ports.console_views import SavedView
from lucius.ports.ledger import (
    Change,
    Closing,
    Committed,
    Conflict,
    Duplicate,
    HeldLine,
    JobFilter,
    LedgerUnavailable,
    Saturated,
    UnreadableJob,
    Webhook,
)
from lucius.testing.ledger_driver import LedgerDriver, heartbeat, published, result
from lucius.testing.samples import START, ManualClock, tenant_limit

LAYOUTS = ("ledger", "table") if IS_LONG else ("table",)
COMMANDS, LIMIT = sized(120, 1_000), sized(12, 100)
WRITERS = 20


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_of_many_commands_over_two_processes_as_many_as_the_limit_are_accepted(
    azurite: Azurite, layout: str
) -> None:
    clock, limit = ManualClock(), tenant_limit(LIMIT)
    async with opened_ledger(azurite, layout) as one:
        async with open_ledger(azurite.connection, layout, one.store.prefix) as other:
            driver = LedgerDriver(one, clock)
            changes = [driver.creation(key=f"key {place}", limits=(limit,)) for place in range(COMMANDS)]
            calls = [(one, other)[place % 2].commit([change]) for place, change in enumerate(changes)]
            outcomes = [outcome for batch in await asyncio.gather(*calls) for outcome in batch]
        assert Counter(map(type, outcomes)) == {Committed: LIMIT, Saturated: COMMANDS - LIMIT}
        assert await one.inflight() == {"global": LIMIT, "mode:DEFAULT": LIMIT, "tenant:acme": LIMIT}
        assert len(await one.load([change.after.job_id for change in changes])) == LIMIT
        assert await one.counts(START, None) == {"ACCEPTED": LIMIT}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_of_equal_commands_over_two_processes_one_is_accepted(azurite: Azurite, layout: str) -> None:
    clock = ManualClock()
    async with opened_ledger(azurite, layout) as one:
        async with open_ledger(azurite.connection, layout, one.store.prefix) as other:
            driver = LedgerDriver(one, clock)
            changes = [driver.creation(key="same") for _ in range(COMMANDS)]
            calls = [(one, other)[place % 2].commit([change]) for place, change in enumerate(changes)]
            outcomes = [outcome for batch in await asyncio.gather(*calls) for outcome in batch]
        assert outcomes.count(Committed()) == 1
        winner = changes[outcomes.index(Committed())].after
        assert {outcome.job_id for outcome in outcomes if isinstance(outcome, Duplicate)} == {winner.job_id}
        assert await one.inflight() == {"global": 1, "mode:DEFAULT": 1, "tenant:acme": 1}
        assert [job.job_id for job in await one.jobs(JobFilter(), 10, None)] == [winner.job_id]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_of_writers_on_one_job_one_at_a_time_succeeds(azurite: Azurite, layout: str) -> None:
    """Each writer loads, decides and writes until its change is in."""
    clock = ManualClock()
    async with (
        opened_ledger(azurite, layout) as one,
        open_ledger(azurite.connection, layout, one.store.prefix) as other,
    ):
        driver = LedgerDriver(one, clock)
        job = await driver.create()

        async def write(place: int) -> None:
            ledger = (one, other)[place % 2]
            while True:
                current = (await ledger.load([job.job_id]))[job.job_id]
                change = driver.change(current, heartbeat(current, 0.5, f"by {place}"))
                if await ledger.commit([change]) == [Committed()]:
                    return

        await asyncio.gather(*(write(place) for place in range(WRITERS)))
        done = (await other.load([job.job_id]))[job.job_id]
        assert done.revision == job.revision + WRITERS
        events = await other.events(job.job_id, 0, 1_000)
        assert [event.seq for event in events] == list(range(1, done.event_seq + 1))
        assert await one.commit([driver.change(job, heartbeat(job, 0.9))]) == [Conflict()]


@pytest.mark.parametrize("layout", ["ledger", "table"])
@pytest.mark.parametrize("lost", range(7))
async def test_a_write_whose_answer_was_lost_is_recognised(azurite: Azurite, layout: str, lost: int) -> None:
    """The proxy passes the request on and answers 503; what the SDK then sends again is refused by Azure."""
    clock = ManualClock()
    async with opened_ledger(azurite, layout) as direct, LossyProxy(azurite.table_port) as proxy:
        connection = azurite.connection.replace(f":{azurite.table_port}/", f":{proxy.port}/")
        async with open_ledger(connection, layout, direct.store.prefix) as ledger:
            sent = 0

            def count(method: str, url: str, body: Any) -> None:
                nonlocal sent
                if method == "POST":
                    if sent == lost:
                        proxy.lose_next("POST")
                    sent += 1

            ledger.store.account.observers.append(count)
            driver = LedgerDriver(ledger, clock)
            change = driver.creation(key="one", limits=(tenant_limit(5),), steps=["ocr"])
            job = await driver.write(change)
            assert await driver.commit(driver.creation(key="one")) == Duplicate(
                job.job_id, job.spec.idempotency_hash, job.status
            )
            await driver.tell(job, result(job))
            assert proxy.lost == 1, f"{sent} requests"
            assert (await direct.load([job.job_id]))[job.job_id].is_terminal
            assert await direct.inflight() == {}
            assert await direct.counts(START, None) == {"ACCEPTED": 1, "SUCCEEDED": 1}


ODD = "a/b\\c#d?e'f%g:h\tü \N{GRINNING FACE}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "odd", [ODD, "漢" * 128, "\N{GRINNING FACE}" * 128, "@" * 128], ids=["odd", "chinese", "emoji", "at"]
)
async def test_every_key_that_is_sent_keeps_azures_rules(azurite: Azurite, layout: str, odd: str) -> None:
    """Azurite is laxer, so the keys are read from the requests. Texts are as long as they may be."""
    clock = ManualClock()
    tenant, like = odd, f"{odd[:-1]}x"
    service = "s" * 64
    async with opened_ledger(azurite, layout) as ledger:
        sent: list[str] = []
        ledger.store.account.observers.append(lambda method, url, body: sent.append(f"{unquote(url)} {body}"))
        keys = _noted_keys(ledger)
        driver = LedgerDriver(ledger, clock)
        webhook_at = START + 1
        job = await driver.create(
            tenant_id=tenant, key=odd, correlation_id=odd, request_type=odd, searchable=(SearchValue(odd, odd),),
            limits=(tenant_limit(5, tenant),), steps=[service],
        )  # fmt: skip
        await ledger.count_refused(START, {tenant: 1})
        assert await ledger.inflight() == {"global": 1, "mode:DEFAULT": 1, f"tenant:{tenant}": 1}
        webhook = Webhook(job_id=job.job_id, url="https://client.example", tenant_id=tenant, next_at=webhook_at)
        job = await driver.succeed(job, webhook)
        assert await ledger.webhooks_due(webhook_at, "", 10, 10) == [webhook]
        failed = await driver.fail(await driver.create(tenant_id=tenant, key=odd + "2", redrive_of=odd))
        await ledger.dismiss(Closing(job_id=failed.job_id, at=START, by=odd, reason=odd))

        held = await driver.create(tenant_id=tenant, key=odd + "3", steps=[service])
        held = await driver.tell(held, PublishHeld(service, 1))
        line = HeldLine(tenant, held.spec.routing.lane, service)
        assert await ledger.held_lines(10) == [line]
        assert await ledger.held(line, held.engine, 10) == [held.job_id]
        other = await driver.create(tenant_id=like, key=odd)

        for tenants, expected in {(tenant,): [held, failed, job], (like,): [other]}.items():
            assert await ledger.jobs(JobFilter(tenants=tenants), 10, None) == expected
        assert await ledger.jobs(JobFilter(tenants=(tenant,), request_type=odd), 10, None) == [job]
        assert await ledger.counts_by_tenant(START, None) == {
            tenant: {"ACCEPTED": 3, "SUCCEEDED": 1, "FAILED_FINAL": 1, "REFUSED": 1},
            like: {"ACCEPTED": 1},
        }
        assert await ledger.inflight() == {"global": 2, "mode:DEFAULT": 2, f"tenant:{tenant}": 1, f"tenant:{like}": 1}
        assert await ledger.slots.recount() == 0
        for one in (held, other):
            await driver.cancel((await ledger.load([one.job_id]))[one.job_id])
        assert await ledger.inflight() == {}
        views = tables_stores(ledger).console_views
        view = SavedView(name=odd[:60], query=odd, created_at=START)
        assert await views.save("o" * 64, "jobs", view, 10)
        assert await views.all("o" * 64, "jobs") == [view]
        await ledger.webhook_done(replace(webhook, attempts=1, next_at=0), delivered=True)
        assert await ledger.prune(START + 10**9, 10) == 4
        assert sent
        faults = {key: fault for key in keys if (fault := key_fault(key)) is not None}
        assert len(keys) > 30
        assert not faults
        assert not {url for url in sent if "#" in urlsplit(url.split(" ")[0]).path}


def _noted_keys(ledger: TablesLedger) -> set[str]:
    """Partition and row keys of everything that is written from now on."""
    keys: set[str] = set()
    for name in ledger.store.table_names():
        table = ledger.store.account.table(name)
        write = table.write

        async def noted(partition: str, writes: Any, write: Any = write) -> Any:
            keys.update([partition, *(one.key for one in writes)])
            return await write(partition, writes)

        table.write = noted  # type: ignore[method-assign]
    return keys


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_large_texts_are_in_blobs_until_their_job_is_pruned(azurite: Azurite, layout: str) -> None:
    clock = ManualClock()
    async with opened_ledger(azurite, layout) as ledger:
        store, driver = ledger.store, LedgerDriver(ledger, clock)
        large = Raw(b'{"text":"' + "ä".encode() * 40_000 + b'"}')
        job = await driver.create(input_ref=large, steps=["ocr"])
        job = await driver.tell(job, result(job, artifacts=large))
        assert await driver.read(job) == job
        assert bytes((await driver.read(job)).steps[0].artifacts) == bytes(large)
        assert await store.blobs.names(store.container, store.blob_prefix(job.job_id), 10)
        clock.advance(10)
        assert await ledger.prune(clock.now(), 10) == 1
        assert await store.blobs.names(store.container, store.blob_prefix(job.job_id), 10) == []
        for name in store.table_names():
            table = store.account.table(name)
            for partition in (job.job_id, "INFLIGHT", *(f"INDEX:{shard}" for shard in range(8))):
                left = await table.rows(partition, limit=1_000)
                assert not [row for row in left if job.job_id in f"{row.key} {row.values.get('jobId')}"]


@pytest.mark.parametrize("layout", ["ledger", "table"])
async def test_a_job_whose_blob_is_gone_is_unreadable_and_is_pruned(azurite: Azurite, layout: str) -> None:
    """Lists show the others; while the blobs cannot be asked at all, the ledger is unavailable."""
    clock = ManualClock()
    async with opened_ledger(azurite, layout) as ledger:
        store, driver = ledger.store, LedgerDriver(ledger, clock)
        other = await driver.create(key="other")
        job = await driver.create(input_ref=Raw(b'"' + b"x" * 40_000 + b'"'), key="large")
        [blob] = await store.blobs.names(store.container, "", 10)
        await store.blobs.delete(store.container, blob)
        listed = await ledger.jobs(JobFilter(), 10, None)
        assert [type(one) for one in listed] == [UnreadableJob, Job]
        assert blob in str(listed[0])
        assert await ledger.load([job.job_id, other.job_id]) == {other.job_id: other}
        await driver.fail(job)
        clock.advance(10)
        assert await ledger.prune(clock.now(), 10) == 1
        assert await ledger.jobs(JobFilter(), 10, None) == [other]
        await driver.create(input_ref=Raw(b'"' + b"y" * 40_000 + b'"'), key="lost")
        await store.blobs._service.delete_container(store.container)
        with pytest.raises(LedgerUnavailable, match="ContainerNotFound"):
            await ledger.jobs(JobFilter(), 10, None)


@pytest.mark.parametrize("layout", ["ledger", "table"])
async def test_a_transaction_is_never_larger_than_azure_takes(azurite: Azurite, layout: str) -> None:
    """Texts that fit a column each, in more rows than fit a transaction; in requests a character is up to six bytes."""
    clock, artifacts = ManualClock(), Raw(b'"' + "漢".encode() * 30_000 + b'"')
    async with opened_ledger(azurite, layout) as ledger:
        driver = LedgerDriver(ledger, clock)
        job = current = await driver.create(steps=[f"step-{place}" for place in range(40)])
        events: list[Event] = []
        while not current.is_terminal:
            change = driver.change(current, published(current), result(current, artifacts=artifacts))
            current, events = change.after, [*events, *change.events]
        sizes: list[int] = []
        ledger.store.account.observers.append(lambda method, url, body: sizes.append(len(body or "")))
        done = await driver.write(Change(before=job, after=current, events=tuple(events)))
        assert 0 < max(sizes) <= TRANSACTION_BYTES_MAX
        assert await driver.read(done) == done
        assert len(await ledger.events(job.job_id, job.event_seq, 1_000)) == len(events)
        clock.advance(1)
        assert await ledger.prune(clock.now(), 10) == 1
        assert await ledger.store.blobs.names(ledger.store.container, "", 10) == []

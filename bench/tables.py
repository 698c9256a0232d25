"""The part `tables`: three-step jobs a second with the ledger on Azure Tables, on Azurite.

A round runs jobs through the outbox engine over the memory bus, so many at once, and notes what the ledger sends. Then
the same requests are sent again by Azure's SDK alone, to empty tables, as many at once. What is compared is the time
that the project adds to its own requests, not the number of them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import uvloop
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, UpdateMode
from azure.data.tables.aio import TableClient, TableServiceClient
from tests.azurite import Azurite, running

from bench.part import Measured, Options, Part, Row, detail, say, share_at_least
from bench.processes import ROOT
from bench.report import Rows
from lucius.azure.blob import BlobAccount
from lucius.azure.tables import PAGE_ROWS_MAX, Delete, Table, TableAccount
from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.attempt import Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.tables import LAYOUTS, TablesLedger
from lucius.ports.bus import Subscription
from lucius.ports.engine import Started
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import read_work
from lucius.testing.samples import STEP_IDS, global_limit, new_job, tenant_limit

JOBS, QUICK_JOBS = 120, 40
RATIO_GOAL = 0.60
AT_ONCE = 32
LIMITS = (tenant_limit(1_000), global_limit(1_000))


class Sent(NamedTuple):
    """A call of the table's client, which is one request."""

    table: str
    partition: str
    what: Any
    """Writes, or the arguments of a read."""


class Round(NamedTuple):
    layout: str
    jobs_per_second: float
    replayed_per_second: float
    requests_per_job: float


def recorded(ledger: TablesLedger) -> list[Sent]:
    sent: list[Sent] = []
    for name in ledger.store.table_names():
        table = ledger.store.account.table(name)
        _record(table, name.removeprefix(ledger.store.prefix), sent)
    return sent


def _record(table: Table, name: str, sent: list[Sent]) -> None:
    write, get, page = table.write, table.get, table.page

    async def noted_write(partition: str, writes: Any) -> Any:
        sent.append(Sent(name, partition, list(writes)))
        return await write(partition, writes)

    async def noted_get(partition: str, key: str, select: Any = None) -> Any:
        sent.append(Sent(name, partition, (key, select)))
        return await get(partition, key, select)

    async def noted_page(partition: str, first: str = "", end: str | None = None, **options: Any) -> Any:
        sent.append(Sent(name, partition, (first, end, options)))
        return await page(partition, first, end, **options)

    table.write, table.get, table.page = noted_write, noted_get, noted_page  # type: ignore[method-assign]


async def run_jobs(ledger: TablesLedger, jobs: int) -> float:
    """Jobs a second."""
    clock = SystemClock()
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    settings = EngineSettings(sweep_interval=600.0, outbox_retry_interval=600.0, repair_interval=600.0)
    async with MemoryBus(clock) as bus:
        await bus.declare(
            [
                Subscription(topic=topic, name=name, where={"service": name})
                for topic in LANE_TOPICS
                for name in STEP_IDS
            ]
        )
        urls = CallbackUrls.under("http://127.0.0.1")
        async with OutboxEngine(ledger, bus, clock, signer, urls, Observer(), settings) as engine:
            left = iter(range(jobs))

            async def client() -> None:
                for _ in left:
                    answer = await engine.submit(new_job(clock, key=uuid.uuid4().hex, limits=LIMITS))
                    assert isinstance(answer, Started)
                    while not await engine.wait_for_change(answer.job_id, 60.0, True):
                        pass

            async def worker(service: str) -> None:
                while True:
                    for delivery in await bus.receive(LANE_TOPICS, service, 10, 60.0, 5.0):
                        work = read_work(delivery)
                        facts = (Acked(*work.about), Resulted(*work.about, verdict=Verdict.SUCCEEDED))
                        pending.update(asyncio.ensure_future(engine.tell(work.job_id, None, fact)) for fact in facts)

            pending: set[asyncio.Future[Any]] = set()
            workers = [asyncio.create_task(worker(service)) for service in STEP_IDS]
            began = time.perf_counter()
            await asyncio.gather(*(client() for _ in range(AT_ONCE)))
            seconds = time.perf_counter() - began
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, *pending, return_exceptions=True)
    return jobs / seconds


async def replay(service: TableServiceClient, prefix: str, sent: Sequence[Sent]) -> float:
    """Seconds to send these requests again. An ETag of the recording would be refused, so rows are written without one,
    and what was deleted is written too: a transaction has as many rows as it had."""
    clients = {one.table: service.get_table_client(prefix + one.table) for one in sent}
    calls = iter([partial(_call, clients[one.table], one.partition, _prepared(one)) for one in sent])

    async def client() -> None:
        for call in calls:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


def _prepared(one: Sent) -> Any:
    if not isinstance(one.what, list):
        return one.what
    mode = {"mode": UpdateMode.REPLACE}
    return [("upsert", entity_of(one.partition, write), mode) for write in one.what]


def entity_of(partition: str, write: Any) -> dict[str, Any]:
    values = {} if isinstance(write, Delete) else {k: v for k, v in write.values.items() if v is not None}
    typed = {
        k: EntityProperty(v, EdmType.INT64) if isinstance(v, int) and not isinstance(v, bool) else v
        for k, v in values.items()
    }
    return {"PartitionKey": partition, "RowKey": write.key, "op_id": uuid.uuid4().hex, **typed}


async def _call(client: TableClient, partition: str, what: Any) -> None:
    if isinstance(what, tuple) and len(what) == 2:
        key, select = what
        with suppress(ResourceNotFoundError):  # The request was made all the same.
            await client.get_entity(partition, key, **_selected(select))
    elif isinstance(what, tuple):
        first, end, options = what
        conditions, values = "PartitionKey eq @partition and RowKey ge @first", {"partition": partition, "first": first}
        if end is not None:
            conditions, values = f"{conditions} and RowKey lt @end", values | {"end": end}
        limit = min(options.get("limit", PAGE_ROWS_MAX), PAGE_ROWS_MAX)
        asked = {"results_per_page": limit, **_selected(options.get("select"))}
        async for page in client.query_entities(conditions, parameters=values, **asked).by_page():
            async for _ in page:
                pass
            break
    elif len(what) == 1:
        await client.upsert_entity(what[0][1], **what[0][2])
    else:
        await client.submit_transaction(what)


def _selected(columns: Sequence[str] | None) -> dict[str, Any]:
    return {} if columns is None else {"select": ["PartitionKey", "RowKey", *columns]}


async def round_of(azurite: Azurite, layout: str, jobs: int) -> Round:
    prefixes = [f"b{uuid.uuid4().hex[:10]}" for _ in range(2)]
    tables, blobs = TableAccount.connected(azurite.connection), BlobAccount.connected(azurite.connection)
    async with TablesLedger(tables, blobs, LAYOUTS[layout], prefixes[0]) as ledger:
        await ledger.create_tables()
        sent = recorded(ledger)
        rate = await run_jobs(ledger, jobs)
        noted = list(sent)
        async with TableServiceClient.from_connection_string(azurite.connection) as bare:
            names = [prefixes[1] + name.removeprefix(prefixes[0]) for name in ledger.store.table_names()]
            for name in names:
                await bare.create_table(name)
            seconds = await replay(bare, prefixes[1], noted)
            for name in (*names, *ledger.store.table_names()):
                await bare.delete_table(name)
    return Round(layout, rate, jobs / seconds, len(noted) / jobs)


def rows_of(rounds: Sequence[Round]) -> Rows:
    rows: Rows = [("layout", "jobs/s", "same requests by the SDK", "ratio", "requests a job")]
    for layout in LAYOUTS:
        own = [one for one in rounds if one.layout == layout]
        ratio = median(one.jobs_per_second / one.replayed_per_second for one in own)
        rows.append(
            (
                f"`aztables:{layout}`",
                f"{median(one.jobs_per_second for one in own):.1f}",
                f"{median(one.replayed_per_second for one in own):.1f} jobs/s",
                f"{ratio:.0%} (goal {RATIO_GOAL:.0%})",
                f"{median(one.requests_per_job for one in own):.1f}",
            )
        )
    return rows


def run(options: Options) -> Measured:
    jobs = QUICK_JOBS if options.quick else JOBS
    rounds = []
    with running(ROOT / ".pytest_cache" / "d" / "npm") as azurite:
        for at in range(options.rounds):
            for layout in LAYOUTS:
                rounds.append(uvloop.run(round_of(azurite, layout, jobs)))
                one = rounds[-1]
                told = f"{one.jobs_per_second:.1f} jobs/s, {one.replayed_per_second:.1f} by the SDK alone"
                say(f"round {at + 1}, {layout}: {told}")
    rows = []
    for layout in LAYOUTS:
        own = [one for one in rounds if one.layout == layout]
        rate, replayed = median(one.jobs_per_second for one in own), median(one.replayed_per_second for one in own)
        ratio = median(one.jobs_per_second / one.replayed_per_second for one in own)
        beside = f"the same requests by the SDK, {replayed:.1f}"
        goal = share_at_least(ratio, RATIO_GOAL)
        rows.append(
            Row(f"three-step jobs/s on `aztables:{layout}` (Azurite)", f"{rate:.1f}", "", beside, f"{ratio:.0%}", *goal)
        )
    told = f"Medians of {options.rounds} rounds of {jobs} jobs, {AT_ONCE} at once."
    return Measured(rows, detail(told, rows_of(rounds)), rounds)


PART = Part(
    "tables",
    "the ledger on Azure Tables, beside the same requests by the SDK alone",
    run,
    lambda options: 10 + options.rounds * (15 if options.quick else 60),
)

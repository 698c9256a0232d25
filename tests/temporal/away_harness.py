"""API processes and workers apart, on PostgreSQL, so that workers can be away while the API goes on.

Each API engine has a database pool, a ledger and a bus of its own: they share nothing that two processes would not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from temporalio.client import Client
from tests.temporal.shapes import quick_settings

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import SqlBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.inputs import Acked
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.engine import TemporalEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.engine import CallbackReply, Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase
from lucius.testing.engine_harness import EngineHarness, Work
from lucius.testing.faults import FaultyLedger


class AwayHarness(EngineHarness):
    """`engine` is an API engine; workers come and go."""

    def __init__(self, address: str, stack: AsyncExitStack, url: str, outside: Bus | None) -> None:
        self._settings = msgspec.structs.replace(
            quick_settings(address), task_seconds=2.0, sticky_seconds=0.3, sandbox=False
        )
        self._stack = stack
        self._url = url
        self._outside = outside
        self._worker: TemporalEngine | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, url: str, is_bus_outside: bool) -> AsyncIterator[AwayHarness]:
        async with AsyncExitStack() as stack:
            clock = SystemClock()
            outside = await stack.enter_async_context(MemoryBus(clock)) if is_bus_outside else None
            harness = cls(address, stack, url, outside)
            ledger, bus = await harness._parts()
            EngineHarness.__init__(harness, ledger, bus, clock, _never_made, _never_killed, answers_at_once=False)
            async with harness:
                try:
                    yield harness
                finally:
                    await harness.stop_worker()

    async def start_api(self) -> TemporalEngine:
        ledger, bus = await self._parts()
        engine = await self._open(ledger, bus, works=False)
        self._engines.append(engine)
        return engine

    async def start_worker(self) -> FaultyLedger:
        """The ledger through which it writes."""
        ledger, bus = await self._parts()
        faulty = FaultyLedger(ledger)
        self._worker = await self._open(faulty, bus, works=True)
        return faulty

    async def stop_worker(self) -> None:
        """As a process that is asked to stop: what it has begun, it finishes."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.__aexit__(None, None, None)

    @property
    def task_queue(self) -> str:
        return self._settings.task_queue

    async def temporal(self) -> Client:
        return await connect(self._settings)

    async def ack_as(self, work: Work, instance: str, engine: Engine) -> CallbackReply:
        return await self._reply(work.job_id, Acked(*work.about, acked_by=instance), engine)

    async def _open(self, ledger: Ledger, bus: Bus, works: bool) -> TemporalEngine:
        settings = self._settings
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        engine = TemporalEngine(
            lambda: connect(settings), ledger, bus, SystemClock(), signer, CallbackUrls.under("http://127.0.0.1"),
            Observer(), settings, works=works, reconciles=False,
        )  # fmt: skip
        await engine.__aenter__()
        return engine

    async def _parts(self) -> tuple[Ledger, Bus]:
        database = await self._stack.enter_async_context(PostgresDatabase(self._url, pool_max=4))
        own = await self._stack.enter_async_context(SqlBus(database, SystemClock()))
        if self._outside is not None:
            return SqlLedger(database), self._outside
        return SqlLedger(database, own), own


def _never_made(*parts: object) -> Engine:
    raise AssertionError("this stand starts its engines as an API or as a worker")


async def _never_killed(engine: Engine) -> None:
    raise AssertionError("nothing is killed here")

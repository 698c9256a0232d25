"""Maintenance of the data: pruning, and the comparison of ledger and Temporal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from lucius.bootstrap import open_app, open_archive, open_clock, open_identity, temporal_settings
from lucius.bootstrap.tables_ledger import is_on_tables, prepare_tables
from lucius.clocks import SystemClock
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import TEMPORAL
from lucius.ledgers.sql import SqlLedger
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.ledgers.tables.bulk_operations import TablesBulkOperations
from lucius.ports.archive import Archive
from lucius.ports.bulk_operations import BulkOperations
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.roles.ledgers import opened_tables
from lucius.roles.running import opened_database, run
from lucius.settings import Settings
from lucius.sql import schema
from lucius.sql.sqlite import SqliteDatabase
from lucius.telemetry.log_observer import LogObserver
from lucius.usecases.retention import Pruned, Retention

if TYPE_CHECKING:
    from lucius.engines.temporal.reconciler import Drift, Reconciler

PRUNE_SECONDS = 10.0


def prune(settings: Settings, older_than_seconds: float) -> str:
    """Archive and delete jobs that ended longer ago, a slice at a time, and report how many."""

    async def work() -> str:
        async with AsyncExitStack() as stack:
            identity = await stack.enter_async_context(open_identity(settings))
            archive = await stack.enter_async_context(open_archive(settings, identity))
            if is_on_tables(settings):
                tables = await stack.enter_async_context(opened_tables(settings))
                await prepare_tables(tables, creates=False)
                operations = TablesBulkOperations(tables.store.operators)
                return await _pruned(tables, operations, SystemClock(), archive, older_than_seconds)
            database = await stack.enter_async_context(opened_database(settings))
            await schema.verify(database)
            clock = await stack.enter_async_context(open_clock(settings, database, LogObserver()))
            ledger, sql_operations = SqlLedger(database), SqlBulkOperations(database)
            message = await _pruned(ledger, sql_operations, clock, archive, older_than_seconds)
            if isinstance(database, SqliteDatabase) and not await database.give_space_back():
                message += f"\n{database.name} keeps its size, as an earlier version made it: run 'lucius db compact'."
            return message

    return run(work(), settings)


async def _pruned(
    ledger: Ledger, operations: BulkOperations, clock: Clock, archive: Archive | None, older_than_seconds: float
) -> str:
    retention = Retention(ledger, operations, None, clock, LogObserver(), archive, None)
    total = Pruned(is_more=True)
    while total.is_more:
        total = total.plus(await retention.prune(older_than_seconds, PRUNE_SECONDS, "lucius prune"))
    return str(total)


class Compared(NamedTuple):
    drifts: list[Drift]
    has_looked_inside: bool
    """Whether the workflows were queried for their revision, which requires a running worker."""


def temporal_drift(settings: Settings, every_job: bool = False) -> Compared:
    """The differences between ledger and Temporal. Without `every_job`, recently written jobs are assumed to be
    alive."""

    async def work() -> Compared:
        async with _open_reconciler(settings, every_job) as reconciler:
            from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
            from temporalio.service import RPCError

            try:
                return Compared([drift async for drift in reconciler.drifts(looks_inside=True)], True)
            except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
                # No worker answers queries. What Temporal itself knows can still be compared.
                return Compared([drift async for drift in reconciler.drifts()], False)

    return run(work(), settings)


def temporal_heal(settings: Settings, every_job: bool = False) -> int:
    """Repair the differences between ledger and Temporal; returns the number of jobs."""

    async def work() -> int:
        async with _open_reconciler(settings, every_job) as reconciler:
            return await reconciler.heal()

    return run(work(), settings)


@asynccontextmanager
async def _open_reconciler(settings: Settings, every_job: bool) -> AsyncIterator[Reconciler]:
    """For the ledger and Temporal of these settings, whatever the engine of new jobs."""
    settings = replace(settings, engine=TEMPORAL)
    async with open_app(settings, works=False, reconciles=False, orchestrates=False, schedules=False) as context:
        from temporalio.service import RPCError

        from lucius.engines.temporal.client import connect
        from lucius.engines.temporal.engine import TemporalEngine
        from lucius.engines.temporal.reconciler import Reconciler

        assert isinstance(context.engine, TemporalEngine)
        options = temporal_settings(settings)
        if every_job:
            options = replace(options, overdue_seconds=0.0)
        client = await connect(replace(options, metrics_address=""))
        try:
            yield Reconciler(client, context.ledger, context.clock, context.observer, options, context.engine.start)
        except RPCError as error:
            raise InfrastructureError.unavailable(f"Temporal does not answer: {error.message}") from error

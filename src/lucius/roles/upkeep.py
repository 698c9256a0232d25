"""Maintenance of the data: pruning, and the comparison of ledger and Temporal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from lucius.bootstrap import open_app, open_clock, temporal_settings
from lucius.bootstrap.tables_ledger import is_on_tables
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import TEMPORAL
from lucius.domain.time import after
from lucius.ledgers.sql import SqlLedger
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.roles.ledgers import prune_tables
from lucius.roles.running import opened_database, run
from lucius.settings import Settings
from lucius.sql import schema
from lucius.sql.sqlite import SqliteDatabase
from lucius.telemetry.log_observer import LogObserver

if TYPE_CHECKING:
    from lucius.engines.temporal.reconciler import Drift, Reconciler

PRUNE_BATCH = 500


def prune(settings: Settings, older_than_seconds: float) -> str:
    """Delete jobs that ended longer ago, a batch at a time, and report how many."""

    async def work() -> str:
        if is_on_tables(settings):
            return await prune_tables(settings, older_than_seconds)
        async with opened_database(settings) as database:
            await schema.verify(database)
            ledger, removed = SqlLedger(database), 0
            async with open_clock(settings, database, LogObserver()) as clock:
                cutoff = after(clock.now(), -older_than_seconds)
            while count := await ledger.prune(cutoff, PRUNE_BATCH):
                removed += count
            message = f"{removed} jobs removed."
            operations, ended = SqlBulkOperations(database), 0
            while count := await operations.prune(cutoff, PRUNE_BATCH):
                ended += count
            if ended:
                message += f"\n{ended} bulk operations removed."
            if isinstance(database, SqliteDatabase) and not await database.give_space_back():
                message += f"\n{database.name} keeps its size, as an earlier version made it: run 'lucius db compact'."
            return message

    return run(work(), settings)


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

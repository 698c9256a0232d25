"""What looks after the data: migrations, pruning, and the comparison of ledger and Temporal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from lucius.bootstrap import open_app, temporal_settings
from lucius.clocks import SystemClock
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import TEMPORAL
from lucius.domain.time import after
from lucius.ledgers.sql import SqlLedger
from lucius.roles.running import opened_database, run
from lucius.settings import Settings
from lucius.sql import schema

if TYPE_CHECKING:
    from lucius.engines.temporal.reconciler import Drift, Reconciler

PRUNE_BATCH = 500


def db_upgrade(settings: Settings) -> str:
    async def work() -> str:
        async with opened_database(settings) as database:
            count = await schema.upgrade(database)
            return f"{database.name}: {count} migrations made; at version {schema.VERSION}."

    return run(work(), settings)


def db_verify(settings: Settings) -> str:
    async def work() -> str:
        async with opened_database(settings) as database:
            await schema.verify(database)
            return f"{database.name} is at version {schema.VERSION}."

    return run(work(), settings)


def prune(settings: Settings, older_than_seconds: float) -> int:
    """Remove jobs that ended so long ago, a batch at a time, and say how many went."""

    async def work() -> int:
        async with opened_database(settings) as database:
            await schema.verify(database)
            ledger, removed = SqlLedger(database), 0
            cutoff = after(SystemClock().now(), -older_than_seconds)
            while count := await ledger.prune(cutoff, PRUNE_BATCH):
                removed += count
            return removed

    return run(work(), settings)


class Compared(NamedTuple):
    drifts: list[Drift]
    has_looked_inside: bool
    """Whether the workflows were asked for their revision, which takes a worker that answers."""


def temporal_drift(settings: Settings, every_job: bool = False) -> Compared:
    """What differs between ledger and Temporal. Without `every_job`, jobs written to just now are taken for alive."""

    async def work() -> Compared:
        async with _open_reconciler(settings, every_job) as reconciler:
            from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
            from temporalio.service import RPCError

            try:
                return Compared([drift async for drift in reconciler.drifts(looks_inside=True)], True)
            except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
                # Nobody answers for the workflows. What Temporal itself knows can be compared all the same.
                return Compared([drift async for drift in reconciler.drifts()], False)

    return run(work(), settings)


def temporal_heal(settings: Settings, every_job: bool = False) -> int:
    """Mend what differs between ledger and Temporal, and say how much there was."""

    async def work() -> int:
        async with _open_reconciler(settings, every_job) as reconciler:
            return await reconciler.heal()

    return run(work(), settings)


@asynccontextmanager
async def _open_reconciler(settings: Settings, every_job: bool) -> AsyncIterator[Reconciler]:
    """With the ledger and Temporal as these settings name them, whatever engine new jobs go to."""
    settings = replace(settings, engine=TEMPORAL)
    async with open_app(settings, works=False, reconciles=False, orchestrates=False, schedules=False) as desk:
        from temporalio.service import RPCError

        from lucius.engines.temporal.client import connect
        from lucius.engines.temporal.engine import TemporalEngine
        from lucius.engines.temporal.reconciler import Reconciler

        assert isinstance(desk.engine, TemporalEngine)
        wanted = temporal_settings(settings)
        if every_job:
            wanted = replace(wanted, overdue_seconds=0.0)
        client = await connect(replace(wanted, metrics_address=""))
        try:
            yield Reconciler(client, desk.ledger, desk.clock, desk.observer, wanted, desk.engine.start)
        except RPCError as error:
            raise InfrastructureError.unavailable(f"Temporal does not answer: {error.message}") from error

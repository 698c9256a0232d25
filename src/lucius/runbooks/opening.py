"""Runbooks as one running thing: what handlers and roles work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer
from lucius.runbooks.operations import Operations
from lucius.runbooks.orchestrator.orchestrator import Orchestrator, OrchestratorSettings
from lucius.runbooks.orchestrator.turn import Turns
from lucius.runbooks.publishing import Publishing
from lucius.runbooks.queries import Queries
from lucius.runbooks.scheduler.scheduler import Scheduler, SchedulerSettings
from lucius.runbooks.tables.outbox import Outbox
from lucius.sql.database import Database


class Runbooks(Struct, frozen=True, kw_only=True):
    """The use cases of runbooks."""

    turns: Turns
    publishing: Publishing
    operations: Operations
    queries: Queries
    orchestrator: Orchestrator
    scheduler: Scheduler
    """Opened, and running only where this process schedules."""


@asynccontextmanager
async def open_runbooks(
    database: Database,
    bus: Bus,
    clock: Clock,
    observer: Observer,
    orchestrator: OrchestratorSettings,
    scheduler: SchedulerSettings,
    environ: Mapping[str, str],
    own_files: Sequence[Path] = (),
    *,
    orchestrates: bool = True,
    schedules: bool = True,
) -> AsyncIterator[Runbooks]:
    """`orchestrates`: takes messages and looks after what is due. `schedules`: reads sources and clocks."""
    turns = Turns(database, Outbox(database, bus), clock)
    publishing = Publishing(turns, bus, scheduler.limits, environ, own_files)
    await publishing.declare()
    conductor = Orchestrator(turns, bus, observer, orchestrator, consumes=orchestrates)
    keeper = Scheduler(turns, observer, scheduler, clock.lease_id(), environ, own_files)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(conductor)
        if schedules:
            await stack.enter_async_context(keeper)
        yield Runbooks(
            turns=turns,
            publishing=publishing,
            operations=Operations(turns, scheduler.limits),
            queries=Queries(turns, scheduler.limits, environ, own_files),
            orchestrator=conductor,
            scheduler=keeper,
        )

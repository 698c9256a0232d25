"""The runbook services as one unit, for handlers and roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.database import Database
from lucius.ports.observer import Observer
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.grants import Grants
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.engine.outbox import Outbox
from lucius.runbooks.engine.turn import Turns
from lucius.runbooks.loops.orchestrator import Orchestrator
from lucius.runbooks.loops.scheduler import Scheduler
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.rehearsal.service import Rehearsals
from lucius.runbooks.service.dead_letters import DeadLetters
from lucius.runbooks.service.operations import Operations
from lucius.runbooks.service.publishing import Publishing
from lucius.runbooks.service.queries import Queries


class Runbooks(Struct, frozen=True, kw_only=True):
    """The use cases of runbooks."""

    turns: Turns
    publishing: Publishing
    operations: Operations
    queries: Queries
    dead_letters: DeadLetters
    rehearsals: Rehearsals
    orchestrator: Orchestrator
    scheduler: Scheduler
    """Always created; runs only if this process schedules."""


class RunbooksOff(NamedTuple):
    """This installation has no database for runbooks."""

    why: str


@asynccontextmanager
async def open_runbooks(
    database: Database,
    bus: Bus,
    clock: Clock,
    observer: Observer,
    orchestrator_settings: OrchestratorSettings,
    scheduler_settings: SchedulerSettings,
    tokens: JobTokens,
    environ: Mapping[str, str],
    own_files: Sequence[Path] = (),
    *,
    orchestrates: bool = True,
    schedules: bool = True,
    absent: Absent = nobody_absent,
    grants: Grants | None = None,
) -> AsyncIterator[Runbooks]:
    """`orchestrates`: consumes messages and sweeps. `schedules`: reads sources and handles due times. `absent` tells
    which workers do not ask for work. Without `grants`, tenants' runbooks may use nothing."""
    turns = Turns(database, Outbox(database, bus), clock, tokens, grants)
    publishing = Publishing(turns, bus, scheduler_settings.limits, environ, own_files)
    await publishing.declare()
    letters = DeadLetters(turns, bus)
    orchestrator = Orchestrator(turns, bus, observer, orchestrator_settings, consumes=orchestrates)
    scheduler = Scheduler(turns, observer, scheduler_settings, clock.lease_id(), environ, own_files)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(orchestrator)
        if schedules:
            await stack.enter_async_context(scheduler)
        yield Runbooks(
            turns=turns,
            publishing=publishing,
            operations=Operations(turns, scheduler_settings.limits),
            queries=Queries(turns, letters, scheduler_settings.limits, environ, own_files, absent),
            dead_letters=letters,
            rehearsals=Rehearsals(turns),
            orchestrator=orchestrator,
            scheduler=scheduler,
        )

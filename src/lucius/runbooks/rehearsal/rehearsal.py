"""`rehearse`: runs a runbook to its end at once, with simulated workers. Nothing outside the process is touched."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant, after
from lucius.runbooks.core.definition.calendar import Freeze
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.rehearsal.behaviour import Behaviour
from lucius.runbooks.rehearsal.gathering import gather
from lucius.runbooks.rehearsal.members import by_start
from lucius.runbooks.rehearsal.report import Report
from lucius.runbooks.rehearsal.simulation import Simulation
from lucius.runbooks.rehearsal.windows import windows
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase

LEAD_SECONDS = 3_600.0
"""By default, batches are created an hour before their first phase, which leaves time for init."""
GRAIN_SECONDS_MAX = 60.0


async def rehearse(
    runbook_yaml: bytes,
    members: Members,
    start: Instant | None,
    behaviour: Behaviour | None = None,
    seed: int = 1,
    *,
    now: Instant | None = None,
    grain_seconds: float | None = None,
    of_files: Sequence[Freeze] = (),
) -> Report:
    """Run it. `start` is the start of a single batch; without it each member has its own batch time. `now` is when
    batches are created, `of_files` the freezes in the files that the runbook names. The
    same arguments give the same report. Raises `RunbookInvalid`, `SourceError` and
    `RehearsalFailed`."""
    runbook = read_runbook(runbook_yaml, of_files=of_files)
    behaviour = behaviour or Behaviour()
    starts = by_start(members, start)
    first_due = min(window.due_at for moment in starts for window in windows(runbook, moment))
    begin = after(first_due, -LEAD_SECONDS) if now is None else now
    grain = usual_grain_seconds(behaviour) if grain_seconds is None else grain_seconds
    async with VolatileDatabase() as database:
        await upgrade(database)
        simulation = Simulation(database, runbook, behaviour, seed, begin, grain)
        await simulation.prepare(runbook_yaml, members, starts, of_files)
        await simulation.run()
        found = await database.read(lambda: gather(runbook))
    pool = simulation.pool
    counts = {**pool.counts, "retries": found.retries, "polls": found.polls, "rollback": found.rollback_jobs}
    return Report(
        runbook=runbook.name,
        seed=seed,
        behaviour=behaviour,
        members=len(members.members),
        begins_at=begin,
        ends_at=simulation.clock.now(),
        grain_seconds=grain,
        batches=tuple(found.batches),
        misses=tuple(found.misses),
        holds=tuple(found.holds),
        jobs=counts,
        busiest=pool.busiest,
        workers=tuple(pool.busy),
        faults=tuple(f"{fault.place}: {fault.message}" for fault in members.faults),
    )


def usual_grain_seconds(behaviour: Behaviour) -> float:
    """A third of the usual job time: the timeline is at most that inaccurate per step."""
    return float(min(max(behaviour.default.duration_seconds // 3, 1.0), GRAIN_SECONDS_MAX))

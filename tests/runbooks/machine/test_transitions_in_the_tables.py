"""Whatever happens in whatever order, the tables go by the literal machines: triggers of SQLite watch every change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from grid_follower import GridFollower
from harness import OPERATOR, open_harness, runbook
from random_runs import RandomRun, record_transitions, transitions

from lucius.runbooks.core import states
from lucius.runbooks.core.records import RunbookRow
from lucius.runbooks.engine.batching import create_batch
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store.runbooks import RUNBOOK
from lucius.sql.database import Fetch, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock

SEEDS_MIN, SEEDS_MAX = 24, 120
"""Runs that are always made, and how many more there may be until every transition was seen."""
ACTS = 220
ACTS_AT_ONCE = 100


def pairs(*machines: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    return {(before, after) for machine in machines for before, to in machine.items() for after in to}


ALLOWED = {
    "step_executions": pairs(states.STEP, states.RETRIED),
    "init_executions": pairs(states.STEP, states.RETRIED),
    "followup_executions": pairs(states.STEP),
    "phase_executions": pairs(states.PHASE),
    "batches": pairs(states.BATCH, states.BATCH_RETRIED),
    "batch_members": pairs(states.MEMBER),
}
WHOLE = ("step_executions", "phase_executions", "batches", "batch_members")
"""Tables in which every transition must be seen; the other two are driven by the same machine."""


async def run(seed: int) -> set[tuple[str, str, str]]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as harness:
            await record_transitions(harness)
            await RandomRun(harness, seed).go(ACTS)
            return await transitions(harness)


async def run_of_a_batch_that_never_started() -> set[tuple[str, str]]:
    """Its maker died after the first transaction; an operator cancels it."""
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as harness:
            await record_transitions(harness)
            await harness.publish(runbook({"go": ["move"]}))

            def create(turn: Turn) -> Script[int]:
                row = RunbookRow(*(yield Fetch(RUNBOOK))[0])
                definition = yield from harness.turns.definitions.get("moves", 1)
                return (yield from create_batch(turn, row, definition, turn.now, "manual", "time")).id

            await harness.operations.cancel(await harness.turns.take(create), "it never started", OPERATOR)
            found = await transitions(harness)
            assert {row[0] for row in found} == {"batches", "phase_executions"}
            return {(before, after) for table, before, after in found if table == "batches"}


async def test_random_runs_make_every_transition_of_the_machines_and_no_other() -> None:
    seen: dict[str, set[tuple[str, str]]] = {table: set() for table in ALLOWED}
    seen["batches"] |= await run_of_a_batch_that_never_started()
    missing: dict[str, set[tuple[str, str]]] = {}
    for seed in range(SEEDS_MAX):
        for table, before, after in await run(seed):
            assert (before, after) in ALLOWED[table], f"seed {seed}: {table} went from {before} to {after}"
            seen[table].add((before, after))
        missing = {table: ALLOWED[table] - seen[table] for table in WHOLE if ALLOWED[table] != seen[table]}
        if seed + 1 >= SEEDS_MIN and not missing:
            break
    assert not missing


@pytest.mark.parametrize("seed", range(2))
async def test_two_at_work_on_one_database_come_to_the_same_kind_of_end(postgres_url: str, seed: int) -> None:
    """Two processes' worth of orchestrator, scheduler, worker and operator, each with a random run of its own."""
    clock = ManualClock()
    async with (
        PostgresDatabase(postgres_url, pool_max=4) as one,
        PostgresDatabase(postgres_url, pool_max=4) as other,
        open_harness(one, clock, holder="one") as first,
        open_harness(other, clock, holder="other") as second,
    ):
        runs = [RandomRun(first, 2 * seed), RandomRun(second, 2 * seed + 1)]
        await runs[0].begin()
        follower = GridFollower(second.queries, 1)
        looking = asyncio.ensure_future(follower.look_on())
        await asyncio.gather(*(run.act(ACTS_AT_ONCE) for run in runs))
        looking.cancel()
        await follower.compare()
        clock.advance(60)  # The other's lease runs out.
        first.waiting |= second.waiting
        first.done += second.done
        await runs[0].drain()
        await runs[0].check()


async def test_a_step_that_cannot_be_sent_goes_by_way_of_dispatched() -> None:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as harness:
            await record_transitions(harness)
            await harness.publish(runbook({"go": ["move"]}))
            await harness.batch("moves", ["a"])
            await harness.publish(runbook({"go": [{"name": "move", "params": {"City": "{{City}}"}}]}))
            await harness.step()
            assert await harness.steps() == {"a move": "failed"}
            made = {pair[1:] for pair in await transitions(harness) if pair[0] == "step_executions"}
            assert made == {("pending", "dispatched"), ("dispatched", "failed")}

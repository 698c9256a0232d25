"""A grid that is kept up to date by changes alone is, after anything that can happen, the grid of the tables."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import cycle

from grid_follower import GridFollower
from harness import OPERATOR, SUCCESS, Harness, failure, open_harness, runbook
from random_runs import RandomRun

from lucius.domain.errors import CallerError
from lucius.runbooks.store import batch_changes
from lucius.runbooks.store.lease import LeaseLost
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock

SEEDS = 6
ACTS = 150
MEMBERS = 20


async def follow(harness: Harness, seed: int) -> GridFollower:
    run = RandomRun(harness, seed)
    await run.begin()
    follower = GridFollower(harness.queries, 1)
    names, weights = list(run.acts), list(run.acts.values())
    for _ in range(ACTS):
        (act,) = run.random.choices(names, weights)
        with suppress(CallerError, LeaseLost):
            await act()
        await follower.compare()
    await run.drain()
    await follower.compare()
    return follower


async def test_changes_make_the_grid_of_the_tables_whatever_happens() -> None:
    followed = 0
    for seed in range(SEEDS):
        async with VolatileDatabase() as database:
            await upgrade(database)
            async with open_harness(database) as harness:
                follower = await follow(harness, seed)
                followed += follower.changes
                assert follower.wholes < ACTS / 4, f"seed {seed}: hardly anything came as changes"
    assert followed > SEEDS * 10


async def test_what_changes_a_whole_phase_is_followed_too(harness: Harness) -> None:
    """The limit of failures, its end, a new version, a failed init and its retry, a cancelled batch."""
    phases = {"one": ["a", "b"], "two": ["c"]}
    offsets = {"two": "T+1h"}
    await harness.publish(runbook(phases, offsets=offsets, init=["check"], max_failures=0))
    await harness.batch("moves", ["x", "y", "z"])
    follower = GridFollower(harness.queries, 1)

    async def go_on(seconds: float = 0) -> None:
        await harness.step(seconds)
        await follower.compare()

    await follower.compare()
    harness.answer = lambda job: failure("no licence") if job.function == "check" else None
    await go_on()  # Init fails, and the phases are skipped.
    assert follower.columns == []
    harness.answer = lambda job: SUCCESS if job.function == "check" else None
    await harness.operations.retry(1, None, OPERATOR)
    await go_on()
    assert len(follower.columns) == 3
    await go_on(1)
    job = next(iter(harness.waiting.values()))
    await harness.reply(job, failure("locked"))  # More failures than the limit allows.
    await follower.compare()
    assert list(follower.cells.values()).count("c") == 3
    await harness.operations.resume(1, OPERATOR, "go on")
    await follower.compare()
    await harness.publish(runbook({"one": ["a", "b"], "three": ["d", "e"]}, offsets={"three": "T+2h"}))
    await go_on(1)
    assert [one["phase"] for one in follower.columns] == ["one", "one", "one", "one", "three", "three"]
    await harness.operations.cancel(1, "enough", OPERATOR)
    await follower.compare()


async def test_a_change_that_is_committed_late_is_not_missed(postgres_url: str) -> None:
    """Two processes' worth of orchestrator answer for the same batch at once, while somebody follows."""
    clock = ManualClock()
    async with (
        PostgresDatabase(postgres_url, pool_max=8) as one,
        PostgresDatabase(postgres_url, pool_max=8) as other,
        open_harness(one, clock) as first,
        open_harness(other, clock) as second,
    ):
        await first.publish(runbook({"one": ["a", "b", "c"]}, progression="independent"))
        await first.batch("moves", [f"m{number}" for number in range(MEMBERS)])
        await first.tick()
        await first.handle_events()
        follower = GridFollower(second.queries, 1)
        await follower.look()
        looking = asyncio.ensure_future(follower.look_on())
        for _ in range(3):
            jobs = await first.take_jobs()
            assert len(jobs) == MEMBERS
            await asyncio.gather(*(harness.reply(job, SUCCESS) for job, harness in zip(jobs, cycle((first, second)))))
        looking.cancel()
        await follower.compare()
        assert follower.changes > 5
        assert follower.wholes <= 2, "the batch has ended: its changes are given up"
        assert set(follower.cells.values()) == {"s"}


async def test_the_whole_grid_has_every_step_in_its_place(real_harness: Harness) -> None:
    """Also where rows were not written in their order: SQLite has no order inside of an aggregate."""
    harness = real_harness
    await harness.publish(runbook({"one": ["a", "b", "c"], "two": ["d"]}))
    await harness.batch("moves", ["x", "y;:7", "z'<b>é" + "k" * 100])
    await harness.tick()
    await harness.handle_events()
    harness.answer = lambda job: None
    assert {job.function for job in await harness.reply_all("a")} == {"a"}
    # The first step moves to the end of the table, and with it out of the order in which rows were written.
    found = await harness.rows("SELECT MAX(id) FROM step_executions")
    if not harness.database.is_shared:
        await harness.run(
            "UPDATE step_executions SET id = id + $1 WHERE step_index = 0 AND phase_execution_id = 1", found[0][0] + 100
        )
    await harness.reply_all("b", failure("=locked"))
    shown = await harness.queries.grid(1, None)
    assert [(one["phase"], one["step"]) for one in shown["columns"]] == [
        ("one", "a"), ("one", "b"), ("one", "c"), ("two", "d")
    ]  # fmt: skip
    assert shown["member_keys"] == ["x", "y;:7", "z'<b>é" + "k" * 74]
    assert shown["cells"] == "sfc." * 3 or shown["cells"] == "sfcc" * 3, shown["cells"]
    assert shown["member_states"] == "fff"


async def test_who_has_missed_too_much_gets_the_whole_grid(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves", ["x", "y"])
    first = (await harness.queries.grid(1, None))["number"]
    await harness.operations.remove(1, ["x"], OPERATOR, "not today")
    assert not (await harness.queries.grid(1, first))["whole"]
    await harness.run("DELETE FROM batch_changes WHERE change_number <= $1", first + 1)
    assert (await harness.queries.grid(1, first))["whole"], "a change is missing"
    assert (await harness.queries.grid(1, first + 1_000))["whole"], "a number from another database"
    assert (await harness.events("member-removed"))[0]["reason"] == "by hand: not today"


async def test_an_ended_batch_keeps_one_change(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves", ["x", "y"])
    for _ in range(3):
        await harness.step()
    assert await harness.batch_status() == "completed"
    assert await harness.value("SELECT COUNT(*) FROM batch_changes") == 1
    follower = GridFollower(harness.queries, 1)
    await follower.compare()
    assert follower.number > 1


async def test_old_changes_are_given_up(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves", [f"m{number}" for number in range(batch_changes.KEPT_MAX + 70)], starts_in=3_600)
    for number in range(batch_changes.KEPT_MAX + 66):
        await harness.operations.remove(1, [f"m{number}"], OPERATOR)
    kept = await harness.value("SELECT COUNT(*) FROM batch_changes")
    assert kept <= batch_changes.KEPT_MAX + batch_changes.PRUNE_EVERY

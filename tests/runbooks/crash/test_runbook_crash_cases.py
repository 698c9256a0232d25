"""Deaths that the story of `test_runbook_crash_points` does not have: each at every commit of one round."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from counts_hold import expect_counts_to_hold
from harness import OPERATOR, SUCCESS, Harness, open_harness, runbook
from tests.runbooks.crash.mortal_runbooks import Doom, Killed, MortalDatabase

from lucius.domain.errors import CallerError
from lucius.runbooks.core.messages import utc
from lucius.runbooks.engine import cancelling
from lucius.runbooks.loops.scheduler import Scheduler
from lucius.runbooks.loops.settings import SchedulerSettings
from lucius.runbooks.sources.limits import SourceLimits
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock

SOURCE = "LUCIUS_SOURCE_X"
SETTINGS = SchedulerSettings(source_interval=30.0, absence_seconds=0.0, limits=SourceLimits(still_seconds=0.0))
MINUTE = 60.0

Act = Callable[[Harness], Awaitable[None]]


async def die_at_each_commit(environ: dict[str, str], before: Act, round_: Act, after: Act) -> int:
    """Let one round die at each of its commits, each time in a run of its own; how many there were."""
    number, is_over = 0, False
    while not is_over:
        async with VolatileDatabase() as database:
            await upgrade(database)
            clock = ManualClock()
            await _live(database, clock, environ, before, Doom())
            try:
                await _live(database, clock, environ, round_, Doom({number}))
                is_over = True
            except Killed:
                number += 1
            await _live(database, clock, environ, after, Doom())
    return number


async def _live(database: Any, clock: ManualClock, environ: dict[str, str], act: Act, doom: Doom) -> None:
    async with open_harness(MortalDatabase(database, doom, dies_inside=False), clock, SETTINGS) as harness:
        harness.environ.update(environ)
        await act(harness)


async def test_who_comes_back_to_the_source_is_not_lost_with_the_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "members.csv"
    source = {"type": "csv", "connection": SOURCE, "primary_key": "Upn", "batch_time_column": "Start"}
    text = runbook({"move": ["look"]}, data_source=source)

    def keep(harness: Harness, members: str) -> None:
        path.write_text("Upn,Start\n" + "".join(f"{member},{utc(harness.clock.now() // 86_400_000 * 86_400_000)}\n"
                                                for member in members))  # fmt: skip

    async def before(harness: Harness) -> None:
        await harness.publish(text)
        for members in ("abc", "ab"):
            keep(harness, members)
            await harness.step(MINUTE)
        assert await harness.rows("SELECT status FROM batches") == [("completed",)]

    async def round_(harness: Harness) -> None:
        keep(harness, "abc")
        await harness.step(MINUTE)

    async def after(harness: Harness) -> None:
        for _ in range(3):
            await harness.step(MINUTE)
        memberships = await harness.rows("SELECT member_key, COUNT(*) FROM batch_members GROUP BY 1 ORDER BY 1")
        assert memberships == [("a", 1), ("b", 1), ("c", 2)], "who came back begins again, once"
        assert await harness.rows("SELECT status FROM batches") == [("completed",)] * 2
        assert set(await harness.rows("SELECT status FROM step_executions")) == {("succeeded",)}

    assert await die_at_each_commit({SOURCE: str(path)}, before, round_, after) >= 8


async def test_a_phase_whose_maker_died_does_not_stop_the_next_version() -> None:
    async def before(harness: Harness) -> None:
        await harness.publish(runbook({"move": ["look", "go"]}))
        await harness.batch("moves", ["a", "b", "c"], starts_in=MINUTE)

    async def round_(harness: Harness) -> None:
        await harness.step(MINUTE)

    async def after(harness: Harness) -> None:
        await harness.publish(runbook({"move": ["look", "go", "tell"]}))
        for _ in range(3):
            await harness.step(MINUTE)
        assert await harness.batch_status() in ("completed", "failed")
        assert not await harness.rows("SELECT id FROM step_executions WHERE completed_at IS NULL")
        found = await harness.rows(
            "SELECT s.step_name, COUNT(*) FROM step_executions s JOIN phase_executions p"
            " ON p.id = s.phase_execution_id WHERE p.runbook_version = 2 AND s.status = 'succeeded' GROUP BY 1"
        )
        # If the first version's phase had begun and ended, so had the batch, and there is nothing to move.
        assert dict(found) in ({"look": 3, "go": 3, "tell": 3}, {}), found
        assert bool(found) is (await harness.value("SELECT COUNT(*) FROM phase_executions") == 2)

    assert await die_at_each_commit({}, before, round_, after) >= 6


async def test_a_batch_whose_cancelling_process_died_is_cancelled_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "STEPS_MAX", 2)

    async def before(harness: Harness) -> None:
        await harness.publish(runbook({"move": ["look", "go", "tell"], "end": ["clean"]}, offsets={"end": "T+1h"}))
        await harness.batch("moves", ["a", "b", "c"])
        harness.answer = lambda job: None
        await harness.step()

    async def round_(harness: Harness) -> None:
        with suppress(CallerError):  # It was cancelled before the process died.
            await harness.operations.cancel(1, "enough", OPERATOR)
        while await harness.send_rest():
            pass

    async def after(harness: Harness) -> None:
        if await harness.batch_status() == "active":
            await harness.operations.cancel(1, "enough", OPERATOR)
        harness.answer = lambda job: SUCCESS
        await harness.orchestrator.resume()
        await harness.step(2 * 3_600.0)
        await harness.orchestrator.resume()
        await harness.settle()
        assert (await harness.batch_status(), await harness.phases()) == (
            "failed",
            {"move": "failed", "end": "skipped"},
        )
        found = await harness.rows("SELECT DISTINCT step_index, status, cancel_cause FROM step_executions ORDER BY 1")
        # What workers have may end as they answer, or by its timeout, after which nothing is sent again.
        assert found[-2:] == [(1, "cancelled", "batch_stopped"), (2, "cancelled", "batch_stopped")]
        assert not await harness.rows("SELECT id FROM step_executions WHERE completed_at IS NULL OR ready = TRUE")
        assert not await harness.rows("SELECT id FROM batches WHERE cancelling = TRUE")
        assert set(harness.functions()) <= {"look"}
        await expect_counts_to_hold(harness)

    assert await die_at_each_commit({}, before, round_, after) >= 4


async def test_a_killed_scheduler_keeps_nobody_waiting_where_the_database_has_one_owner(tmp_path: Path) -> None:
    clock = ManualClock()
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await upgrade(database)
        async with open_harness(database, clock) as harness:
            await harness.tick()
            next_one = Scheduler(harness.turns, harness.observer, SETTINGS, "the next", {})
            assert not await next_one.tick(), "the lease of one that may live is respected"
            async with asyncio.timeout(30), next_one:
                while await harness.value("SELECT holder FROM runbook_leases") != "the next":
                    await asyncio.sleep(0.01)

"""runbooks.md §4: version transitions, batches that are found late, and templates' data across versions."""

from __future__ import annotations

from typing import Any

import pytest
from harness import OPERATOR, SUCCESS, Harness, csv, failure, runbook

from lucius.runbooks.engine import phases

OFFSETS = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
PHASES = {"one": ["first"], "two": ["second"], "three": ["third"]}


def text(note: str, phases: Any = None, **parts: Any) -> str:
    return runbook(phases or PHASES, offsets=OFFSETS, description=note, **parts)


async def first_done(harness: Harness, **parts: Any) -> None:
    """Version 1 has done its first phase; its second is due in an hour."""
    await harness.publish(text("v1", **parts))
    await harness.batch("moves", ["a"], starts_in=7_200)
    await harness.step()
    await harness.step()


async def of_versions(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("SELECT runbook_version, phase_name, status FROM phase_executions ORDER BY id")


async def test_version_transition_skips_the_old_pending_phases_and_creates_the_new_ones(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(text("v2"))
    harness.answer = lambda job: None
    await harness.tick()
    assert await of_versions(harness) == [
        (1, "one", "completed"), (1, "two", "skipped"), (1, "three", "skipped"),
        (2, "one", "dispatched"), (2, "two", "pending"), (2, "three", "pending"),
    ]  # fmt: skip
    assert await harness.value("SELECT error_message FROM phase_executions WHERE id = 2") == "superseded by version 2"
    assert await harness.value("SELECT runbook_id FROM batches") == 2


async def test_version_transition_rerun_dispatches_overdue_phases(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(text("v2"), "rerun")
    harness.clock.advance(1)
    await harness.step()
    assert harness.functions() == ["first", "first"]
    assert (2, "one", "completed") in await of_versions(harness)


async def test_version_transition_ignore_skips_overdue_phases_once(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(text("v2"), "ignore")
    harness.clock.advance(1)
    await harness.step()
    assert await of_versions(harness) == [
        (1, "one", "completed"), (1, "two", "skipped"), (1, "three", "skipped"),
        (2, "one", "skipped"), (2, "two", "pending"), (2, "three", "pending"),
    ]  # fmt: skip
    assert await harness.rows("SELECT version, ignore_overdue_applied FROM runbooks ORDER BY 1") == [(1, 0), (2, 1)]
    await harness.step(3_599)  # Overdue by a second from now on is not ignored: the new version owns these phases.
    await harness.step(3_600)
    assert harness.functions() == ["first", "second", "third"]
    assert await harness.batch_status() == "completed"


async def test_version_transition_lets_a_phase_under_way_finish_by_its_own_version(harness: Harness) -> None:
    await harness.publish(text("v1", {**PHASES, "one": ["first", "old"]}))
    await harness.batch("moves", ["a"], starts_in=7_200)
    harness.answer = lambda job: None
    await harness.step()
    await harness.publish(text("v2", {**PHASES, "one": ["first", "new"]}), "ignore")
    harness.clock.advance(1)
    await harness.tick()
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert harness.functions() == ["first", "old"]
    assert (await of_versions(harness))[0] == (1, "one", "completed")


@pytest.mark.parametrize("rerun_init", [False, True])
async def test_version_transition_rerun_init_makes_phases_wait_for_it(harness: Harness, rerun_init: bool) -> None:
    await first_done(harness, init=["check"])
    await harness.publish(text("v2", init=["check-again"]), "rerun", rerun_init)
    harness.answer = lambda job: None
    await harness.step(1)
    if not rerun_init:
        assert (await harness.batch_status(), harness.functions()) == ("active", ["check", "first", "first"])
        return
    assert (await harness.batch_status(), harness.functions()) == ("init_dispatched", ["check", "first", "check-again"])
    await harness.step(60)
    assert (2, "one", "pending") in await of_versions(harness)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.batch_status() == "active"
    await harness.step()
    assert (2, "one", "completed") in await of_versions(harness)


async def test_version_transition_while_init_runs_starts_the_new_versions_init(harness: Harness) -> None:
    await harness.publish(text("v1", init=["check"]))
    await harness.batch("moves", ["a"], starts_in=7_200)
    harness.answer = lambda job: None
    await harness.step()
    await harness.publish(text("v2", init=["other"]))
    await harness.step()
    assert await harness.rows("SELECT runbook_version, step_name, status FROM init_executions ORDER BY id") == [
        (1, "check", "cancelled"), (2, "other", "dispatched"),
    ]  # fmt: skip
    assert await harness.reply("init-1-a1", failure("too late")) == "STALE"
    await harness.reply("init-2-a1", SUCCESS)
    assert await harness.batch_status() == "active"


async def test_version_transition_while_init_runs_and_the_new_version_has_none(harness: Harness) -> None:
    await harness.publish(text("v1", init=["check"]))
    await harness.batch("moves", ["a"], starts_in=7_200)
    harness.answer = lambda job: None
    await harness.step()
    await harness.publish(text("v2"))
    await harness.tick()
    assert await harness.batch_status() == "active"


async def test_version_transition_that_skips_all_that_was_left_ends_the_batch(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(runbook({"one": ["first"]}, offsets=OFFSETS, description="v2"), "ignore")
    await harness.step(1)
    assert await harness.batch_status() == "completed"


async def test_version_transition_drops_the_steps_of_a_phase_whose_maker_died_before_it_began(harness: Harness) -> None:
    """They would be open for ever, and in the way of the member's next steps."""
    await first_done(harness)
    harness.clock.advance(3_600)
    await harness.turns.take(lambda turn: phases.make_page(2, 1, 0, turn))
    assert (await harness.steps())["a second"] == "pending"
    await harness.publish(text("v2"), "ignore")
    await harness.step(1)
    assert "a second" not in await harness.steps()
    await harness.step(3_600)
    assert await harness.batch_status() == "completed"


async def test_version_transition_leaves_ended_batches_alone(harness: Harness) -> None:
    await harness.publish(text("v1"))
    await harness.batch("moves", ["a"])
    await harness.step()
    assert await harness.batch_status() == "completed"
    await harness.publish(text("v2"))
    await harness.step()
    assert {row[0] for row in await of_versions(harness)} == {1}


async def test_a_joiner_runs_a_phase_of_the_newest_version_that_has_begun_it(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(text("v2", {**PHASES, "one": ["first", "more"]}))
    await harness.step(1)
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.settle()
    assert [job.function for job in harness.done if job.member == "c"] == ["first", "more"]
    assert {job.body["correlationData"]["runbookVersion"] for job in harness.done if job.member == "c"} == {2}


async def test_a_joiner_that_is_told_of_again_gets_no_steps_of_older_versions(harness: Harness) -> None:
    await first_done(harness)
    await harness.publish(text("v2"))
    await harness.step(1)
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.settle()
    told = harness.handled[-1].body
    await harness.publish(text("v3"), "ignore")
    await harness.step(1)
    before = await harness.rows("SELECT id, status FROM step_executions ORDER BY id")
    await harness.handle_again(told)
    assert await harness.rows("SELECT id, status FROM step_executions ORDER BY id") == before


async def test_a_batch_found_late_runs_its_overdue_phases_one_after_the_other(harness: Harness) -> None:
    await harness.publish(text("v1"), "rerun")
    await harness.batch("moves", ["a"])
    await harness.step(60)
    assert (harness.functions(), await harness.batch_status()) == (["first", "second", "third"], "completed")


async def test_a_batch_found_late_skips_its_overdue_phases_where_the_runbook_ignores_them(harness: Harness) -> None:
    await harness.publish(text("v1"), "ignore")
    await harness.batch("moves", ["a"], starts_in=1_800)
    assert await harness.phases() == {"one": "skipped", "two": "skipped", "three": "pending"}
    await harness.step(1_800)
    assert (harness.functions(), await harness.batch_status()) == (["third"], "completed")


async def test_a_batch_found_after_all_its_phases_ends_at_once_where_they_are_ignored(harness: Harness) -> None:
    await harness.publish(text("v1"), "ignore")
    await harness.batch("moves", ["a"], starts_in=-60)
    assert (await harness.batch_status(), harness.functions()) == ("completed", [])


async def test_a_retired_runbook_lets_its_batches_go_on(harness: Harness) -> None:
    await first_done(harness)
    await harness.publishing.retire("moves", OPERATOR)
    await harness.step(3_600)
    await harness.step(3_600)
    assert (harness.functions(), await harness.batch_status()) == (["first", "second", "third"], "completed")


async def test_a_batch_that_is_advanced_by_hand_waits_for_no_time(harness: Harness) -> None:
    await harness.publish(text("v1"))
    await harness.batch("moves", ["a"], starts_in=7_200, advance="manual")
    await harness.step(86_400)
    assert harness.functions() == []
    for expected in ("one", "two", "three"):
        assert (await harness.operations.advance(1, OPERATOR))["phase"] == expected
        await harness.settle()
    assert (harness.functions(), await harness.batch_status()) == (["first", "second", "third"], "completed")

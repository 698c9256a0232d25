"""runbooks.md §4: version transitions, batches that are found late, and templates' data across versions."""

from __future__ import annotations

from typing import Any

import pytest
from stand import OPERATOR, SUCCESS, Stand, csv, failure, runbook

from lucius.runbooks.scheduler import phases

OFFSETS = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
PHASES = {"one": ["first"], "two": ["second"], "three": ["third"]}


def text(note: str, phases: Any = None, **parts: Any) -> str:
    return runbook(phases or PHASES, offsets=OFFSETS, description=note, **parts)


async def first_done(stand: Stand, **parts: Any) -> None:
    """Version 1 has done its first phase; its second is due in an hour."""
    await stand.publish(text("v1", **parts))
    await stand.batch("moves", ["a"], starts_in=7_200)
    await stand.step()
    await stand.step()


async def of_versions(stand: Stand) -> list[tuple[Any, ...]]:
    return await stand.rows("SELECT runbook_version, phase_name, status FROM phase_executions ORDER BY id")


async def test_version_transition_skips_the_old_pending_phases_and_creates_the_new_ones(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(text("v2"))
    stand.answer = lambda job: None
    await stand.tick()
    assert await of_versions(stand) == [
        (1, "one", "completed"), (1, "two", "skipped"), (1, "three", "skipped"),
        (2, "one", "dispatched"), (2, "two", "pending"), (2, "three", "pending"),
    ]  # fmt: skip
    assert await stand.value("SELECT error_message FROM phase_executions WHERE id = 2") == "superseded by version 2"
    assert await stand.value("SELECT runbook_id FROM batches") == 2


async def test_version_transition_rerun_dispatches_overdue_phases(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(text("v2"), "rerun")
    stand.clock.advance(1)
    await stand.step()
    assert stand.functions() == ["first", "first"]
    assert (2, "one", "completed") in await of_versions(stand)


async def test_version_transition_ignore_skips_overdue_phases_once(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(text("v2"), "ignore")
    stand.clock.advance(1)
    await stand.step()
    assert await of_versions(stand) == [
        (1, "one", "completed"), (1, "two", "skipped"), (1, "three", "skipped"),
        (2, "one", "skipped"), (2, "two", "pending"), (2, "three", "pending"),
    ]  # fmt: skip
    assert await stand.rows("SELECT version, ignore_overdue_applied FROM runbooks ORDER BY 1") == [(1, 0), (2, 1)]
    await stand.step(3_599)  # Overdue by a second from now on is not ignored: the new version owns these phases.
    await stand.step(3_600)
    assert stand.functions() == ["first", "second", "third"]
    assert await stand.batch_status() == "completed"


async def test_version_transition_lets_a_phase_under_way_finish_by_its_own_version(stand: Stand) -> None:
    await stand.publish(text("v1", {**PHASES, "one": ["first", "old"]}))
    await stand.batch("moves", ["a"], starts_in=7_200)
    stand.answer = lambda job: None
    await stand.step()
    await stand.publish(text("v2", {**PHASES, "one": ["first", "new"]}), "ignore")
    stand.clock.advance(1)
    await stand.tick()
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert stand.functions() == ["first", "old"]
    assert (await of_versions(stand))[0] == (1, "one", "completed")


@pytest.mark.parametrize("rerun_init", [False, True])
async def test_version_transition_rerun_init_makes_phases_wait_for_it(stand: Stand, rerun_init: bool) -> None:
    await first_done(stand, init=["check"])
    await stand.publish(text("v2", init=["check-again"]), "rerun", rerun_init)
    stand.answer = lambda job: None
    await stand.step(1)
    if not rerun_init:
        assert (await stand.batch_status(), stand.functions()) == ("active", ["check", "first", "first"])
        return
    assert (await stand.batch_status(), stand.functions()) == ("init_dispatched", ["check", "first", "check-again"])
    await stand.step(60)
    assert (2, "one", "pending") in await of_versions(stand)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.batch_status() == "active"
    await stand.step()
    assert (2, "one", "completed") in await of_versions(stand)


async def test_version_transition_while_init_runs_starts_the_new_versions_init(stand: Stand) -> None:
    await stand.publish(text("v1", init=["check"]))
    await stand.batch("moves", ["a"], starts_in=7_200)
    stand.answer = lambda job: None
    await stand.step()
    await stand.publish(text("v2", init=["other"]))
    await stand.step()
    assert await stand.rows("SELECT runbook_version, step_name, status FROM init_executions ORDER BY id") == [
        (1, "check", "cancelled"), (2, "other", "dispatched"),
    ]  # fmt: skip
    assert await stand.reply("init-1-a1", failure("too late")) == "STALE"
    await stand.reply("init-2-a1", SUCCESS)
    assert await stand.batch_status() == "active"


async def test_version_transition_while_init_runs_and_the_new_version_has_none(stand: Stand) -> None:
    await stand.publish(text("v1", init=["check"]))
    await stand.batch("moves", ["a"], starts_in=7_200)
    stand.answer = lambda job: None
    await stand.step()
    await stand.publish(text("v2"))
    await stand.tick()
    assert await stand.batch_status() == "active"


async def test_version_transition_that_skips_all_that_was_left_ends_the_batch(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(runbook({"one": ["first"]}, offsets=OFFSETS, description="v2"), "ignore")
    await stand.step(1)
    assert await stand.batch_status() == "completed"


async def test_version_transition_drops_the_steps_of_a_phase_whose_maker_died_before_it_began(stand: Stand) -> None:
    """They would be open for ever, and in the way of the member's next steps."""
    await first_done(stand)
    stand.clock.advance(3_600)
    await stand.turns.take(lambda turn: phases.make_page(2, 1, 0, turn))
    assert (await stand.steps())["a second"] == "pending"
    await stand.publish(text("v2"), "ignore")
    await stand.step(1)
    assert "a second" not in await stand.steps()
    await stand.step(3_600)
    assert await stand.batch_status() == "completed"


async def test_version_transition_leaves_ended_batches_alone(stand: Stand) -> None:
    await stand.publish(text("v1"))
    await stand.batch("moves", ["a"])
    await stand.step()
    assert await stand.batch_status() == "completed"
    await stand.publish(text("v2"))
    await stand.step()
    assert {row[0] for row in await of_versions(stand)} == {1}


async def test_a_joiner_runs_a_phase_of_the_newest_version_that_has_begun_it(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(text("v2", {**PHASES, "one": ["first", "more"]}))
    await stand.step(1)
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.settle()
    assert [job.function for job in stand.done if job.member == "c"] == ["first", "more"]
    assert {job.body["correlationData"]["runbookVersion"] for job in stand.done if job.member == "c"} == {2}


async def test_a_joiner_that_is_told_of_again_gets_no_steps_of_older_versions(stand: Stand) -> None:
    await first_done(stand)
    await stand.publish(text("v2"))
    await stand.step(1)
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.settle()
    told = stand.handled[-1].body
    await stand.publish(text("v3"), "ignore")
    await stand.step(1)
    before = await stand.rows("SELECT id, status FROM step_executions ORDER BY id")
    await stand.handle_again(told)
    assert await stand.rows("SELECT id, status FROM step_executions ORDER BY id") == before


async def test_a_batch_found_late_runs_its_overdue_phases_one_after_the_other(stand: Stand) -> None:
    await stand.publish(text("v1"), "rerun")
    await stand.batch("moves", ["a"])
    await stand.step(60)
    assert (stand.functions(), await stand.batch_status()) == (["first", "second", "third"], "completed")


async def test_a_batch_found_late_skips_its_overdue_phases_where_the_runbook_ignores_them(stand: Stand) -> None:
    await stand.publish(text("v1"), "ignore")
    await stand.batch("moves", ["a"], starts_in=1_800)
    assert await stand.phases() == {"one": "skipped", "two": "skipped", "three": "pending"}
    await stand.step(1_800)
    assert (stand.functions(), await stand.batch_status()) == (["third"], "completed")


async def test_a_batch_found_after_all_its_phases_ends_at_once_where_they_are_ignored(stand: Stand) -> None:
    await stand.publish(text("v1"), "ignore")
    await stand.batch("moves", ["a"], starts_in=-60)
    assert (await stand.batch_status(), stand.functions()) == ("completed", [])


async def test_a_retired_runbook_lets_its_batches_go_on(stand: Stand) -> None:
    await first_done(stand)
    await stand.publishing.retire("moves", OPERATOR)
    await stand.step(3_600)
    await stand.step(3_600)
    assert (stand.functions(), await stand.batch_status()) == (["first", "second", "third"], "completed")


async def test_a_batch_that_is_advanced_by_hand_waits_for_no_time(stand: Stand) -> None:
    await stand.publish(text("v1"))
    await stand.batch("moves", ["a"], starts_in=7_200, advance="manual")
    await stand.step(86_400)
    assert stand.functions() == []
    for expected in ("one", "two", "three"):
        assert (await stand.operations.advance(1, OPERATOR))["phase"] == expected
        await stand.settle()
    assert (stand.functions(), await stand.batch_status()) == (["first", "second", "third"], "completed")

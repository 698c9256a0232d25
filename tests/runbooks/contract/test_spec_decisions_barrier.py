"""runbooks.md §4: barrier and independent progression."""

from __future__ import annotations

from typing import Any

from harness import FAILURE, OPERATOR, SUCCESS, Harness, csv, failure, runbook


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    """The first step of the one phase is with the worker, for every member."""
    await harness.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await harness.batch("moves", members)
    harness.answer = lambda job: None
    await harness.step()


async def jobs(harness: Harness) -> list[str]:
    return [f"{job.member} {job.function}" for job in await harness.take_jobs()]


async def test_barrier_the_next_step_starts_when_it_has_ended_for_every_member(harness: Harness) -> None:
    await begun(harness)
    await harness.reply("step-1-a1", SUCCESS)
    assert await jobs(harness) == []
    await harness.reply("step-3-a1", SUCCESS)
    assert await jobs(harness) == ["a second", "b second"]


async def test_barrier_who_failed_is_out_of_the_phase_and_its_later_steps_are_cancelled(harness: Harness) -> None:
    await begun(harness, "first", "second", "third")
    await harness.reply("step-1-a1", SUCCESS)
    await harness.reply("step-4-a1", failure("no"))
    assert await jobs(harness) == ["a second"]
    steps = await harness.steps()
    assert (steps["b first"], steps["b second"], steps["b third"]) == ("failed", "cancelled", "cancelled")
    reason = await harness.value("SELECT error_message FROM step_executions WHERE id = 5")
    assert reason == "step first failed"


async def test_barrier_does_not_wait_for_a_rollback(harness: Harness) -> None:
    await begun(harness, {"name": "first", "on_failure": "undo"}, "second", rollbacks={"undo": ["stop"]})
    await harness.reply("step-1-a1", SUCCESS)
    await harness.reply("step-3-a1", FAILURE)
    assert sorted(await jobs(harness)) == ["a second", "b stop"]


async def test_barrier_who_timed_out_in_polling_is_out_of_the_phase(harness: Harness) -> None:
    await begun(harness, {"name": "first", "poll": {"interval": "1m", "timeout": "2m"}}, "second")
    await harness.reply("step-1-a1", SUCCESS)
    await harness.reply("step-3-a1", {"status": "Success", "result": {"complete": False}})
    harness.clock.advance(121)
    await harness.orchestrator.sweep()
    assert await jobs(harness) == ["a second"]


async def test_barrier_who_was_removed_is_out_of_the_phase(harness: Harness) -> None:
    await begun(harness)
    await harness.reply("step-1-a1", SUCCESS)
    await harness.operations.remove(1, ["b"], OPERATOR)
    await harness.handle_events()
    assert await jobs(harness) == ["a second"]


async def test_barrier_is_tested_again_when_someone_has_caught_up(harness: Harness) -> None:
    """A joiner does not hold the barrier until it has come up to it; then it counts."""
    await begun(harness, "first", "second", "third")
    await harness.reply("step-1-a1", SUCCESS)
    await harness.reply("step-4-a1", SUCCESS)
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.handle_events()
    assert await jobs(harness) == ["a second", "b second", "c first"]
    await harness.reply("step-2-a1", SUCCESS)
    await harness.reply("step-5-a1", SUCCESS)
    assert await jobs(harness) == ["a third", "b third"]  # `c` is behind and nobody waits for it.
    await harness.reply("step-7-a1", SUCCESS)
    assert await jobs(harness) == ["c second"]
    await harness.reply("step-8-a1", SUCCESS)
    assert await jobs(harness) == ["c third"]  # It has come up.


async def test_barrier_waits_for_who_has_come_up_to_it(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.handle_events()
    assert await jobs(harness) == ["c first"]
    await harness.reply("step-1-a1", SUCCESS)
    await harness.reply("step-3-a1", SUCCESS)
    assert await jobs(harness) == []
    await harness.reply("step-5-a1", SUCCESS)
    assert sorted(await jobs(harness)) == ["a second", "b second", "c second"]


async def test_independent_each_member_goes_on_alone(harness: Harness) -> None:
    await begun(harness, progression="independent")
    await harness.reply("step-1-a1", SUCCESS)
    assert await jobs(harness) == ["a second"]
    await harness.reply("step-2-a1", SUCCESS)
    assert (await harness.steps())["b first"] == "dispatched"

"""runbooks.md §4: barrier and independent progression."""

from __future__ import annotations

from typing import Any

from stand import FAILURE, OPERATOR, SUCCESS, Stand, csv, failure, runbook


async def begun(stand: Stand, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    """The first step of the one phase is with the worker, for every member."""
    await stand.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await stand.batch("moves", members)
    stand.answer = lambda job: None
    await stand.step()


async def jobs(stand: Stand) -> list[str]:
    return [f"{job.member} {job.function}" for job in await stand.take_jobs()]


async def test_barrier_the_next_step_starts_when_it_has_ended_for_every_member(stand: Stand) -> None:
    await begun(stand)
    await stand.reply("step-1-a1", SUCCESS)
    assert await jobs(stand) == []
    await stand.reply("step-3-a1", SUCCESS)
    assert await jobs(stand) == ["a second", "b second"]


async def test_barrier_who_failed_is_out_of_the_phase_and_its_later_steps_are_cancelled(stand: Stand) -> None:
    await begun(stand, "first", "second", "third")
    await stand.reply("step-1-a1", SUCCESS)
    await stand.reply("step-4-a1", failure("no"))
    assert await jobs(stand) == ["a second"]
    steps = await stand.steps()
    assert (steps["b first"], steps["b second"], steps["b third"]) == ("failed", "cancelled", "cancelled")
    reason = await stand.value("SELECT error_message FROM step_executions WHERE id = 5")
    assert reason == "step first failed"


async def test_barrier_does_not_wait_for_a_rollback(stand: Stand) -> None:
    await begun(stand, {"name": "first", "on_failure": "undo"}, "second", rollbacks={"undo": ["stop"]})
    await stand.reply("step-1-a1", SUCCESS)
    await stand.reply("step-3-a1", FAILURE)
    assert sorted(await jobs(stand)) == ["a second", "b stop"]


async def test_barrier_who_timed_out_in_polling_is_out_of_the_phase(stand: Stand) -> None:
    await begun(stand, {"name": "first", "poll": {"interval": "1m", "timeout": "2m"}}, "second")
    await stand.reply("step-1-a1", SUCCESS)
    await stand.reply("step-3-a1", {"status": "Success", "result": {"complete": False}})
    stand.clock.advance(121)
    await stand.orchestrator.sweep()
    assert await jobs(stand) == ["a second"]


async def test_barrier_who_was_removed_is_out_of_the_phase(stand: Stand) -> None:
    await begun(stand)
    await stand.reply("step-1-a1", SUCCESS)
    await stand.operations.remove(1, ["b"], OPERATOR)
    await stand.handle_events()
    assert await jobs(stand) == ["a second"]


async def test_barrier_is_tested_again_when_someone_has_caught_up(stand: Stand) -> None:
    """A joiner does not hold the barrier until it has come up to it; then it counts."""
    await begun(stand, "first", "second", "third")
    await stand.reply("step-1-a1", SUCCESS)
    await stand.reply("step-4-a1", SUCCESS)
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.handle_events()
    assert await jobs(stand) == ["a second", "b second", "c first"]
    await stand.reply("step-2-a1", SUCCESS)
    await stand.reply("step-5-a1", SUCCESS)
    assert await jobs(stand) == ["a third", "b third"]  # `c` is behind and nobody waits for it.
    await stand.reply("step-7-a1", SUCCESS)
    assert await jobs(stand) == ["c second"]
    await stand.reply("step-8-a1", SUCCESS)
    assert await jobs(stand) == ["c third"]  # It has come up.


async def test_barrier_waits_for_who_has_come_up_to_it(stand: Stand) -> None:
    await begun(stand)
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.handle_events()
    assert await jobs(stand) == ["c first"]
    await stand.reply("step-1-a1", SUCCESS)
    await stand.reply("step-3-a1", SUCCESS)
    assert await jobs(stand) == []
    await stand.reply("step-5-a1", SUCCESS)
    assert sorted(await jobs(stand)) == ["a second", "b second", "c second"]


async def test_independent_each_member_goes_on_alone(stand: Stand) -> None:
    await begun(stand, progression="independent")
    await stand.reply("step-1-a1", SUCCESS)
    assert await jobs(stand) == ["a second"]
    await stand.reply("step-2-a1", SUCCESS)
    assert (await stand.steps())["b first"] == "dispatched"

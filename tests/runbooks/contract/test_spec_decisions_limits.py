"""runbooks.md §4: `max_failures` and `max_parallel`."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Harness, csv, runbook

from lucius.domain.errors import CallerError

TEN = tuple("abcdefghij")
STILL = {"Complete": False}


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b", "c"), **parts: Any) -> None:
    phases = {"one": steps or ["first", "second"], "two": ["third"]}
    await harness.publish(runbook(phases, offsets={"one": "T-10m"}, **parts))
    await harness.batch("moves", members, starts_in=600)
    harness.answer = lambda job: None
    await harness.step()


# --- max_failures ----------------------------------------------------------------------------------------------------


async def test_max_failures_exceeded_cancels_the_undispatched_and_lets_the_dispatched_finish(harness: Harness) -> None:
    await begun(harness, max_failures=1, max_parallel=3, members=("a", "b", "c", "d"))
    await harness.reply("step-1-a1", FAILURE)
    assert await harness.value("SELECT held_at FROM batches") is None  # One is allowed.
    await harness.reply("step-3-a1", FAILURE)
    assert await harness.value("SELECT held_at FROM batches") == harness.clock.now()
    steps = await harness.steps("one")
    assert (steps["c first"], steps["c second"], steps["d second"]) == ("dispatched", "cancelled", "cancelled")
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert ((await harness.steps())["c first"], (await harness.phases())["one"]) == ("succeeded", "failed")


async def test_max_failures_holds_later_phases_until_an_operator_resumes(harness: Harness) -> None:
    await begun(harness, max_failures=0)
    await harness.reply("step-1-a1", FAILURE)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    await harness.step(600)
    assert (await harness.phases(), await harness.batch_status()) == ({"one": "failed", "two": "pending"}, "active")
    with pytest.raises(CallerError, match="is held"):
        await harness.operations.advance(1, OPERATOR)
    await harness.operations.resume(1, OPERATOR)
    await harness.settle()
    assert (await harness.steps("one")) == {
        "a first": "failed", "a second": "cancelled", "b first": "succeeded", "b second": "succeeded",
        "c first": "succeeded", "c second": "succeeded",
    }  # fmt: skip
    await harness.step()
    assert (await harness.phases(), await harness.batch_status()) == ({"one": "failed", "two": "failed"}, "failed")
    assert len(await harness.events("batch-held")) == len(await harness.events("batch-resumed")) == 1


async def test_max_failures_counts_anew_after_a_resume(harness: Harness) -> None:
    await begun(harness, max_failures=0)
    await harness.reply("step-1-a1", FAILURE)
    await harness.operations.resume(1, OPERATOR)
    await harness.reply("step-3-a1", SUCCESS)
    assert await harness.value("SELECT held_at FROM batches") is None
    await harness.reply("step-5-a1", FAILURE)
    assert await harness.value("SELECT held_at FROM batches") is not None


async def test_max_failures_held_batch_can_be_cancelled(harness: Harness) -> None:
    await begun(harness, max_failures=0)
    await harness.reply("step-1-a1", FAILURE)
    await harness.operations.cancel(1, "enough", OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert (await harness.phases(), await harness.batch_status()) == ({"one": "failed", "two": "skipped"}, "failed")
    with pytest.raises(CallerError, match="is neither paused nor held"):
        await harness.operations.resume(1, OPERATOR)


async def test_max_failures_as_a_percentage_is_of_the_members_at_dispatch(harness: Harness) -> None:
    await begun(harness, max_failures="20%", members=TEN)
    await harness.operations.add_members(1, csv([f"late{number}" for number in range(10)]), OPERATOR)
    await harness.handle_events()
    for number in (1, 3):
        await harness.reply(f"step-{number}-a1", FAILURE)
    assert await harness.value("SELECT held_at FROM batches") is None
    await harness.reply("step-5-a1", FAILURE)
    reason = await harness.value("SELECT hold_reason FROM batches")
    assert reason == "3 of 10 members failed in phase one: more than max_failures allows"


async def test_max_failures_counts_members_and_not_steps_that_were_cancelled(harness: Harness) -> None:
    await begun(harness, "first", "second", "other", max_failures=1)
    await harness.reply("step-1-a1", FAILURE)
    assert (await harness.steps())["a other"] == "cancelled"
    assert await harness.value("SELECT held_at FROM batches") is None


async def test_a_held_last_phase_that_is_resumed_reopens_the_batch(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["first", "second"]}, max_failures=0))
    await harness.batch("moves", ["a", "b"])
    harness.answer = lambda job: FAILURE if job.member == "a" else SUCCESS
    await harness.step()
    assert await harness.batch_status() == "failed"
    await harness.operations.resume(1, OPERATOR)
    assert await harness.batch_status() == "active"
    await harness.settle()
    assert ((await harness.steps())["b second"], await harness.batch_status()) == ("succeeded", "failed")


async def test_a_held_batch_with_nothing_left_to_run_stays_ended_when_it_is_resumed(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["first"]}, max_failures=0))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: FAILURE
    await harness.step()
    assert (await harness.operations.resume(1, OPERATOR))["steps"] == 0
    assert await harness.batch_status() == "failed"


async def failed_and_left_while_held(harness: Harness) -> None:
    """Of four, `a` breaks the limit; `b` is in flight and fails as well, `c` goes, `d` is well."""
    await begun(harness, max_failures=0, members=("a", "b", "c", "d"))
    await harness.reply("step-1-a1", FAILURE)
    await harness.reply("step-3-a1", FAILURE)
    await harness.reply("step-5-a1", SUCCESS)
    await harness.reply("step-7-a1", SUCCESS)
    await harness.operations.remove(1, ["c"], OPERATOR)
    await harness.handle_events()
    await harness.take_jobs()


async def test_a_resume_runs_nothing_of_members_that_failed_or_left_meanwhile(harness: Harness) -> None:
    await failed_and_left_while_held(harness)
    assert (await harness.operations.resume(1, OPERATOR))["steps"] == 1
    assert [f"{job.member} {job.function}" for job in await harness.take_jobs()] == ["d second"]


async def test_a_retry_of_a_member_that_failed_while_held_brings_it_to_the_end(harness: Harness) -> None:
    await failed_and_left_while_held(harness)
    await harness.operations.resume(1, OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    await harness.operations.retry(1, ["b"], OPERATOR)
    await harness.settle()
    steps = await harness.steps("one")
    assert (steps["b first"], steps["b second"]) == ("succeeded", "succeeded")


async def test_max_failures_holds_a_later_phase_that_has_begun_already_as_well(harness: Harness) -> None:
    """Nobody runs a later phase while its earlier one was stopped; after the resume each goes on in order."""
    patient = [{"name": name, "timeout": "1d"} for name in ("first", "second")]
    await begun(harness, *patient, max_failures=0, progression="independent")
    await harness.step(600)
    assert await harness.phases() == {"one": "dispatched", "two": "dispatched"}
    await harness.reply("step-1-a1", FAILURE)
    await harness.reply("step-3-a1", SUCCESS)
    await harness.reply("step-5-a1", SUCCESS)
    assert await harness.take_jobs() == []
    assert await harness.phases() == {"one": "failed", "two": "failed"}
    await harness.operations.resume(1, OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert [job.function for job in harness.done if job.member == "b"] == ["first", "second", "third"]


# --- max_parallel ----------------------------------------------------------------------------------------------------


async def test_max_parallel_caps_the_steps_in_flight_of_a_batch(harness: Harness) -> None:
    await begun(harness, max_parallel=2, members=TEN)
    assert sorted(harness.waiting) == ["step-1-a1", "step-3-a1"]
    await harness.reply("step-1-a1", SUCCESS)
    assert [job.id for job in await harness.take_jobs()] == ["step-5-a1"]
    most = 0

    def answer(job: Any) -> dict[str, Any]:
        nonlocal most
        most = max(most, len(harness.waiting))
        return SUCCESS

    harness.answer = answer
    await harness.settle()
    assert (most, (await harness.phases())["one"]) == (2, "completed")


async def test_max_parallel_does_not_count_idle_polls(harness: Harness) -> None:
    await begun(harness, {"name": "first", "poll": {"interval": "5m", "timeout": "1d"}}, max_parallel=1)
    await harness.reply("step-1-a1", STILL_POLLING)
    assert [job.id for job in await harness.take_jobs()] == ["step-2-a1"]
    await harness.reply("step-2-a1", STILL_POLLING)
    assert [job.id for job in await harness.take_jobs()] == ["step-3-a1"]
    harness.clock.advance(300)
    await harness.tick()
    await harness.handle_events()
    assert await harness.take_jobs() == []  # The polls that are due wait for the slot.
    await harness.reply("step-3-a1", SUCCESS)
    assert [job.id for job in await harness.take_jobs()] == ["step-1-a2"]


async def test_max_parallel_frees_the_slot_of_a_removed_member_when_its_job_has_come_back(harness: Harness) -> None:
    await begun(harness, max_parallel=1)
    await harness.operations.remove(1, ["a"], OPERATOR)
    await harness.handle_events()
    assert await harness.take_jobs() == []
    await harness.reply("step-1-a1", SUCCESS)
    assert [job.member for job in await harness.take_jobs()] == ["b"]

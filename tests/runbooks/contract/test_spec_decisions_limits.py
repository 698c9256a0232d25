"""runbooks.md §4: `max_failures` and `max_parallel`."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Stand, csv, runbook

from lucius.domain.errors import CallerError

TEN = tuple("abcdefghij")
STILL = {"Complete": False}


async def begun(stand: Stand, *steps: Any, members: tuple[str, ...] = ("a", "b", "c"), **parts: Any) -> None:
    phases = {"one": steps or ["first", "second"], "two": ["third"]}
    await stand.publish(runbook(phases, offsets={"one": "T-10m"}, **parts))
    await stand.batch("moves", members, starts_in=600)
    stand.answer = lambda job: None
    await stand.step()


# --- max_failures ----------------------------------------------------------------------------------------------------


async def test_max_failures_exceeded_cancels_the_undispatched_and_lets_the_dispatched_finish(stand: Stand) -> None:
    await begun(stand, max_failures=1, max_parallel=3, members=("a", "b", "c", "d"))
    await stand.reply("step-1-a1", FAILURE)
    assert await stand.value("SELECT held_at FROM batches") is None  # One is allowed.
    await stand.reply("step-3-a1", FAILURE)
    assert await stand.value("SELECT held_at FROM batches") == stand.clock.now()
    steps = await stand.steps("one")
    assert (steps["c first"], steps["c second"], steps["d second"]) == ("dispatched", "cancelled", "cancelled")
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert ((await stand.steps())["c first"], (await stand.phases())["one"]) == ("succeeded", "failed")


async def test_max_failures_holds_later_phases_until_an_operator_resumes(stand: Stand) -> None:
    await begun(stand, max_failures=0)
    await stand.reply("step-1-a1", FAILURE)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    await stand.step(600)
    assert (await stand.phases(), await stand.batch_status()) == ({"one": "failed", "two": "pending"}, "active")
    with pytest.raises(CallerError, match="is held"):
        await stand.operations.advance(1, OPERATOR)
    await stand.operations.resume(1, OPERATOR)
    await stand.settle()
    assert (await stand.steps("one")) == {
        "a first": "failed", "a second": "cancelled", "b first": "succeeded", "b second": "succeeded",
        "c first": "succeeded", "c second": "succeeded",
    }  # fmt: skip
    await stand.step()
    assert (await stand.phases(), await stand.batch_status()) == ({"one": "failed", "two": "failed"}, "failed")
    assert len(await stand.events("batch-held")) == len(await stand.events("batch-resumed")) == 1


async def test_max_failures_counts_anew_after_a_resume(stand: Stand) -> None:
    await begun(stand, max_failures=0)
    await stand.reply("step-1-a1", FAILURE)
    await stand.operations.resume(1, OPERATOR)
    await stand.reply("step-3-a1", SUCCESS)
    assert await stand.value("SELECT held_at FROM batches") is None
    await stand.reply("step-5-a1", FAILURE)
    assert await stand.value("SELECT held_at FROM batches") is not None


async def test_max_failures_held_batch_can_be_cancelled(stand: Stand) -> None:
    await begun(stand, max_failures=0)
    await stand.reply("step-1-a1", FAILURE)
    await stand.operations.cancel(1, "enough", OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert (await stand.phases(), await stand.batch_status()) == ({"one": "failed", "two": "skipped"}, "failed")
    with pytest.raises(CallerError, match="is not held"):
        await stand.operations.resume(1, OPERATOR)


async def test_max_failures_as_a_percentage_is_of_the_members_at_dispatch(stand: Stand) -> None:
    await begun(stand, max_failures="20%", members=TEN)
    await stand.operations.add_members(1, csv([f"late{number}" for number in range(10)]), OPERATOR)
    await stand.handle_events()
    for number in (1, 3):
        await stand.reply(f"step-{number}-a1", FAILURE)
    assert await stand.value("SELECT held_at FROM batches") is None
    await stand.reply("step-5-a1", FAILURE)
    reason = await stand.value("SELECT hold_reason FROM batches")
    assert reason == "3 of 10 members failed in phase one: more than max_failures allows"


async def test_max_failures_counts_members_and_not_steps_that_were_cancelled(stand: Stand) -> None:
    await begun(stand, "first", "second", "other", max_failures=1)
    await stand.reply("step-1-a1", FAILURE)
    assert (await stand.steps())["a other"] == "cancelled"
    assert await stand.value("SELECT held_at FROM batches") is None


async def test_a_held_last_phase_that_is_resumed_reopens_the_batch(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["first", "second"]}, max_failures=0))
    await stand.batch("moves", ["a", "b"])
    stand.answer = lambda job: FAILURE if job.member == "a" else SUCCESS
    await stand.step()
    assert await stand.batch_status() == "failed"
    await stand.operations.resume(1, OPERATOR)
    assert await stand.batch_status() == "active"
    await stand.settle()
    assert ((await stand.steps())["b second"], await stand.batch_status()) == ("succeeded", "failed")


async def test_a_held_batch_with_nothing_left_to_run_stays_ended_when_it_is_resumed(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["first"]}, max_failures=0))
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: FAILURE
    await stand.step()
    assert (await stand.operations.resume(1, OPERATOR))["steps"] == 0
    assert await stand.batch_status() == "failed"


async def failed_and_left_while_held(stand: Stand) -> None:
    """Of four, `a` breaks the limit; `b` is in flight and fails as well, `c` goes, `d` is well."""
    await begun(stand, max_failures=0, members=("a", "b", "c", "d"))
    await stand.reply("step-1-a1", FAILURE)
    await stand.reply("step-3-a1", FAILURE)
    await stand.reply("step-5-a1", SUCCESS)
    await stand.reply("step-7-a1", SUCCESS)
    await stand.operations.remove(1, ["c"], OPERATOR)
    await stand.handle_events()
    await stand.take_jobs()


async def test_a_resume_runs_nothing_of_members_that_failed_or_left_meanwhile(stand: Stand) -> None:
    await failed_and_left_while_held(stand)
    assert (await stand.operations.resume(1, OPERATOR))["steps"] == 1
    assert [f"{job.member} {job.function}" for job in await stand.take_jobs()] == ["d second"]


async def test_a_retry_of_a_member_that_failed_while_held_brings_it_to_the_end(stand: Stand) -> None:
    await failed_and_left_while_held(stand)
    await stand.operations.resume(1, OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    await stand.operations.retry(1, ["b"], OPERATOR)
    await stand.settle()
    steps = await stand.steps("one")
    assert (steps["b first"], steps["b second"]) == ("succeeded", "succeeded")


async def test_max_failures_holds_a_later_phase_that_has_begun_already_as_well(stand: Stand) -> None:
    """Nobody runs a later phase while its earlier one was stopped; after the resume each goes on in order."""
    patient = [{"name": name, "timeout": "1d"} for name in ("first", "second")]
    await begun(stand, *patient, max_failures=0, progression="independent")
    await stand.step(600)
    assert await stand.phases() == {"one": "dispatched", "two": "dispatched"}
    await stand.reply("step-1-a1", FAILURE)
    await stand.reply("step-3-a1", SUCCESS)
    await stand.reply("step-5-a1", SUCCESS)
    assert await stand.take_jobs() == []
    assert await stand.phases() == {"one": "failed", "two": "failed"}
    await stand.operations.resume(1, OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert [job.function for job in stand.done if job.member == "b"] == ["first", "second", "third"]


# --- max_parallel ----------------------------------------------------------------------------------------------------


async def test_max_parallel_caps_the_steps_in_flight_of_a_batch(stand: Stand) -> None:
    await begun(stand, max_parallel=2, members=TEN)
    assert sorted(stand.waiting) == ["step-1-a1", "step-3-a1"]
    await stand.reply("step-1-a1", SUCCESS)
    assert [job.id for job in await stand.take_jobs()] == ["step-5-a1"]
    most = 0

    def answer(job: Any) -> dict[str, Any]:
        nonlocal most
        most = max(most, len(stand.waiting))
        return SUCCESS

    stand.answer = answer
    await stand.settle()
    assert (most, (await stand.phases())["one"]) == (2, "completed")


async def test_max_parallel_does_not_count_idle_polls(stand: Stand) -> None:
    await begun(stand, {"name": "first", "poll": {"interval": "5m", "timeout": "1d"}}, max_parallel=1)
    await stand.reply("step-1-a1", STILL_POLLING)
    assert [job.id for job in await stand.take_jobs()] == ["step-2-a1"]
    await stand.reply("step-2-a1", STILL_POLLING)
    assert [job.id for job in await stand.take_jobs()] == ["step-3-a1"]
    stand.clock.advance(300)
    await stand.tick()
    await stand.handle_events()
    assert await stand.take_jobs() == []  # The polls that are due wait for the slot.
    await stand.reply("step-3-a1", SUCCESS)
    assert [job.id for job in await stand.take_jobs()] == ["step-1-a2"]


async def test_max_parallel_frees_the_slot_of_a_removed_member_when_its_job_has_come_back(stand: Stand) -> None:
    await begun(stand, max_parallel=1)
    await stand.operations.remove(1, ["a"], OPERATOR)
    await stand.handle_events()
    assert await stand.take_jobs() == []
    await stand.reply("step-1-a1", SUCCESS)
    assert [job.member for job in await stand.take_jobs()] == ["b"]

"""runbooks.md §4: `max_failures`, `max_parallel`, and what the worker's messages look like (§3)."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Stand, csv, runbook, success

from lucius.domain.errors import CallerError
from lucius.runbooks.messages import MessageInvalid, read_result

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


# --- Jobs and results ------------------------------------------------------------------------------------------------


async def test_job_ids_grow_with_every_dispatch_and_are_the_message_ids(stand: Stand) -> None:
    await begun(stand, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    await stand.reply("step-1-a1", FAILURE)
    stand.clock.advance(60)
    await stand.orchestrator.sweep()
    (job,) = await stand.take_jobs()
    assert (job.id, job.message_id, job.body["correlationData"]["kind"]) == ("step-1-a2", "step-1-a2", "step")


async def test_result_of_a_job_that_is_not_the_current_one_changes_nothing(stand: Stand) -> None:
    await begun(stand, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    await stand.reply("step-1-a1", FAILURE)
    stand.clock.advance(60)
    await stand.orchestrator.sweep()
    before = await stand.dict_row("step_executions", 1)
    assert await stand.reply("step-1-a1", SUCCESS) == "STALE"
    assert await stand.reply("step-1-a3", SUCCESS) == "STALE"
    assert await stand.dict_row("step_executions", 1) == before


async def test_result_that_comes_twice_is_a_duplicate_and_changes_nothing(stand: Stand) -> None:
    await begun(stand, members=("a",))
    assert await stand.reply("step-1-a1", success(n=1)) == "APPLIED"
    before = await stand.dict_row("step_executions", 1)
    assert await stand.reply("step-1-a1", success(n=2)) == "DUPLICATE"
    assert await stand.reply("step-1-a1", FAILURE) == "DUPLICATE"
    assert await stand.dict_row("step_executions", 1) == before


async def test_failure_that_comes_twice_uses_one_retry(stand: Stand) -> None:
    await begun(stand, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    assert await stand.reply("step-1-a1", FAILURE) == "APPLIED"
    assert await stand.reply("step-1-a1", FAILURE) == "DUPLICATE"
    assert await stand.value("SELECT retries_used FROM step_executions WHERE id = 1") == 1


@pytest.mark.parametrize("job_id", ["step-99-a1", "init-1-a1", "stap-1-a1", "step-1", "step--a1", "step-1-a1x", "x"])
async def test_result_of_a_job_that_never_was_is_unknown(stand: Stand, job_id: str) -> None:
    await begun(stand, members=("a",))
    assert await stand.reply(job_id, SUCCESS) == "UNKNOWN"
    assert (await stand.steps())["a first"] == "dispatched"


async def test_result_fields_are_read_in_any_letter_case(stand: Stand) -> None:
    await begun(stand, {"name": "first", "poll": {"interval": "5m", "timeout": "1d"}}, members=("a", "b"))
    await stand.reply_on_bus({"JOBID": "step-1-a1", "Status": "success", "RESULT": STILL})
    error = {"Message": "too busy", "ISTHROTTLED": True}
    await stand.reply_on_bus({"jobid": "step-2-a1", "STATUS": "FAILURE", "Error": error})
    assert await stand.steps("one") == {"a first": "polling", "b first": "dispatched"}
    assert await stand.value("SELECT error_message FROM step_executions WHERE id = 2") == "too busy"


async def test_result_that_nobody_can_read_is_a_dead_letter_and_stops_no_other(stand: Stand) -> None:
    await begun(stand, members=("a",))
    await stand.reply_on_bus({"status": "Success"})
    assert isinstance(stand.observer.failures.pop(), MessageInvalid)
    assert [letter.ref.topic for letter in await stand.bus.dead_letters(5)] == ["results"]
    await stand.reply_on_bus({"jobId": "step-1-a1", "status": "Success", "durationMs": 5, "timestamp": "now"})
    assert (await stand.steps())["a first"] == "succeeded"


@pytest.mark.parametrize(
    "content", [[], "x", {"jobId": 7, "status": "Success"}, {"jobId": "step-1-a1", "status": "Ok"}]
)
def test_result_without_a_job_or_a_status_is_refused(content: Any) -> None:
    with pytest.raises(MessageInvalid):
        read_result(content)


async def test_poll_check_of_every_kind_polls_that_kind(stand: Stand) -> None:
    polled = {"poll": {"interval": "5m", "timeout": "1d"}}
    await begun(
        stand,
        {"name": "first", "on_failure": "undo"},
        members=("a", "b"),
        rollbacks={"undo": [{"name": "stop", **polled}]},
        on_member_removed=[{"name": "leave", **polled}],
    )
    await stand.reply("step-1-a1", FAILURE)
    await stand.reply("step-2-a1", SUCCESS)
    await stand.operations.remove(1, ["b"], OPERATOR)
    stand.answer = lambda job: STILL_POLLING
    await stand.settle()
    stand.clock.advance(300)
    await stand.tick()
    checks = {body["kind"]: body for body in await stand.intercept()}
    assert set(checks) == {"rollback", "removal"}
    for body in checks.values():
        await stand.send(body)
    assert sorted(job.id for job in await stand.take_jobs()) == ["removal-2-a2", "rollback-1-a2"]


async def test_output_variables_are_resolved_at_dispatch_and_keep_their_type(stand: Stand) -> None:
    given = {"name": "first", "output_params": {"Size": "size", "Id": "move.id"}}
    wants = {"name": "second", "function": "Move-{{Id}}", "params": {"Size": "{{Size}}", "Text": "{{Size}} of {{Upn}}"}}
    await begun(stand, given, wants, members=("a",))
    await stand.reply("step-1-a1", success(size=7, move={"id": "m1"}))
    (job,) = await stand.take_jobs()
    assert (job.function, job.params) == ("Move-m1", {"Size": 7, "Text": "7 of a"})


async def test_an_unknown_variable_fails_the_step_with_a_clear_message_and_is_not_sent(stand: Stand) -> None:
    given = {"name": "first", "output_params": {"Size": "size"}, "retry": {"max_retries": 5, "interval": "1m"}}
    await begun(stand, given, {"name": "second", "params": {"Size": "{{Size}}"}}, members=("a",))
    await stand.reply("step-1-a1", success(other=1))
    assert await stand.take_jobs() == []
    (found,) = await stand.rows("SELECT status, error_message FROM step_executions WHERE step_name = 'second'")
    assert found[0] == "failed"
    assert "unknown variable: {{Size}} at /params/Size" in found[1]

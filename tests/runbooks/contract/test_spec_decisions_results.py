"""runbooks.md §3: jobs, results and poll checks as they travel; templates at dispatch."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Stand, runbook, success

from lucius.runbooks.messages import MessageInvalid, read_result

TEN = tuple("abcdefghij")
STILL = {"Complete": False}


async def begun(stand: Stand, *steps: Any, members: tuple[str, ...] = ("a", "b", "c"), **parts: Any) -> None:
    phases = {"one": steps or ["first", "second"], "two": ["third"]}
    await stand.publish(runbook(phases, offsets={"one": "T-10m"}, **parts))
    await stand.batch("moves", members, starts_in=600)
    stand.answer = lambda job: None
    await stand.step()


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

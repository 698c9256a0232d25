"""runbooks.md §3: jobs, results and poll checks as they travel; templates at dispatch."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Harness, runbook, success

from lucius.runbooks.core.messages import RESULTS_TOPIC, MessageInvalid, read_result

TEN = tuple("abcdefghij")
STILL = {"Complete": False}


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b", "c"), **parts: Any) -> None:
    phases = {"one": steps or ["first", "second"], "two": ["third"]}
    await harness.publish(runbook(phases, offsets={"one": "T-10m"}, **parts))
    await harness.batch("moves", members, starts_in=600)
    harness.answer = lambda job: None
    await harness.step()


async def test_job_ids_grow_with_every_dispatch_and_are_the_message_ids(harness: Harness) -> None:
    await begun(harness, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    await harness.reply("step-1-a1", FAILURE)
    harness.clock.advance(60)
    await harness.orchestrator.sweep()
    (job,) = await harness.take_jobs()
    assert (job.id, job.message_id, job.body["correlationData"]["kind"]) == ("step-1-a2", "step-1-a2", "step")


async def test_result_of_a_job_that_is_not_the_current_one_changes_nothing(harness: Harness) -> None:
    await begun(harness, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    await harness.reply("step-1-a1", FAILURE)
    harness.clock.advance(60)
    await harness.orchestrator.sweep()
    before = await harness.dict_row("step_executions", 1)
    assert await harness.reply("step-1-a1", SUCCESS) == "STALE"
    assert await harness.reply("step-1-a3", SUCCESS) == "STALE"
    assert await harness.dict_row("step_executions", 1) == before


async def test_result_that_comes_twice_is_a_duplicate_and_changes_nothing(harness: Harness) -> None:
    await begun(harness, members=("a",))
    assert await harness.reply("step-1-a1", success(n=1)) == "APPLIED"
    before = await harness.dict_row("step_executions", 1)
    assert await harness.reply("step-1-a1", success(n=2)) == "DUPLICATE"
    assert await harness.reply("step-1-a1", FAILURE) == "DUPLICATE"
    assert await harness.dict_row("step_executions", 1) == before


async def test_failure_that_comes_twice_uses_one_retry(harness: Harness) -> None:
    await begun(harness, {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}}, members=("a",))
    assert await harness.reply("step-1-a1", FAILURE) == "APPLIED"
    assert await harness.reply("step-1-a1", FAILURE) == "DUPLICATE"
    assert await harness.value("SELECT retries_used FROM step_executions WHERE id = 1") == 1


@pytest.mark.parametrize("job_id", ["step-99-a1", "init-1-a1", "stap-1-a1", "step-1", "step--a1", "step-1-a1x", "x"])
async def test_result_of_a_job_that_never_was_is_unknown(harness: Harness, job_id: str) -> None:
    await begun(harness, members=("a",))
    assert await harness.reply(job_id, SUCCESS) == "UNKNOWN"
    assert (await harness.steps())["a first"] == "dispatched"


async def test_result_fields_are_read_in_any_letter_case(harness: Harness) -> None:
    await begun(harness, {"name": "first", "poll": {"interval": "5m", "timeout": "1d"}}, members=("a", "b"))
    await harness.reply_on_bus({"JOBID": "step-1-a1", "Status": "success", "RESULT": STILL})
    error = {"Message": "too busy", "ISTHROTTLED": True}
    await harness.reply_on_bus({"jobid": "step-2-a1", "STATUS": "FAILURE", "Error": error})
    assert await harness.steps("one") == {"a first": "polling", "b first": "dispatched"}
    assert await harness.value("SELECT error_message FROM step_executions WHERE id = 2") == "too busy"


async def test_result_that_nobody_can_read_is_a_dead_letter_and_stops_no_other(harness: Harness) -> None:
    await begun(harness, members=("a",))
    await harness.reply_on_bus({"status": "Success"})
    assert isinstance(harness.observer.failures.pop(), MessageInvalid)
    assert [letter.ref.topic for letter in await harness.bus.dead_letters(5)] == ["results"]
    assert harness.observer.refused == [("results", "MALFORMED")]
    await harness.reply_on_bus({"jobId": "step-1-a1", "status": "Success", "durationMs": 5, "timestamp": "now"})
    assert (await harness.steps())["a first"] == "succeeded"


@pytest.mark.parametrize(
    "content", [[], "x", {"jobId": 7, "status": "Success"}, {"jobId": "step-1-a1", "status": "Ok"}]
)
def test_result_without_a_job_or_a_status_is_refused(content: Any) -> None:
    with pytest.raises(MessageInvalid):
        read_result(content)


async def test_poll_check_of_every_kind_polls_that_kind(harness: Harness) -> None:
    polled = {"poll": {"interval": "5m", "timeout": "1d"}}
    await begun(
        harness,
        {"name": "first", "on_failure": "undo"},
        members=("a", "b"),
        rollbacks={"undo": [{"name": "stop", **polled}]},
        on_member_removed=[{"name": "leave", **polled}],
    )
    await harness.reply("step-1-a1", FAILURE)
    await harness.reply("step-2-a1", SUCCESS)
    await harness.operations.remove(1, ["b"], OPERATOR)
    harness.answer = lambda job: STILL_POLLING
    await harness.settle()
    harness.clock.advance(300)
    await harness.tick()
    checks = {body["kind"]: body for body in await harness.intercept()}
    assert set(checks) == {"rollback", "removal"}
    for body in checks.values():
        await harness.send(body)
    assert sorted(job.id for job in await harness.take_jobs()) == ["removal-2-a2", "rollback-1-a2"]


async def test_output_variables_are_resolved_at_dispatch_and_keep_their_type(harness: Harness) -> None:
    given = {"name": "first", "output_params": {"Size": "size", "Id": "move.id"}}
    wants = {"name": "second", "function": "Move-{{Id}}", "params": {"Size": "{{Size}}", "Text": "{{Size}} of {{Upn}}"}}
    await begun(harness, given, wants, members=("a",))
    await harness.reply("step-1-a1", success(size=7, move={"id": "m1"}))
    (job,) = await harness.take_jobs()
    assert (job.function, job.params) == ("Move-m1", {"Size": 7, "Text": "7 of a"})


async def test_an_unknown_variable_fails_the_step_with_a_clear_message_and_is_not_sent(harness: Harness) -> None:
    given = {"name": "first", "output_params": {"Size": "size"}, "retry": {"max_retries": 5, "interval": "1m"}}
    await begun(harness, given, {"name": "second", "params": {"Size": "{{Size}}"}}, members=("a",))
    await harness.reply("step-1-a1", success(other=1))
    assert await harness.take_jobs() == []
    (found,) = await harness.rows("SELECT status, error_message FROM step_executions WHERE step_name = 'second'")
    assert found[0] == "failed"
    assert "unknown variable: {{Size}} at /params/Size" in found[1]


async def test_a_result_on_the_bus_may_come_without_its_jobs_token(harness: Harness) -> None:
    await begun(harness, members=("a",))
    await harness.reply_on_bus({"jobId": "step-1-a1", **SUCCESS, "correlationData": {"kind": "step"}})
    assert (await harness.steps())["a first"] == "succeeded"


async def test_a_result_on_the_bus_with_a_wrong_token_changes_nothing_and_is_counted(harness: Harness) -> None:
    await begun(harness, members=("a", "b"))
    other = {one.id: one for one in harness.waiting.values()}["step-3-a1"]
    before = await harness.dict_row("step_executions", 1)
    for token in (other.body["correlationData"]["token"], "", 7, "j1.k1.made-up"):
        await harness.reply_on_bus({"jobId": "step-1-a1", **SUCCESS, "correlationData": {"token": token}})
    assert await harness.dict_row("step_executions", 1) == before
    assert harness.observer.answered == ["FORGED"] * 4
    (results,) = [depth for depth in await harness.bus.depths() if depth.topic == RESULTS_TOPIC]
    assert (results.ready, results.locked) == (0, 0), "what was refused is not delivered again"
    await harness.reply_on_bus({"jobId": "step-3-a1", **SUCCESS, "correlationData": other.body["correlationData"]})
    assert harness.observer.answered[-1] == "APPLIED"

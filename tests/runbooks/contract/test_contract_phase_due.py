"""`phase-due`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

from harness import FAILURE, STILL_POLLING, Harness, failure, runbook, success

from lucius.runbooks.core.messages import utc
from lucius.testing.samples import JOB_TOKENS

POLL = {"interval": "5m", "timeout": "1h"}


async def prepared(harness: Harness, *steps: Any, **parts: Any) -> dict[str, Any]:
    """A phase whose steps the scheduler has made; the message that is to be sent instead of its own."""
    await harness.publish(
        runbook({"notify": steps or ["first", "second"], "go": ["move"]}, offsets={"notify": "T-5d"}, **parts)
    )
    await harness.batch("moves", ["a", "b"], starts_in=5 * 86_400)
    await harness.tick()
    assert [body["messageType"] for body in await harness.intercept()] == ["phase-due"]
    return {
        "messageType": "phase-due",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "phaseExecutionId": 1,
        "phaseName": "notify",
        "offsetMinutes": 7200,
        "dueAt": utc(harness.clock.now()),
        "memberIds": [1, 2],
    }


async def step_row(harness: Harness, number: int = 1) -> dict[str, Any]:
    return await harness.dict_row("step_executions", number)


async def test_phase_due_1_reads_the_step_executions_of_the_phase_execution(harness: Harness) -> None:
    message = await prepared(harness)
    await harness.run("UPDATE step_executions SET function_name = 'as the row says' WHERE id = 1")
    await harness.send(message)
    assert [job.function for job in await harness.take_jobs()] == ["as the row says", "first"]


async def test_phase_due_2_goes_through_step_indices_in_order_for_all_members(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    assert sorted(job.member for job in await harness.take_jobs()) == ["a", "b"]
    await harness.reply("step-1-a1", success())
    assert await harness.take_jobs() == []
    assert await harness.steps() == {
        "a first": "succeeded", "a second": "pending", "b first": "dispatched", "b second": "pending",
    }  # fmt: skip
    await harness.reply("step-3-a1", success())
    assert [(job.function, job.member) for job in await harness.take_jobs()] == [("second", "a"), ("second", "b")]


async def test_phase_due_3_handles_each_step_execution(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.settle()
    assert set((await harness.steps()).values()) == {"succeeded"}
    assert harness.functions() == ["first", "first", "second", "second"]


async def test_phase_due_3a_dispatches_worker_id_function_name_and_params_json(harness: Harness) -> None:
    step = {"name": "first", "function": "Send-Mail", "params": {"To": ["{{Upn}}"], "Batch": "{{_batch_id}}"}}
    await harness.send(await prepared(harness, step))
    job = (await harness.take_jobs())[0]
    assert job.properties["WorkerId"] == "pool"
    assert job.body == {
        "jobId": "step-1-a1",
        "batchId": 1,
        "workerId": "pool",
        "functionName": "Send-Mail",
        "parameters": {"To": ["a"], "Batch": 1},
        "correlationData": {
            "kind": "step",
            "stepExecutionId": 1,
            "isInitStep": False,
            "runbookName": "moves",
            "runbookVersion": 1,
            "token": JOB_TOKENS.mint("step-1-a1", "pool", 1),
        },
    }


async def test_phase_due_3b_sets_dispatched_with_its_time_and_the_job_id(harness: Harness) -> None:
    message = await prepared(harness)
    assert (await step_row(harness))["status"] == "pending"
    harness.clock.advance(3)
    await harness.send(message)
    row = await step_row(harness)
    assert (row["status"], row["dispatched_at"], row["job_id"]) == ("dispatched", harness.clock.now(), "step-1-a1")


async def test_phase_due_3c_collects_the_worker_result(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.reply_on_bus({"jobId": "step-1-a1", "status": "Success", "result": {"n": 1}})
    assert (await step_row(harness))["status"] == "succeeded"


async def test_phase_due_3d_stores_the_result_of_a_success_and_when_it_came(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    harness.clock.advance(4)
    await harness.reply("step-1-a1", success(mail="m1"))
    row = await step_row(harness)
    assert (row["status"], row["completed_at"]) == ("succeeded", harness.clock.now())
    assert row["result_json"] == '{"mail":"m1"}'


async def test_phase_due_3e_sets_polling_on_a_polling_response(harness: Harness) -> None:
    await harness.send(await prepared(harness, {"name": "first", "poll": POLL}))
    harness.clock.advance(4)
    await harness.reply("step-1-a1", STILL_POLLING)
    row, now = await step_row(harness), harness.clock.now()
    assert (row["status"], row["poll_started_at"], row["last_polled_at"]) == ("polling", now, now)
    assert row["completed_at"] is None


async def test_phase_due_3f_stores_the_error_of_a_failure(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.reply("step-1-a1", failure("no such mailbox"))
    row = await step_row(harness)
    assert (row["status"], row["error_message"]) == ("failed", "no such mailbox")
    assert await harness.followups() == {}


async def test_phase_due_3f_triggers_the_rollback_where_the_step_has_on_failure(harness: Harness) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await harness.send(await prepared(harness, step, rollbacks={"undo": ["unsend"]}))
    await harness.reply("step-1-a1", FAILURE)
    assert await harness.followups() == {"rollback a unsend": "dispatched"}
    assert "unsend" in [job.function for job in await harness.take_jobs()]


async def test_phase_due_4_completes_the_phase_when_all_step_executions_succeed(harness: Harness) -> None:
    await harness.send(await prepared(harness, "first"))
    await harness.reply("step-1-a1", success())
    assert (await harness.phases())["notify"] == "dispatched"
    harness.clock.advance(5)
    await harness.reply("step-2-a1", success())
    row = await harness.dict_row("phase_executions", 1)
    assert (row["status"], row["completed_at"]) == ("completed", harness.clock.now())


async def test_phase_due_5_fails_the_phase_if_a_step_fails_without_rollback(harness: Harness) -> None:
    await harness.send(await prepared(harness, "first"))
    await harness.reply("step-1-a1", FAILURE)
    assert (await harness.phases())["notify"] == "dispatched"  # It runs to the end for the healthy members.
    await harness.reply("step-2-a1", success())
    assert (await harness.phases())["notify"] == "failed"


async def test_phase_due_5_fails_the_phase_only_after_the_rollback_completes(harness: Harness) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await harness.send(await prepared(harness, step, rollbacks={"undo": ["unsend"]}))
    await harness.reply("step-1-a1", FAILURE)
    await harness.reply("step-2-a1", success())
    assert (await harness.phases())["notify"] == "dispatched"
    await harness.reply("rollback-1-a1", success())
    assert (await harness.phases())["notify"] == "failed"
    assert (await harness.steps())["a first"] == "rolled_back"


async def test_phase_due_6_completes_the_batch_when_all_phases_are_completed(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.settle()
    assert (await harness.phases(), await harness.batch_status()) == (
        {"notify": "completed", "go": "pending"},
        "active",
    )
    await harness.step(5 * 86_400)
    assert (await harness.phases(), await harness.batch_status()) == (
        {"notify": "completed", "go": "completed"},
        "completed",
    )

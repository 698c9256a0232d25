"""`phase-due`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

from stand import FAILURE, STILL_POLLING, Stand, failure, runbook, success

from lucius.runbooks.messages import utc

POLL = {"interval": "5m", "timeout": "1h"}


async def prepared(stand: Stand, *steps: Any, **parts: Any) -> dict[str, Any]:
    """A phase whose steps the scheduler has made; the message that is to be sent instead of its own."""
    await stand.publish(
        runbook({"notify": steps or ["first", "second"], "go": ["move"]}, offsets={"notify": "T-5d"}, **parts)
    )
    await stand.batch("moves", ["a", "b"], starts_in=5 * 86_400)
    await stand.tick()
    assert [body["messageType"] for body in await stand.intercept()] == ["phase-due"]
    return {
        "messageType": "phase-due",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "phaseExecutionId": 1,
        "phaseName": "notify",
        "offsetMinutes": 7200,
        "dueAt": utc(stand.clock.now()),
        "memberIds": [1, 2],
    }


async def step_row(stand: Stand, number: int = 1) -> dict[str, Any]:
    return await stand.dict_row("step_executions", number)


async def test_phase_due_1_reads_the_step_executions_of_the_phase_execution(stand: Stand) -> None:
    message = await prepared(stand)
    await stand.run("UPDATE step_executions SET function_name = 'as the row says' WHERE id = 1")
    await stand.send(message)
    assert [job.function for job in await stand.take_jobs()] == ["as the row says", "first"]


async def test_phase_due_2_goes_through_step_indices_in_order_for_all_members(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    assert sorted(job.member for job in await stand.take_jobs()) == ["a", "b"]
    await stand.reply("step-1-a1", success())
    assert await stand.take_jobs() == []
    assert await stand.steps() == {
        "a first": "succeeded", "a second": "pending", "b first": "dispatched", "b second": "pending",
    }  # fmt: skip
    await stand.reply("step-3-a1", success())
    assert [(job.function, job.member) for job in await stand.take_jobs()] == [("second", "a"), ("second", "b")]


async def test_phase_due_3_handles_each_step_execution(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.settle()
    assert set((await stand.steps()).values()) == {"succeeded"}
    assert stand.functions() == ["first", "first", "second", "second"]


async def test_phase_due_3a_dispatches_worker_id_function_name_and_params_json(stand: Stand) -> None:
    step = {"name": "first", "function": "Send-Mail", "params": {"To": ["{{Upn}}"], "Batch": "{{_batch_id}}"}}
    await stand.send(await prepared(stand, step))
    job = (await stand.take_jobs())[0]
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
        },
    }


async def test_phase_due_3b_sets_dispatched_with_its_time_and_the_job_id(stand: Stand) -> None:
    message = await prepared(stand)
    assert (await step_row(stand))["status"] == "pending"
    stand.clock.advance(3)
    await stand.send(message)
    row = await step_row(stand)
    assert (row["status"], row["dispatched_at"], row["job_id"]) == ("dispatched", stand.clock.now(), "step-1-a1")


async def test_phase_due_3c_collects_the_worker_result(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.reply_on_bus({"jobId": "step-1-a1", "status": "Success", "result": {"n": 1}})
    assert (await step_row(stand))["status"] == "succeeded"


async def test_phase_due_3d_stores_the_result_of_a_success_and_when_it_came(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    stand.clock.advance(4)
    await stand.reply("step-1-a1", success(mail="m1"))
    row = await step_row(stand)
    assert (row["status"], row["completed_at"]) == ("succeeded", stand.clock.now())
    assert row["result_json"] == '{"mail":"m1"}'


async def test_phase_due_3e_sets_polling_on_a_polling_response(stand: Stand) -> None:
    await stand.send(await prepared(stand, {"name": "first", "poll": POLL}))
    stand.clock.advance(4)
    await stand.reply("step-1-a1", STILL_POLLING)
    row, now = await step_row(stand), stand.clock.now()
    assert (row["status"], row["poll_started_at"], row["last_polled_at"]) == ("polling", now, now)
    assert row["completed_at"] is None


async def test_phase_due_3f_stores_the_error_of_a_failure(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.reply("step-1-a1", failure("no such mailbox"))
    row = await step_row(stand)
    assert (row["status"], row["error_message"]) == ("failed", "no such mailbox")
    assert await stand.followups() == {}


async def test_phase_due_3f_triggers_the_rollback_where_the_step_has_on_failure(stand: Stand) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await stand.send(await prepared(stand, step, rollbacks={"undo": ["unsend"]}))
    await stand.reply("step-1-a1", FAILURE)
    assert await stand.followups() == {"rollback a unsend": "dispatched"}
    assert "unsend" in [job.function for job in await stand.take_jobs()]


async def test_phase_due_4_completes_the_phase_when_all_step_executions_succeed(stand: Stand) -> None:
    await stand.send(await prepared(stand, "first"))
    await stand.reply("step-1-a1", success())
    assert (await stand.phases())["notify"] == "dispatched"
    stand.clock.advance(5)
    await stand.reply("step-2-a1", success())
    row = await stand.dict_row("phase_executions", 1)
    assert (row["status"], row["completed_at"]) == ("completed", stand.clock.now())


async def test_phase_due_5_fails_the_phase_if_a_step_fails_without_rollback(stand: Stand) -> None:
    await stand.send(await prepared(stand, "first"))
    await stand.reply("step-1-a1", FAILURE)
    assert (await stand.phases())["notify"] == "dispatched"  # It runs to the end for the healthy members.
    await stand.reply("step-2-a1", success())
    assert (await stand.phases())["notify"] == "failed"


async def test_phase_due_5_fails_the_phase_only_after_the_rollback_completes(stand: Stand) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await stand.send(await prepared(stand, step, rollbacks={"undo": ["unsend"]}))
    await stand.reply("step-1-a1", FAILURE)
    await stand.reply("step-2-a1", success())
    assert (await stand.phases())["notify"] == "dispatched"
    await stand.reply("rollback-1-a1", success())
    assert (await stand.phases())["notify"] == "failed"
    assert (await stand.steps())["a first"] == "rolled_back"


async def test_phase_due_6_completes_the_batch_when_all_phases_are_completed(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.settle()
    assert (await stand.phases(), await stand.batch_status()) == ({"notify": "completed", "go": "pending"}, "active")
    await stand.step(5 * 86_400)
    assert (await stand.phases(), await stand.batch_status()) == (
        {"notify": "completed", "go": "completed"},
        "completed",
    )

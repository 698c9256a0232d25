"""`batch-init`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

from stand import FAILURE, STILL_POLLING, Stand, failure, runbook, success

from lucius.runbooks.messages import utc

PHASES = {"go": ["move"]}
POLL = {"name": "second", "poll": {"interval": "5m", "timeout": "1h"}, "params": {}}


async def prepared(stand: Stand, *init: Any) -> dict[str, Any]:
    """A batch whose `batch-init` waits on the bus; the message that is to be sent instead of it."""
    await stand.publish(runbook(PHASES, init=init or ["first", "second"]))
    await stand.batch("moves", ["a", "b"], starts_in=3600)
    assert [body["messageType"] for body in await stand.intercept()] == ["batch-init"]
    return {
        "messageType": "batch-init",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "batchStartTime": utc(stand.clock.now() + 3_600_000),
        "memberCount": 2,
    }


async def init_row(stand: Stand, number: int = 1) -> dict[str, Any]:
    return await stand.dict_row("init_executions", number)


async def test_batch_init_1_reads_init_executions_of_the_batch_ordered_by_step_index(stand: Stand) -> None:
    message = await prepared(stand)
    # The rows in the other order of ids: what counts is the index.
    await stand.run("UPDATE init_executions SET step_index = step_index + 10")
    await stand.run(
        "UPDATE init_executions SET step_name = CASE step_index WHEN 10 THEN 'second' ELSE 'first' END,"
        " function_name = CASE step_index WHEN 10 THEN 'second' ELSE 'first' END, step_index = 11 - step_index"
    )
    await stand.send(message)
    await stand.settle()
    assert stand.functions() == ["first", "second"]


async def test_batch_init_2_goes_through_the_init_executions_one_after_the_other(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    assert [job.function for job in await stand.take_jobs()] == ["first"]
    assert await stand.init() == ["dispatched", "pending"]
    await stand.reply("init-1-a1", success())
    assert [job.function for job in await stand.take_jobs()] == ["second"]
    assert await stand.init() == ["succeeded", "dispatched"]


async def test_batch_init_2a_dispatches_the_job_to_the_jobs_topic(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    (job,) = await stand.take_jobs()
    assert job.properties["WorkerId"] == "pool"
    assert job.message_id == job.id == "init-1-a1"
    assert job.body == {
        "jobId": "init-1-a1",
        "batchId": 1,
        "workerId": "pool",
        "functionName": "first",
        "parameters": {},
        "correlationData": {
            "kind": "init",
            "stepExecutionId": 1,
            "isInitStep": True,
            "runbookName": "moves",
            "runbookVersion": 1,
        },
    }


async def test_batch_init_2b_sets_dispatched_with_its_time_and_the_job_id(stand: Stand) -> None:
    message = await prepared(stand)
    assert (await init_row(stand))["status"] == "pending"
    stand.clock.advance(7)
    await stand.send(message)
    row = await init_row(stand)
    assert (row["status"], row["dispatched_at"], row["job_id"]) == ("dispatched", stand.clock.now(), "init-1-a1")


async def test_batch_init_2c_waits_for_the_result_on_the_results_topic(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    stand.clock.advance(60)
    await stand.orchestrator.sweep()
    assert await stand.init() == ["dispatched", "pending"]
    await stand.reply_on_bus({"jobId": "init-1-a1", "status": "Success", "result": {}})
    assert await stand.init() == ["succeeded", "dispatched"]


async def test_batch_init_2d_stores_the_result_of_a_success_and_when_it_came(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    stand.clock.advance(9)
    await stand.reply("init-1-a1", success(window="w7"))
    row = await init_row(stand)
    assert (row["status"], row["completed_at"]) == ("succeeded", stand.clock.now())
    assert row["result_json"] == '{"window":"w7"}'


async def test_batch_init_2e_sets_polling_and_the_scheduler_asks_on_the_interval(stand: Stand) -> None:
    await stand.send(await prepared(stand, POLL))
    stand.clock.advance(9)
    await stand.reply("init-1-a1", STILL_POLLING)
    row = await init_row(stand)
    now = stand.clock.now()
    assert (row["status"], row["poll_started_at"], row["last_polled_at"]) == ("polling", now, now)
    stand.clock.advance(299)
    await stand.tick()
    assert await stand.handle_events() == 0
    stand.clock.advance(1)
    await stand.tick()
    assert await stand.handle_events() == 1
    assert [job.id for job in await stand.take_jobs()] == ["init-1-a2"]


async def test_batch_init_2f_stores_the_error_of_a_failure(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.reply("init-1-a1", failure("no window is free"))
    row = await init_row(stand)
    assert (row["status"], row["error_message"]) == ("failed", "no window is free")


async def test_batch_init_3_makes_the_batch_active_when_all_init_steps_succeeded(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    assert await stand.batch_status() == "init_dispatched"
    await stand.reply("init-1-a1", success())
    assert await stand.batch_status() == "init_dispatched"
    await stand.reply("init-2-a1", success())
    assert await stand.batch_status() == "active"


async def test_batch_init_4_makes_the_batch_failed_when_one_failed(stand: Stand) -> None:
    await stand.send(await prepared(stand))
    await stand.reply("init-1-a1", FAILURE)
    assert await stand.batch_status() == "failed"
    assert await stand.take_jobs() == []
    assert await stand.init() == ["failed", "pending"]

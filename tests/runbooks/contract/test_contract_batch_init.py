"""`batch-init`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

from harness import FAILURE, STILL_POLLING, Harness, failure, runbook, success

from lucius.runbooks.core.messages import utc
from lucius.testing.samples import JOB_TOKENS

PHASES = {"go": ["move"]}
POLL = {"name": "second", "poll": {"interval": "5m", "timeout": "1h"}, "params": {}}


async def prepared(harness: Harness, *init: Any) -> dict[str, Any]:
    """A batch whose `batch-init` waits on the bus; the message that is to be sent instead of it."""
    await harness.publish(runbook(PHASES, init=init or ["first", "second"]))
    await harness.batch("moves", ["a", "b"], starts_in=3600)
    assert [body["messageType"] for body in await harness.intercept()] == ["batch-init"]
    return {
        "messageType": "batch-init",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "batchStartTime": utc(harness.clock.now() + 3_600_000),
        "memberCount": 2,
    }


async def init_row(harness: Harness, number: int = 1) -> dict[str, Any]:
    return await harness.dict_row("init_executions", number)


async def test_batch_init_1_reads_init_executions_of_the_batch_ordered_by_step_index(harness: Harness) -> None:
    message = await prepared(harness)
    # The rows in the other order of ids: what counts is the index.
    await harness.run("UPDATE init_executions SET step_index = step_index + 10")
    await harness.run(
        "UPDATE init_executions SET step_name = CASE step_index WHEN 10 THEN 'second' ELSE 'first' END,"
        " function_name = CASE step_index WHEN 10 THEN 'second' ELSE 'first' END, step_index = 11 - step_index"
    )
    await harness.send(message)
    await harness.settle()
    assert harness.functions() == ["first", "second"]


async def test_batch_init_2_goes_through_the_init_executions_one_after_the_other(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    assert [job.function for job in await harness.take_jobs()] == ["first"]
    assert await harness.init() == ["dispatched", "pending"]
    await harness.reply("init-1-a1", success())
    assert [job.function for job in await harness.take_jobs()] == ["second"]
    assert await harness.init() == ["succeeded", "dispatched"]


async def test_batch_init_2a_dispatches_the_job_to_the_jobs_topic(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    (job,) = await harness.take_jobs()
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
            "token": JOB_TOKENS.mint("init-1-a1", "pool", 1),
        },
    }


async def test_batch_init_2b_sets_dispatched_with_its_time_and_the_job_id(harness: Harness) -> None:
    message = await prepared(harness)
    assert (await init_row(harness))["status"] == "pending"
    harness.clock.advance(7)
    await harness.send(message)
    row = await init_row(harness)
    assert (row["status"], row["dispatched_at"], row["job_id"]) == ("dispatched", harness.clock.now(), "init-1-a1")


async def test_batch_init_2c_waits_for_the_result_on_the_results_topic(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    harness.clock.advance(60)
    await harness.orchestrator.sweep()
    assert await harness.init() == ["dispatched", "pending"]
    await harness.reply_on_bus({"jobId": "init-1-a1", "status": "Success", "result": {}})
    assert await harness.init() == ["succeeded", "dispatched"]


async def test_batch_init_2d_stores_the_result_of_a_success_and_when_it_came(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    harness.clock.advance(9)
    await harness.reply("init-1-a1", success(window="w7"))
    row = await init_row(harness)
    assert (row["status"], row["completed_at"]) == ("succeeded", harness.clock.now())
    assert row["result_json"] == '{"window":"w7"}'


async def test_batch_init_2e_sets_polling_and_the_scheduler_asks_on_the_interval(harness: Harness) -> None:
    await harness.send(await prepared(harness, POLL))
    harness.clock.advance(9)
    await harness.reply("init-1-a1", STILL_POLLING)
    row = await init_row(harness)
    now = harness.clock.now()
    assert (row["status"], row["poll_started_at"], row["last_polled_at"]) == ("polling", now, now)
    harness.clock.advance(299)
    await harness.tick()
    assert await harness.handle_events() == 0
    harness.clock.advance(1)
    await harness.tick()
    assert await harness.handle_events() == 1
    assert [job.id for job in await harness.take_jobs()] == ["init-1-a2"]


async def test_batch_init_2f_stores_the_error_of_a_failure(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.reply("init-1-a1", failure("no window is free"))
    row = await init_row(harness)
    assert (row["status"], row["error_message"]) == ("failed", "no window is free")


async def test_batch_init_3_makes_the_batch_active_when_all_init_steps_succeeded(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    assert await harness.batch_status() == "init_dispatched"
    await harness.reply("init-1-a1", success())
    assert await harness.batch_status() == "init_dispatched"
    await harness.reply("init-2-a1", success())
    assert await harness.batch_status() == "active"


async def test_batch_init_4_makes_the_batch_failed_when_one_failed(harness: Harness) -> None:
    await harness.send(await prepared(harness))
    await harness.reply("init-1-a1", FAILURE)
    assert await harness.batch_status() == "failed"
    assert await harness.take_jobs() == []
    assert await harness.init() == ["failed", "pending"]

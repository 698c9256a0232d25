"""`member-removed`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

from harness import OPERATOR, STILL_POLLING, Harness, runbook, success

POLLED = {"name": "polled", "poll": {"interval": "5m", "timeout": "1h"}}
REMOVAL = [{"name": "leave", "params": {"Upn": "{{Upn}}", "Start": "{{_batch_start_time}}"}}, "forget"]


async def leaving(harness: Harness, *steps: Any, **parts: Any) -> dict[str, Any]:
    """`a` was marked as removed; its message was not handled yet."""
    await harness.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await harness.batch("moves", ["a", "b"])
    await harness.tick()
    await harness.handle_events()
    await harness.take_jobs()
    await harness.operations.remove(1, ["a"], OPERATOR)
    assert len(await harness.intercept()) == 1
    return {
        "messageType": "member-removed",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "batchMemberId": 1,
        "memberKey": "a",
    }


async def test_member_removed_1_cancels_pending_and_dispatched_steps_of_this_member(harness: Harness) -> None:
    message = await leaving(harness)
    assert await harness.steps() == {
        "a first": "dispatched", "a second": "pending", "b first": "dispatched", "b second": "pending",
    }  # fmt: skip
    await harness.send(message)
    assert await harness.steps() == {
        "a first": "cancelled", "a second": "cancelled", "b first": "dispatched", "b second": "pending",
    }  # fmt: skip


async def test_member_removed_1_cancels_polling_steps_as_well(harness: Harness) -> None:
    message = await leaving(harness, POLLED)
    await harness.reply("step-1-a1", STILL_POLLING)
    await harness.send(message)
    assert (await harness.steps())["a polled"] == "cancelled"


async def test_member_removed_2_looks_for_on_member_removed_in_the_yaml(harness: Harness) -> None:
    await harness.send(await leaving(harness))
    assert await harness.followups() == {}


async def test_member_removed_3_runs_on_member_removed_where_there_is_one(harness: Harness) -> None:
    await harness.send(await leaving(harness, on_member_removed=REMOVAL))
    assert await harness.followups() == {"removal a leave": "pending", "removal a forget": "pending"}
    await harness.settle()
    assert await harness.followups() == {"removal a leave": "succeeded", "removal a forget": "succeeded"}


async def test_member_removed_3a_loads_the_member_data_from_the_dynamic_table(harness: Harness) -> None:
    message = await leaving(harness, on_member_removed=REMOVAL)
    await harness.run("UPDATE runbook_moves_v1 SET \"Upn\" = 'last known', _is_current = FALSE WHERE _member_key = 'a'")
    await harness.send(message)
    await harness.settle()
    (job,) = [job for job in harness.done if job.function == "leave"]
    assert job.params["Upn"] == "last known"


async def test_member_removed_3b_resolves_templates_in_the_step_params(harness: Harness) -> None:
    await harness.send(await leaving(harness, on_member_removed=REMOVAL))
    made = await harness.value("SELECT params_json FROM followup_executions WHERE step_name = 'leave'")
    assert made == '{"Upn":"a","Start":"2026-05-28T20:26:40Z"}'


async def test_member_removed_3c_dispatches_the_removal_steps_in_order(harness: Harness) -> None:
    await harness.send(await leaving(harness, on_member_removed=REMOVAL))
    await harness.reply("step-1-a1", success())
    (job,) = await harness.take_jobs()
    assert (job.id, job.function, job.body["correlationData"]["kind"]) == ("removal-1-a1", "leave", "removal")
    await harness.reply(job, success())
    assert [job.id for job in await harness.take_jobs()] == ["removal-2-a1"]


async def test_member_removed_4_finds_the_member_marked_as_removed_by_the_scheduler(harness: Harness) -> None:
    message = await leaving(harness)
    before = await harness.dict_row("batch_members", 1)
    now = harness.clock.now()
    assert (before["status"], before["removed_at"], before["remove_dispatched_at"]) == ("removed", now, now)
    await harness.send(message)
    assert await harness.dict_row("batch_members", 1) == before | {"remove_handled_at": now}

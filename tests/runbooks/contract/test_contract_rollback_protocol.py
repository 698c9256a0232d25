"""The rollback protocol of the contract, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, STILL_POLLING, Harness, runbook, success

STEP = {"name": "move", "on_failure": "undo", "poll": {"interval": "5m", "timeout": "1h"}}
UNDO = [
    {"name": "stop", "params": {"Upn": "{{Upn}}", "Batch": "{{_batch_id}}", "Start": "{{_batch_start_time}}"}},
    "tell",
]


async def dispatched(harness: Harness, step: Any = STEP) -> None:
    await harness.publish(runbook({"go": [step, "verify"]}, rollbacks={"undo": UNDO, "other": ["wrong"]}))
    await harness.batch("moves", ["a"])
    await harness.tick()
    await harness.handle_events()
    await harness.take_jobs()


async def status(harness: Harness) -> str:
    return (await harness.steps())["a move"]


async def test_rollback_protocol_1_begins_when_the_worker_returns_an_error(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", FAILURE)
    assert (await status(harness), len(await harness.followups())) == ("failed", 2)


async def test_rollback_protocol_1_begins_when_a_poll_times_out(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.clock.advance(3_601)
    await harness.orchestrator.sweep()
    assert (await status(harness), len(await harness.followups())) == ("poll_timeout", 2)


async def test_rollback_protocol_2_the_field_on_failure_of_the_definition_decides(harness: Harness) -> None:
    await dispatched(harness, {**STEP, "on_failure": "other"})
    await harness.reply("step-1-a1", FAILURE)
    assert await harness.followups() == {"rollback a wrong": "dispatched"}


async def test_rollback_protocol_3_runs_where_on_failure_is_set(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", FAILURE)
    await harness.settle()
    assert harness.functions() == ["move", "stop", "tell"]


async def test_rollback_protocol_3a_reads_yaml_content_from_the_runbooks_table(harness: Harness) -> None:
    await dispatched(harness)
    harness.turns.definitions._cache.clear()
    await harness.run("UPDATE runbooks SET yaml_content = replace(yaml_content, '\"tell\"', '\"say\"')")
    await harness.reply("step-1-a1", FAILURE)
    assert set(await harness.followups()) == {"rollback a stop", "rollback a say"}


async def test_rollback_protocol_3b_looks_up_the_list_of_that_name(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", FAILURE)
    rows = await harness.rows(
        "SELECT kind, list_name, step_name, step_index, parent_id FROM followup_executions ORDER BY id"
    )
    assert rows == [("rollback", "undo", "stop", 0, 1), ("rollback", "undo", "tell", 1, 1)]


async def test_rollback_protocol_3c_loads_the_member_data_from_the_dynamic_data_table(harness: Harness) -> None:
    await dispatched(harness)
    await harness.run("UPDATE runbook_moves_v1 SET \"Upn\" = 'A@contoso.com' WHERE _member_key = 'a'")
    await harness.reply("step-1-a1", FAILURE)
    assert (await harness.take_jobs())[0].params["Upn"] == "A@contoso.com"


async def test_rollback_protocol_3d_resolves_member_data_batch_id_and_batch_start_time(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", FAILURE)
    (job,) = await harness.take_jobs()
    assert job.params == {"Upn": "a", "Batch": 1, "Start": "2026-05-28T20:26:40Z"}


async def test_rollback_protocol_3e_dispatches_the_rollback_steps_in_order(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", FAILURE)
    (job,) = await harness.take_jobs()
    assert (job.id, job.function, job.body["correlationData"]["kind"]) == ("rollback-1-a1", "stop", "rollback")
    await harness.reply(job, success())
    assert [job.id for job in await harness.take_jobs()] == ["rollback-2-a1"]


@pytest.mark.parametrize("polled", [False, True])
async def test_rollback_protocol_3f_sets_rolled_back_after_the_rollback_completes(
    harness: Harness, polled: bool
) -> None:
    await dispatched(harness)
    if polled:
        await harness.reply("step-1-a1", STILL_POLLING)
        harness.clock.advance(3_601)
        await harness.orchestrator.sweep()
    else:
        await harness.reply("step-1-a1", FAILURE)
    await harness.reply("rollback-1-a1", success())
    assert await status(harness) == ("poll_timeout" if polled else "failed")
    await harness.reply("rollback-2-a1", success())
    assert await status(harness) == "rolled_back"


async def test_rollback_protocol_4_the_step_remains_failed_without_on_failure(harness: Harness) -> None:
    await dispatched(harness, "move")
    await harness.reply("step-1-a1", FAILURE)
    await harness.settle()
    assert (await status(harness), await harness.followups()) == ("failed", {})

"""The rollback protocol of the contract, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, STILL_POLLING, Stand, runbook, success

STEP = {"name": "move", "on_failure": "undo", "poll": {"interval": "5m", "timeout": "1h"}}
UNDO = [
    {"name": "stop", "params": {"Upn": "{{Upn}}", "Batch": "{{_batch_id}}", "Start": "{{_batch_start_time}}"}},
    "tell",
]


async def dispatched(stand: Stand, step: Any = STEP) -> None:
    await stand.publish(runbook({"go": [step, "verify"]}, rollbacks={"undo": UNDO, "other": ["wrong"]}))
    await stand.batch("moves", ["a"])
    await stand.tick()
    await stand.handle_events()
    await stand.take_jobs()


async def status(stand: Stand) -> str:
    return (await stand.steps())["a move"]


async def test_rollback_protocol_1_begins_when_the_worker_returns_an_error(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", FAILURE)
    assert (await status(stand), len(await stand.followups())) == ("failed", 2)


async def test_rollback_protocol_1_begins_when_a_poll_times_out(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.clock.advance(3_601)
    await stand.orchestrator.sweep()
    assert (await status(stand), len(await stand.followups())) == ("poll_timeout", 2)


async def test_rollback_protocol_2_the_field_on_failure_of_the_definition_decides(stand: Stand) -> None:
    await dispatched(stand, {**STEP, "on_failure": "other"})
    await stand.reply("step-1-a1", FAILURE)
    assert await stand.followups() == {"rollback a wrong": "dispatched"}


async def test_rollback_protocol_3_runs_where_on_failure_is_set(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", FAILURE)
    await stand.settle()
    assert stand.functions() == ["move", "stop", "tell"]


async def test_rollback_protocol_3a_reads_yaml_content_from_the_runbooks_table(stand: Stand) -> None:
    await dispatched(stand)
    stand.turns.definitions._kept.clear()
    await stand.run("UPDATE runbooks SET yaml_content = replace(yaml_content, '\"tell\"', '\"say\"')")
    await stand.reply("step-1-a1", FAILURE)
    assert set(await stand.followups()) == {"rollback a stop", "rollback a say"}


async def test_rollback_protocol_3b_looks_up_the_list_of_that_name(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", FAILURE)
    rows = await stand.rows(
        "SELECT kind, list_name, step_name, step_index, parent_id FROM followup_executions ORDER BY id"
    )
    assert rows == [("rollback", "undo", "stop", 0, 1), ("rollback", "undo", "tell", 1, 1)]


async def test_rollback_protocol_3c_loads_the_member_data_from_the_dynamic_data_table(stand: Stand) -> None:
    await dispatched(stand)
    await stand.run("UPDATE runbook_moves_v1 SET \"Upn\" = 'A@contoso.com' WHERE _member_key = 'a'")
    await stand.reply("step-1-a1", FAILURE)
    assert (await stand.take_jobs())[0].params["Upn"] == "A@contoso.com"


async def test_rollback_protocol_3d_resolves_member_data_batch_id_and_batch_start_time(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", FAILURE)
    (job,) = await stand.take_jobs()
    assert job.params == {"Upn": "a", "Batch": 1, "Start": "2026-05-28T20:26:40Z"}


async def test_rollback_protocol_3e_dispatches_the_rollback_steps_in_order(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", FAILURE)
    (job,) = await stand.take_jobs()
    assert (job.id, job.function, job.body["correlationData"]["kind"]) == ("rollback-1-a1", "stop", "rollback")
    await stand.reply(job, success())
    assert [job.id for job in await stand.take_jobs()] == ["rollback-2-a1"]


@pytest.mark.parametrize("polled", [False, True])
async def test_rollback_protocol_3f_sets_rolled_back_after_the_rollback_completes(stand: Stand, polled: bool) -> None:
    await dispatched(stand)
    if polled:
        await stand.reply("step-1-a1", STILL_POLLING)
        stand.clock.advance(3_601)
        await stand.orchestrator.sweep()
    else:
        await stand.reply("step-1-a1", FAILURE)
    await stand.reply("rollback-1-a1", success())
    assert await status(stand) == ("poll_timeout" if polled else "failed")
    await stand.reply("rollback-2-a1", success())
    assert await status(stand) == "rolled_back"


async def test_rollback_protocol_4_the_step_remains_failed_without_on_failure(stand: Stand) -> None:
    await dispatched(stand, "move")
    await stand.reply("step-1-a1", FAILURE)
    await stand.settle()
    assert (await status(stand), await stand.followups()) == ("failed", {})

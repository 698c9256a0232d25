"""`member-added`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

import pytest
from harness import OPERATOR, Harness, csv, runbook, success

STEPS = [{"name": "first", "params": {"Upn": "{{Upn}}", "Batch": "{{_batch_id}}"}}, "second"]


async def begun(harness: Harness) -> dict[str, Any]:
    """The first phase is done, the second under way, the third to come; `c` has joined, unbeknown to all."""
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    await harness.publish(runbook({"one": STEPS, "two": ["third"], "three": ["last"]}, offsets=offsets))
    await harness.batch("moves", ["a", "b"], starts_in=7_200)
    await harness.step()
    harness.answer = lambda job: None
    await harness.step(3_600)
    assert await harness.phases() == {"one": "completed", "two": "dispatched", "three": "pending"}
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    assert len(await harness.intercept()) == 1
    return {
        "messageType": "member-added",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "batchMemberId": 3,
        "memberKey": "c",
    }


async def steps_of(harness: Harness, member: str = "c") -> dict[str, str]:
    return {name: status for name, status in (await harness.steps()).items() if name.startswith(f"{member} ")}


async def test_member_added_1_loads_the_yaml_of_the_runbook_and_version(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await begun(harness)
    harness.turns.definitions._cache.clear()
    asked = []
    real = harness.turns.definitions.get

    def seen(name: str, version: int) -> Any:
        asked.append((name, version))
        return real(name, version)

    monkeypatch.setattr(harness.turns.definitions, "get", seen)
    await harness.send(message)
    assert set(asked) == {("moves", 1)}


async def test_member_added_2_takes_the_phase_definitions_from_the_yaml(harness: Harness) -> None:
    await harness.send(await begun(harness))
    assert set(await steps_of(harness)) == {"c first", "c second", "c third"}


async def test_member_added_3_loads_all_phase_executions_of_the_batch(harness: Harness) -> None:
    await harness.send(await begun(harness))
    rows = await harness.rows(
        "SELECT p.phase_name, s.step_index FROM step_executions s JOIN phase_executions p"
        " ON p.id = s.phase_execution_id WHERE s.batch_member_id = 3 ORDER BY s.id"
    )
    assert rows == [("one", 0), ("one", 1), ("two", 0)]


async def test_member_added_4_takes_every_phase_already_dispatched_or_completed(harness: Harness) -> None:
    await harness.send(await begun(harness))
    harness.answer = lambda job: success()
    await harness.settle()
    assert await steps_of(harness) == {"c first": "succeeded", "c second": "succeeded", "c third": "succeeded"}


async def test_member_added_4a_loads_the_data_row_from_the_dynamic_data_table(harness: Harness) -> None:
    message = await begun(harness)
    await harness.run("UPDATE runbook_moves_v1 SET \"Upn\" = 'C@contoso.com' WHERE _member_key = 'c'")
    await harness.send(message)
    assert (await harness.take_jobs())[-1].params["Upn"] == "C@contoso.com"


async def test_member_added_4b_resolves_templates_against_the_member_data(harness: Harness) -> None:
    await harness.send(await begun(harness))
    made = await harness.value(
        "SELECT params_json FROM step_executions WHERE batch_member_id = 3 AND step_name = 'first'"
    )
    assert made == '{"Upn":"c","Batch":1}'


async def test_member_added_4c_inserts_step_executions_for_this_member(harness: Harness) -> None:
    message = await begun(harness)
    assert await steps_of(harness) == {}
    await harness.send(message)
    assert await steps_of(harness) == {"c first": "dispatched", "c second": "pending", "c third": "pending"}


async def test_member_added_4d_dispatches_the_jobs_to_the_worker(harness: Harness) -> None:
    message = await begun(harness)
    await harness.take_jobs()
    await harness.send(message)
    assert [(job.function, job.member) for job in await harness.take_jobs()] == [("first", "c")]
    await harness.reply_all("first")
    assert [(job.function, job.member) for job in await harness.take_jobs()] == [("second", "c")]


async def test_member_added_5_leaves_future_phases_to_the_scheduler(harness: Harness) -> None:
    await harness.send(await begun(harness))
    assert "c last" not in await harness.steps()
    harness.answer = lambda job: success()
    await harness.settle()
    await harness.step(3_600)
    assert (await harness.steps())["c last"] == "succeeded"
    assert await harness.batch_status() == "completed"

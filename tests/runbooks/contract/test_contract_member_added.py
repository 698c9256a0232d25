"""`member-added`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

import pytest
from stand import OPERATOR, Stand, csv, runbook, success

STEPS = [{"name": "first", "params": {"Upn": "{{Upn}}", "Batch": "{{_batch_id}}"}}, "second"]


async def begun(stand: Stand) -> dict[str, Any]:
    """The first phase is done, the second under way, the third to come; `c` has joined, unbeknown to all."""
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    await stand.publish(runbook({"one": STEPS, "two": ["third"], "three": ["last"]}, offsets=offsets))
    await stand.batch("moves", ["a", "b"], starts_in=7_200)
    await stand.step()
    stand.answer = lambda job: None
    await stand.step(3_600)
    assert await stand.phases() == {"one": "completed", "two": "dispatched", "three": "pending"}
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    assert len(await stand.intercept()) == 1
    return {
        "messageType": "member-added",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "batchMemberId": 3,
        "memberKey": "c",
    }


async def steps_of(stand: Stand, member: str = "c") -> dict[str, str]:
    return {name: status for name, status in (await stand.steps()).items() if name.startswith(f"{member} ")}


async def test_member_added_1_loads_the_yaml_of_the_runbook_and_version(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await begun(stand)
    stand.turns.definitions._kept.clear()
    asked = []
    real = stand.turns.definitions.get

    def seen(name: str, version: int) -> Any:
        asked.append((name, version))
        return real(name, version)

    monkeypatch.setattr(stand.turns.definitions, "get", seen)
    await stand.send(message)
    assert set(asked) == {("moves", 1)}


async def test_member_added_2_takes_the_phase_definitions_from_the_yaml(stand: Stand) -> None:
    await stand.send(await begun(stand))
    assert set(await steps_of(stand)) == {"c first", "c second", "c third"}


async def test_member_added_3_loads_all_phase_executions_of_the_batch(stand: Stand) -> None:
    await stand.send(await begun(stand))
    rows = await stand.rows(
        "SELECT p.phase_name, s.step_index FROM step_executions s JOIN phase_executions p"
        " ON p.id = s.phase_execution_id WHERE s.batch_member_id = 3 ORDER BY s.id"
    )
    assert rows == [("one", 0), ("one", 1), ("two", 0)]


async def test_member_added_4_takes_every_phase_already_dispatched_or_completed(stand: Stand) -> None:
    await stand.send(await begun(stand))
    stand.answer = lambda job: success()
    await stand.settle()
    assert await steps_of(stand) == {"c first": "succeeded", "c second": "succeeded", "c third": "succeeded"}


async def test_member_added_4a_loads_the_data_row_from_the_dynamic_data_table(stand: Stand) -> None:
    message = await begun(stand)
    await stand.run("UPDATE runbook_moves_v1 SET \"Upn\" = 'C@contoso.com' WHERE _member_key = 'c'")
    await stand.send(message)
    assert (await stand.take_jobs())[-1].params["Upn"] == "C@contoso.com"


async def test_member_added_4b_resolves_templates_against_the_member_data(stand: Stand) -> None:
    await stand.send(await begun(stand))
    made = await stand.value(
        "SELECT params_json FROM step_executions WHERE batch_member_id = 3 AND step_name = 'first'"
    )
    assert made == '{"Upn":"c","Batch":1}'


async def test_member_added_4c_inserts_step_executions_for_this_member(stand: Stand) -> None:
    message = await begun(stand)
    assert await steps_of(stand) == {}
    await stand.send(message)
    assert await steps_of(stand) == {"c first": "dispatched", "c second": "pending", "c third": "pending"}


async def test_member_added_4d_dispatches_the_jobs_to_the_worker(stand: Stand) -> None:
    message = await begun(stand)
    await stand.take_jobs()
    await stand.send(message)
    assert [(job.function, job.member) for job in await stand.take_jobs()] == [("first", "c")]
    await stand.reply_all("first")
    assert [(job.function, job.member) for job in await stand.take_jobs()] == [("second", "c")]


async def test_member_added_5_leaves_future_phases_to_the_scheduler(stand: Stand) -> None:
    await stand.send(await begun(stand))
    assert "c last" not in await stand.steps()
    stand.answer = lambda job: success()
    await stand.settle()
    await stand.step(3_600)
    assert (await stand.steps())["c last"] == "succeeded"
    assert await stand.batch_status() == "completed"

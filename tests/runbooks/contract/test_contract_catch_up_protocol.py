"""The member catch-up protocol of the contract, sentence by sentence."""

from __future__ import annotations

import json

from stand import FAILURE, OPERATOR, Stand, csv, runbook, success


async def begun(stand: Stand) -> None:
    """One phase completed, one dispatched, one pending; `c` joins."""
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    await stand.publish(runbook({"one": ["first", "second"], "two": ["third"], "three": ["last"]}, offsets=offsets))
    await stand.batch("moves", ["a"], starts_in=7_200)
    await stand.step()
    stand.answer = lambda job: None
    await stand.step(3_600)
    assert await stand.phases() == {"one": "completed", "two": "dispatched", "three": "pending"}
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)


async def test_catch_up_protocol_1_loads_the_runbook_yaml(stand: Stand) -> None:
    await begun(stand)
    stand.turns.definitions._kept.clear()
    await stand.run("UPDATE runbooks SET yaml_content = replace(yaml_content, '\"second\"', '\"other\"')")
    await stand.handle_events()
    assert {"c first", "c other", "c third"} <= set(await stand.steps())


async def test_catch_up_protocol_2_takes_phases_that_are_dispatched_or_completed(stand: Stand) -> None:
    await begun(stand)
    await stand.handle_events()
    assert [name for name in await stand.steps() if name.startswith("c ")] == ["c first", "c second", "c third"]


async def test_catch_up_protocol_3a_loads_the_data_by_member_key(stand: Stand) -> None:
    await begun(stand)
    key, current = (await stand.rows("SELECT _member_key, _is_current FROM runbook_moves_v1 WHERE \"Upn\" = 'c'"))[0]
    assert (key, current) == ("c", 1)
    await stand.handle_events()
    assert (await stand.take_jobs())[-1].member == "c"


async def test_catch_up_protocol_3b_resolves_the_templates_of_each_step(stand: Stand) -> None:
    await begun(stand)
    await stand.handle_events()
    made = await stand.rows("SELECT params_json FROM step_executions WHERE batch_member_id = 2")
    assert [json.loads(row[0]) for row in made] == [{"Upn": "c"}] * 3


async def test_catch_up_protocol_3c_inserts_step_executions_rows(stand: Stand) -> None:
    await begun(stand)
    count = "SELECT COUNT(*) FROM step_executions WHERE batch_member_id = 2"
    assert await stand.value(count) == 0
    await stand.handle_events()
    assert await stand.value(count) == 3


async def test_catch_up_protocol_3d_dispatches_the_steps(stand: Stand) -> None:
    await begun(stand)
    stand.answer = lambda job: success()
    await stand.settle()
    assert [job.function for job in stand.done if job.member == "c"] == ["first", "second", "third"]
    assert (await stand.phases())["one"] == "completed"


async def test_catch_up_protocol_4_future_phases_include_the_member_when_they_are_dispatched(stand: Stand) -> None:
    await begun(stand)
    stand.answer = lambda job: success()
    await stand.settle()
    stand.clock.advance(3_600)
    await stand.tick()
    (due,) = await stand.intercept()
    assert (due["phaseName"], due["memberIds"]) == ("three", [1, 2])
    assert (await stand.steps())["c last"] == "pending"


async def test_catch_up_protocol_brings_nobody_into_a_failed_members_work(stand: Stand) -> None:
    """A late joiner's failure is its own: the others' steps stay as they were."""
    await begun(stand)
    stand.answer = lambda job: FAILURE if job.member == "c" else success()
    await stand.settle()
    assert await stand.steps() == {
        "a first": "succeeded", "a second": "succeeded", "a third": "succeeded",
        "c first": "failed", "c second": "cancelled", "c third": "cancelled",
    }  # fmt: skip

"""The member catch-up protocol of the contract, sentence by sentence."""

from __future__ import annotations

import json

from harness import FAILURE, OPERATOR, Harness, csv, runbook, success


async def begun(harness: Harness) -> None:
    """One phase completed, one dispatched, one pending; `c` joins."""
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    await harness.publish(runbook({"one": ["first", "second"], "two": ["third"], "three": ["last"]}, offsets=offsets))
    await harness.batch("moves", ["a"], starts_in=7_200)
    await harness.step()
    harness.answer = lambda job: None
    await harness.step(3_600)
    assert await harness.phases() == {"one": "completed", "two": "dispatched", "three": "pending"}
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)


async def test_catch_up_protocol_1_loads_the_runbook_yaml(harness: Harness) -> None:
    await begun(harness)
    harness.turns.definitions._cache.clear()
    await harness.run("UPDATE runbooks SET yaml_content = replace(yaml_content, '\"second\"', '\"other\"')")
    await harness.handle_events()
    assert {"c first", "c other", "c third"} <= set(await harness.steps())


async def test_catch_up_protocol_2_takes_phases_that_are_dispatched_or_completed(harness: Harness) -> None:
    await begun(harness)
    await harness.handle_events()
    assert [name for name in await harness.steps() if name.startswith("c ")] == ["c first", "c second", "c third"]


async def test_catch_up_protocol_3a_loads_the_data_by_member_key(harness: Harness) -> None:
    await begun(harness)
    key, current = (await harness.rows("SELECT _member_key, _is_current FROM runbook_moves_v1 WHERE \"Upn\" = 'c'"))[0]
    assert (key, current) == ("c", 1)
    await harness.handle_events()
    assert (await harness.take_jobs())[-1].member == "c"


async def test_catch_up_protocol_3b_resolves_the_templates_of_each_step(harness: Harness) -> None:
    await begun(harness)
    await harness.handle_events()
    made = await harness.rows("SELECT params_json FROM step_executions WHERE batch_member_id = 2")
    assert [json.loads(row[0]) for row in made] == [{"Upn": "c"}] * 3


async def test_catch_up_protocol_3c_inserts_step_executions_rows(harness: Harness) -> None:
    await begun(harness)
    count = "SELECT COUNT(*) FROM step_executions WHERE batch_member_id = 2"
    assert await harness.value(count) == 0
    await harness.handle_events()
    assert await harness.value(count) == 3


async def test_catch_up_protocol_3d_dispatches_the_steps(harness: Harness) -> None:
    await begun(harness)
    harness.answer = lambda job: success()
    await harness.settle()
    assert [job.function for job in harness.done if job.member == "c"] == ["first", "second", "third"]
    assert (await harness.phases())["one"] == "completed"


async def test_catch_up_protocol_4_future_phases_include_the_member_when_they_are_dispatched(harness: Harness) -> None:
    await begun(harness)
    harness.answer = lambda job: success()
    await harness.settle()
    harness.clock.advance(3_600)
    await harness.tick()
    (due,) = await harness.intercept()
    assert (due["phaseName"], due["memberIds"]) == ("three", [1, 2])
    assert (await harness.steps())["c last"] == "pending"


async def test_catch_up_protocol_brings_nobody_into_a_failed_members_work(harness: Harness) -> None:
    """A late joiner's failure is its own: the others' steps stay as they were."""
    await begun(harness)
    harness.answer = lambda job: FAILURE if job.member == "c" else success()
    await harness.settle()
    assert await harness.steps() == {
        "a first": "succeeded", "a second": "succeeded", "a third": "succeeded",
        "c first": "failed", "c second": "cancelled", "c third": "cancelled",
    }  # fmt: skip

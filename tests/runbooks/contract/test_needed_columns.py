"""A column that a template needs is there, or nothing is sent: never null in place of a CSV's missing column."""

from __future__ import annotations

from pathlib import Path

from harness import OPERATOR, Harness, runbook

from lucius.runbooks.core.messages import utc

NEEDS_CITY = {"name": "move", "params": {"Upn": "{{Upn}}", "City": "{{City}}"}}


async def test_a_source_that_loses_a_needed_column_is_failed_and_changes_nobody(
    harness: Harness, tmp_path: Path
) -> None:
    path, start = tmp_path / "members.csv", utc(harness.clock.now() + 7_200_000)
    harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)
    given = {
        "type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time_column": "Moves",
    }  # fmt: skip
    path.write_text(f"Upn,Moves,City\na,{start},\n")
    await harness.publish(runbook({"go": [NEEDS_CITY]}, data_source=given))
    await harness.step()
    path.write_text(f"Upn,Moves\na,{start}\nb,{start}\n")
    await harness.step(60)
    state, detail = (await harness.rows("SELECT source_state, source_detail FROM runbook_controls"))[0]
    assert state == "failed"
    assert "no column City, which {{City}} needs in step move of phase go" in detail
    await harness.step(7_200)
    assert [job.params for job in harness.done] == [{"Upn": "a", "City": ""}]


async def test_a_column_that_a_later_version_needs_is_unknown_where_the_csv_did_not_have_it(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.operations.create_batch("moves", b"Upn,City\na,Rome\n", harness.clock.now(), "manual", OPERATOR)
    batch = await harness.operations.create_batch("moves", b"Upn\nb\n", harness.clock.now(), "manual", OPERATOR)
    await harness.publish(runbook({"go": [NEEDS_CITY]}))
    await harness.tick()
    await harness.operations.advance(batch["batch_id"], OPERATOR)
    await harness.settle()
    assert harness.done == []
    assert "unknown variable: {{City}}" in await harness.value("SELECT error_message FROM step_executions")

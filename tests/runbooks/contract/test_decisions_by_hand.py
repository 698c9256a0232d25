"""Decision 0015: what operators do by hand stays, retries see new data, and what nobody finishes is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, Harness, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.core.messages import utc

INTERVAL = 60


class Source:
    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness, self.path, self.start = harness, path, harness.clock.now() + 7_200_000
        harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def write(self, **city_of: str) -> None:
        lines = [f"{member},{utc(self.start)},{city}" for member, city in city_of.items()]
        self.path.write_text("\n".join(["Upn,Moves,City", *lines]) + "\n")

    async def read(self) -> None:
        await self.harness.step(INTERVAL)


@pytest.fixture
def source(harness: Harness, tmp_path: Path) -> Source:
    return Source(harness, tmp_path / "members.csv")


def text(params: dict[str, str] | None = None, **parts: Any) -> str:
    given = {
        "type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time_column": "Moves",
    }  # fmt: skip
    step = {"name": "move", "params": params or {"Upn": "{{Upn}}"}}
    return runbook({"go": [step]}, data_source=given, **parts)


async def members(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("SELECT batch_id, member_key, status FROM batch_members ORDER BY id")


@pytest.mark.parametrize("operator", [OPERATOR, "scheduler"])
async def test_who_was_taken_out_by_hand_does_not_join_again(harness: Harness, source: Source, operator: str) -> None:
    source.write(a="Rome", b="Oslo")
    await harness.publish(text())
    await harness.step()
    await harness.operations.remove(1, ["b"], operator)
    await source.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed")]
    source.write(a="Rome")
    await source.read()
    source.write(a="Rome", b="Oslo")
    await source.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (1, "b", "active")]


@pytest.mark.parametrize("operator", [OPERATOR, "scheduler"])
async def test_who_was_put_in_by_hand_is_not_the_sources_to_remove(
    harness: Harness, source: Source, operator: str
) -> None:
    source.write(a="Rome", b="Oslo")
    await harness.publish(text())
    await harness.step()
    await harness.operations.add_members(1, b"Upn,City\nc,Kyiv\n", operator)
    await source.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "active"), (1, "c", "active")]


async def test_a_retry_resolves_with_what_is_known_now(harness: Harness, source: Source) -> None:
    source.write(a="Rmoe", b="Oslo")
    await harness.publish(text({"City": "{{City}}", "Upn": "{{Upn}}"}))
    harness.answer = lambda job: FAILURE if job.params["City"] == "Rmoe" else SUCCESS
    await harness.step()
    await harness.step(7_200)
    assert await harness.steps() == {"a move": "failed", "b move": "succeeded"}
    source.write(a="Rome", b="Oslo")
    await source.read()
    await harness.operations.retry(1, ["a"], OPERATOR)
    await harness.settle()
    assert await harness.steps() == {"a move": "succeeded", "b move": "succeeded"}
    assert await harness.batch_status() == "completed"


async def test_a_success_that_comes_after_the_timeout_spares_the_retry(harness: Harness) -> None:
    step = {"name": "move", "timeout": "1m", "retry": {"max_retries": 1, "interval": "5m"}}
    await harness.publish(runbook({"go": [step]}))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: None
    await harness.step()
    harness.clock.advance(60)
    await harness.orchestrator.sweep()
    assert (await harness.dict_row("step_executions", 1))["retry_at"] is not None
    assert await harness.reply("step-1-a1", SUCCESS) == "APPLIED"
    found = await harness.dict_row("step_executions", 1)
    assert (found["status"], found["dispatch_count"], found["wake_at"]) == ("succeeded", 1, None)
    assert await harness.reply("step-1-a1", SUCCESS) == "DUPLICATE"


async def test_a_batch_by_hand_that_nobody_went_on_making_is_given_up(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.batch("moves", ["a"])
    await harness.run("UPDATE batches SET status = 'detected' WHERE id = 1")
    await harness.step(599)
    assert await harness.batch_status() == "detected"
    await harness.step(2)
    assert await harness.batch_status() == "failed"
    assert "create the batch again" in await harness.value("SELECT error_message FROM batches")


async def test_publication_holds_the_text_to_the_columns_of_its_source(harness: Harness, source: Source) -> None:
    with pytest.raises(CallerError, match="not known here") as refused:
        source.write(a="Rome")
        await harness.publish(text({"City": "{{Town}}"}))
    assert refused.value.code == "RUNBOOK_INVALID"
    del harness.environ["LUCIUS_SOURCE_MEMBERS"]
    made = await harness.publishing.publish(text({"City": "{{Town}}"}).encode(), OPERATOR)
    assert made["published"] is True
    assert "LUCIUS_SOURCE_MEMBERS" in made["unchecked"]


async def test_a_rollback_of_init_has_what_init_gave(harness: Harness) -> None:
    check = {"name": "check", "params": {}, "output_params": {"Id": "id"}}
    start = {"name": "start", "params": {}, "on_failure": "undo"}
    undo = {"name": "undo", "params": {"Id": "{{Id}}"}}
    await harness.publish(runbook({"go": ["move"]}, init=[check, start], rollbacks={"undo": [undo]}))
    harness.answer = lambda job: {
        "check": {"status": "Success", "result": {"id": 7}}, "start": FAILURE,
    }.get(job.function, SUCCESS)  # fmt: skip
    await harness.batch("moves", ["a"])
    await harness.step()
    assert [job.params for job in harness.done if job.function == "undo"] == [{"Id": 7}]
    assert await harness.init() == ["succeeded", "rolled_back"]
    assert await harness.batch_status() == "failed"

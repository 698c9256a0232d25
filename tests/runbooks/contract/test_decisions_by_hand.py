"""Decision 0015: what operators do by hand stays, retries see new data, and what nobody finishes is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stand import FAILURE, OPERATOR, SUCCESS, Stand, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.messages import utc

INTERVAL = 60


class Source:
    def __init__(self, stand: Stand, path: Path) -> None:
        self.stand, self.path, self.start = stand, path, stand.clock.now() + 7_200_000
        stand.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def write(self, **city_of: str) -> None:
        lines = [f"{member},{utc(self.start)},{city}" for member, city in city_of.items()]
        self.path.write_text("\n".join(["Upn,Moves,City", *lines]) + "\n")

    async def read(self) -> None:
        await self.stand.step(INTERVAL)


@pytest.fixture
def source(stand: Stand, tmp_path: Path) -> Source:
    return Source(stand, tmp_path / "members.csv")


def text(params: dict[str, str] | None = None, **parts: Any) -> str:
    given = {
        "type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time_column": "Moves",
    }  # fmt: skip
    step = {"name": "move", "params": params or {"Upn": "{{Upn}}"}}
    return runbook({"go": [step]}, data_source=given, **parts)


async def members(stand: Stand) -> list[tuple[Any, ...]]:
    return await stand.rows("SELECT batch_id, member_key, status FROM batch_members ORDER BY id")


async def test_who_was_taken_out_by_hand_does_not_join_again(stand: Stand, source: Source) -> None:
    source.write(a="Rome", b="Oslo")
    await stand.publish(text())
    await stand.step()
    await stand.operations.remove(1, ["b"], OPERATOR)
    await source.read()
    assert await members(stand) == [(1, "a", "active"), (1, "b", "removed")]
    source.write(a="Rome")
    await source.read()
    source.write(a="Rome", b="Oslo")
    await source.read()
    assert await members(stand) == [(1, "a", "active"), (1, "b", "removed"), (1, "b", "active")]


async def test_who_was_put_in_by_hand_is_not_the_sources_to_remove(stand: Stand, source: Source) -> None:
    source.write(a="Rome", b="Oslo")
    await stand.publish(text())
    await stand.step()
    await stand.operations.add_members(1, b"Upn,City\nc,Kyiv\n", OPERATOR)
    await source.read()
    assert await members(stand) == [(1, "a", "active"), (1, "b", "active"), (1, "c", "active")]


async def test_a_retry_resolves_with_what_is_known_now(stand: Stand, source: Source) -> None:
    source.write(a="Rmoe", b="Oslo")
    await stand.publish(text({"City": "{{City}}", "Upn": "{{Upn}}"}))
    stand.answer = lambda job: FAILURE if job.params["City"] == "Rmoe" else SUCCESS
    await stand.step()
    await stand.step(7_200)
    assert await stand.steps() == {"a move": "failed", "b move": "succeeded"}
    source.write(a="Rome", b="Oslo")
    await source.read()
    await stand.operations.retry(1, ["a"], OPERATOR)
    await stand.settle()
    assert await stand.steps() == {"a move": "succeeded", "b move": "succeeded"}
    assert await stand.batch_status() == "completed"


async def test_a_success_that_comes_after_the_timeout_spares_the_retry(stand: Stand) -> None:
    step = {"name": "move", "timeout": "1m", "retry": {"max_retries": 1, "interval": "5m"}}
    await stand.publish(runbook({"go": [step]}))
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: None
    await stand.step()
    stand.clock.advance(60)
    await stand.orchestrator.sweep()
    assert (await stand.dict_row("step_executions", 1))["retry_at"] is not None
    assert await stand.reply("step-1-a1", SUCCESS) == "APPLIED"
    found = await stand.dict_row("step_executions", 1)
    assert (found["status"], found["dispatch_count"], found["wake_at"]) == ("succeeded", 1, None)
    assert await stand.reply("step-1-a1", SUCCESS) == "DUPLICATE"


async def test_a_batch_by_hand_that_nobody_went_on_making_is_given_up(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}))
    await stand.batch("moves", ["a"])
    await stand.run("UPDATE batches SET status = 'detected' WHERE id = 1")
    await stand.step(599)
    assert await stand.batch_status() == "detected"
    await stand.step(2)
    assert await stand.batch_status() == "failed"
    assert "make it again" in await stand.value("SELECT error_message FROM batches")


async def test_publication_holds_the_text_to_the_columns_of_its_source(stand: Stand, source: Source) -> None:
    with pytest.raises(CallerError, match="not known here") as refused:
        source.write(a="Rome")
        await stand.publish(text({"City": "{{Town}}"}))
    assert refused.value.code == "RUNBOOK_INVALID"
    del stand.environ["LUCIUS_SOURCE_MEMBERS"]
    made = await stand.publishing.publish(text({"City": "{{Town}}"}).encode(), OPERATOR)
    assert made["published"] is True
    assert "LUCIUS_SOURCE_MEMBERS" in made["unchecked"]


async def test_a_rollback_of_init_has_what_init_gave(stand: Stand) -> None:
    check = {"name": "check", "params": {}, "output_params": {"Id": "id"}}
    start = {"name": "start", "params": {}, "on_failure": "undo"}
    undo = {"name": "undo", "params": {"Id": "{{Id}}"}}
    await stand.publish(runbook({"go": ["move"]}, init=[check, start], rollbacks={"undo": [undo]}))
    stand.answer = lambda job: {
        "check": {"status": "Success", "result": {"id": 7}}, "start": FAILURE,
    }.get(job.function, SUCCESS)  # fmt: skip
    await stand.batch("moves", ["a"])
    await stand.step()
    assert [job.params for job in stand.done if job.function == "undo"] == [{"Id": 7}]
    assert await stand.init() == ["succeeded", "rolled_back"]
    assert await stand.batch_status() == "failed"

"""What recipients of a runbook are told, with the transaction in which it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import FAILURE, Harness, runbook

from lucius.domain.notifications import Cause
from lucius.ports.database import Script
from lucius.runbooks.core.approvals import REFUSED
from lucius.runbooks.core.definition.compare import differences, show
from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.engine.turn import Turn

OPS = {"name": "ops", "kind": "webhook", "url": "https://ops.example/hook"}


def told(*more: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"recipients": [OPS, *more], **parts}


async def causes(harness: Harness, recipient: str = "ops") -> list[str]:
    sql = f"SELECT cause FROM notifications WHERE recipient_name = '{recipient}' ORDER BY notification_id"
    return [row[0] for row in await harness.rows(sql)]


async def test_failures_holds_and_ends_are_told_once_each(harness: Harness) -> None:
    only_ends = {"name": "boss", "kind": "email", "to": ["boss@acme.example"], "causes": ["batch_ended"]}
    await harness.publish(runbook({"one": ["first"]}, max_failures=0, notifications=told(only_ends)))
    await harness.batch("moves", ("a", "b", "c"))
    harness.answer = lambda job: FAILURE
    await harness.step()
    assert sorted(await causes(harness)) == ["batch_ended", "batch_held", "phase_ended", "step_failed", "step_failed"]
    assert await causes(harness, "boss") == ["batch_ended"]
    # Three steps failed: the first is told at once, the other two together when the interval ends.
    counts = await harness.rows("SELECT facts FROM notifications WHERE cause = 'step_failed' ORDER BY due_at")
    assert ['"count":2' in row[0] for row in counts] == [False, True]


async def test_a_batch_that_completes_tells_of_its_phases_and_its_end(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["first"], "two": ["second"]}, notifications=told()))
    await harness.batch("moves")
    await harness.step()
    assert await causes(harness) == ["phase_ended", "phase_ended", "batch_ended"]


async def test_approvals_that_are_needed_and_refused_are_told(harness: Harness) -> None:
    text = runbook({"one": ["first"]}, approvals={"one": {"count": 2}}, notifications=told())
    await harness.publish(text)
    await harness.batch("moves")
    for _ in range(2):
        await harness.step()
    assert await causes(harness) == ["approval_needed"]
    (facts,) = (await harness.rows("SELECT facts FROM notifications"))[0]
    assert '"phase":"one"' in facts
    assert "0 of 2 approvals; by whoever has the role operate" in facts
    await harness.operations.decide(1, "one", REFUSED, "key:anna", lambda role: True, "not today")
    assert await causes(harness) == ["approval_needed", "approval_refused", "batch_ended"]
    sql = "SELECT facts FROM notifications WHERE cause = 'approval_refused'"
    assert "refused by key:anna: not today" in (await harness.rows(sql))[0][0]


async def test_a_runbook_without_recipients_writes_nothing(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["first"]}))
    await harness.batch("moves")
    await harness.step()
    assert await harness.rows("SELECT * FROM notification_causes") == []


async def test_a_source_that_fails_is_told_when_it_begins_to_fail(harness: Harness, tmp_path: Path) -> None:
    source = {"type": "csv", "connection": "LUCIUS_SOURCE_M", "primary_key": "Upn", "batch_time": "immediate"}
    harness.environ["LUCIUS_SOURCE_M"] = str(tmp_path / "missing.csv")
    await harness.publish(runbook({"one": ["first"]}, data_source=source, notifications=told()))
    for _ in range(3):
        await harness.step(61)
    assert await causes(harness) == ["source_failed"]


async def test_a_deadline_that_is_near_is_told_once_and_only_of_open_batches(harness: Harness) -> None:
    stated = told(deadline="2h", warn_before="30m")
    await harness.publish(runbook({"one": [{"name": "first", "timeout": "1d"}]}, notifications=stated))
    harness.answer = lambda job: None
    await harness.batch("moves", ("a",))
    await harness.step()
    await harness.step(85 * 60)
    assert await causes(harness) == []
    for _ in range(3):
        await harness.step(6 * 60)
    assert await causes(harness) == ["deadline_near"]
    harness.answer = lambda job: {"status": "Success", "result": {}}
    await harness.settle()
    await harness.step(3_600)
    assert "deadline_near" not in (await causes(harness))[1:]


async def test_a_turn_that_fails_tells_nothing(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["first"]}, notifications=told()))
    batch_id = await harness.batch("moves")

    def work(turn: Turn) -> Script[None]:
        yield from turn.lock([batch_id])
        yield from turn.notify(Cause.APPROVAL_NEEDED, turn.batches[batch_id], "one", phase="one")
        raise RuntimeError("the turn fails")

    with pytest.raises(RuntimeError):
        await harness.turns.take(work)
    assert await causes(harness) == []


@pytest.mark.parametrize(
    ("recipient", "said"),
    [
        ({"kind": "fax"}, "kind"),
        ({"url": "ftp://x.example"}, "http or https"),
        ({"secret_env": "HOME"}, "LUCIUS_NOTIFY_"),
        ({"causes": ["job_failed"]}, "causes"),
        ({"interval": "5s"}, "at least 60 s"),
        ({"kind": "json", "template": {"a": "{{nobody}}"}}, "is not a field of a notification"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_faults_of_recipients_have_their_place(recipient: dict[str, Any], said: str) -> None:
    text = runbook({"one": ["first"]}, notifications={"recipients": [OPS | recipient]})
    with pytest.raises(RunbookInvalid) as raised:
        read_runbook(text.encode())
    assert any(
        said in fault.message and "/notifications/recipients/0" in fault.pointer for fault in raised.value.faults
    )


def test_two_recipients_of_one_name_are_refused() -> None:
    text = runbook({"one": ["first"]}, notifications=told(OPS))
    with pytest.raises(RunbookInvalid, match="duplicate recipient name"):
        read_runbook(text.encode())


def test_a_changed_recipient_shows_in_the_comparison_of_versions() -> None:
    before = read_runbook(runbook({"one": ["first"]}).encode())
    after = read_runbook(runbook({"one": ["first"]}, notifications=told(deadline="2h")).encode())
    again = read_runbook(runbook({"one": ["first"]}, notifications=told(deadline="3h")).encode())
    assert "+ notifications" in show(differences(before, after))
    assert show(differences(after, again)) == "~ notifications.deadline: 2h → 3h"

"""Decision 0065: what is due outside of windows, or in a freeze, waits and says so."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, THROTTLED, Harness, csv, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.store.definitions import Definitions

HOUR = 3_600
NIGHTS = [{"from": "22:00", "to": "06:00"}]


async def at_hour(harness: Harness, hour: float) -> None:
    """Let time pass until the next time that clocks in UTC show this hour."""
    now = harness.clock.now() // 1000
    harness.clock.advance((int(hour * HOUR) - now) % 86_400)


def day(harness: Harness, ahead: int = 0) -> str:
    return datetime.fromtimestamp(harness.clock.now() / 1000 + ahead * 86_400, UTC).date().isoformat()


async def opened(harness: Harness, phases: dict[str, list[Any]], hour: float, **parts: Any) -> None:
    await at_hour(harness, hour)
    await harness.publish(runbook(phases, windows=NIGHTS, **parts))
    await harness.batch("moves", ["a"])


async def waits(harness: Harness) -> list[str]:
    return (await harness.queries.batch(1))["waiting_for"]


async def member_waits(harness: Harness) -> str | None:
    found, _ = await harness.queries.members(1, "all", None, 10, None)
    return found[0]["waiting_for"]


async def test_a_phase_that_is_due_outside_of_windows_begins_when_the_next_one_opens(harness: Harness) -> None:
    await opened(harness, {"go": ["move"]}, 12)
    await harness.step()
    assert (await harness.phases(), harness.done) == ({"go": "pending"}, [])
    (event,) = await harness.events("phase-waits")
    assert event == {"phase": "go", "until": f"{day(harness)}T22:00:00Z", "reason": "outside its windows"}
    expected = f"phase go is due at {day(harness)}T12:00:00.000Z and waits until {day(harness)}T22:00:00.000Z: outside"
    assert (await waits(harness))[0].startswith(expected)
    assert (await member_waits(harness) or "").startswith(expected)
    await harness.step(10 * HOUR - 1)
    assert harness.done == []
    await harness.step(1)
    assert (await harness.batch_status(), len(await harness.events("phase-waits"))) == ("completed", 1)


async def test_steps_wait_when_the_window_closes_and_what_workers_have_finishes(harness: Harness) -> None:
    await opened(harness, {"go": ["one", "two"]}, 5.5)
    harness.answer = lambda job: None
    await harness.step()
    await harness.step(40 * 60)
    await harness.reply_all("one")
    await harness.step()
    assert harness.functions() == ["one"]
    assert await harness.steps() == {"a one": "succeeded", "a two": "pending"}
    until = f"{day(harness)}T22:00:00"
    assert await harness.events("steps-wait") == [{"until": f"{until}Z", "reason": "outside its windows"}]
    assert await waits(harness) == [
        f"phase go is at step 2 of 2 (two): 1 step waits until {until}.000Z: outside its windows"
    ]
    assert await member_waits(harness) == f"step two waits until {until}.000Z: outside its windows"
    await harness.orchestrator.resume()
    assert not harness.orchestrator.take_unfinished()  # Waiting costs no turns.
    harness.answer = lambda job: SUCCESS
    await at_hour(harness, 22)
    await harness.orchestrator.resume()
    await harness.step()
    assert (await harness.batch_status(), len(await harness.events("steps-continue"))) == ("completed", 1)
    assert await harness.value("SELECT wait_until FROM batches") is None


async def test_polls_go_on_while_nothing_new_starts(harness: Harness) -> None:
    poll = {"name": "move", "poll": {"interval": "20m", "timeout": "24h"}}
    await opened(harness, {"go": [poll, "tell"]}, 5.5)
    harness.answer = lambda job: STILL_POLLING
    await harness.step()
    await harness.step(40 * 60)
    harness.answer = lambda job: SUCCESS
    await harness.step(40 * 60)
    assert harness.functions() == ["move"] * 3
    assert await harness.steps() == {"a move": "succeeded", "a tell": "pending"}


async def test_retries_wait_and_a_throttled_step_gets_its_whole_timeout_again(harness: Harness) -> None:
    move = {"name": "move", "timeout": "1h", "retry": {"max_retries": 1, "interval": "10m"}}
    await opened(harness, {"go": [move]}, 5.9)
    harness.answer = lambda job: THROTTLED
    await harness.step()
    harness.answer = lambda job: None
    await harness.step(700)
    assert len(harness.done) == 1
    await at_hour(harness, 22)
    await harness.orchestrator.resume()
    await harness.step()
    await harness.step(HOUR - 1)
    assert (len(harness.done), await harness.steps()) == (2, {"a move": "dispatched"})
    await harness.reply_all("move", FAILURE)
    await harness.step(600)
    assert await harness.steps() == {"a move": "dispatched"}
    await harness.reply_all("move")
    assert await harness.batch_status() == "completed"


async def test_init_waits(harness: Harness) -> None:
    await opened(harness, {"go": ["move"]}, 12, init=["check"])
    await harness.step()
    assert (await harness.init(), harness.done) == (["pending"], [])
    assert await waits(harness) == [f"init step check waits until {day(harness)}T22:00:00.000Z: outside its windows"]
    await at_hour(harness, 22)
    await harness.orchestrator.resume()
    await harness.step()
    await harness.step()
    assert await harness.batch_status() == "completed"


async def test_rollbacks_do_not_wait_and_removal_steps_do(harness: Harness) -> None:
    move = {"name": "move", "on_failure": "undo"}
    parts = {"rollbacks": {"undo": ["stop"]}, "on_member_removed": ["leave"]}
    await opened(harness, {"go": [move], "after": ["tell"]}, 5.5, offsets={"after": "T+2d"}, **parts)
    await harness.operations.add_members(1, csv(["b"]), OPERATOR)
    harness.answer = lambda job: None
    await harness.step()
    await harness.step(40 * 60)
    harness.answer = lambda job: FAILURE if job.function == "move" and job.member == "a" else SUCCESS
    await harness.settle()
    await harness.operations.remove(1, ["b"], OPERATOR)
    await harness.settle()
    assert await harness.followups() == {"rollback a stop": "succeeded", "removal b leave": "pending"}
    await at_hour(harness, 22)
    await harness.orchestrator.resume()
    await harness.settle()
    assert await harness.followups() == {"rollback a stop": "succeeded", "removal b leave": "succeeded"}


async def test_who_joins_late_catches_up_when_the_window_opens(harness: Harness) -> None:
    await opened(harness, {"go": ["move"], "after": ["tell"]}, 5.5, offsets={"after": "T+1d"})
    await harness.step()
    await harness.step(40 * 60)
    await harness.operations.add_members(1, csv(["b"]), OPERATOR)
    await harness.settle()
    assert (await harness.steps())["b move"] == "pending"
    await at_hour(harness, 22)
    await harness.orchestrator.resume()
    await harness.step()
    assert (await harness.steps())["b move"] == "succeeded"


async def test_a_freeze_that_is_published_while_a_batch_runs_stops_it_at_once(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["one", "two"], "end": ["three"]}, offsets={"end": "T+1h"}))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: None
    await harness.step()
    frozen = {"from": day(harness), "to": day(harness, 1), "reason": "year end"}
    await harness.publish(runbook({"go": ["one", "two"], "end": ["three"]}, offsets={"end": "T+1h"}, freeze=[frozen]))
    await harness.tick()
    await harness.reply_all("one")
    await harness.step()
    assert harness.functions() == ["one"]
    (event,) = await harness.events("steps-wait")
    assert event["reason"] == f"frozen: {day(harness)} to {day(harness, 1)} (year end)"
    harness.answer = lambda job: SUCCESS
    await at_hour(harness, 0)
    await harness.step(86_400)
    await harness.orchestrator.resume()
    await harness.step()
    await harness.step()
    assert (await harness.steps())["a two"] == "succeeded"
    assert await harness.batch_status() == "completed"


async def test_a_version_without_windows_lets_waiting_steps_go_at_once(harness: Harness) -> None:
    await opened(harness, {"go": ["one", "two"]}, 5.9)
    harness.answer = lambda job: None
    await harness.step()
    await harness.step(40 * 60)
    await harness.reply_all("one")
    harness.answer = lambda job: SUCCESS
    await harness.publish(runbook({"go": ["one", "two"]}), "ignore")
    await harness.step()
    assert (harness.functions(), await harness.batch_status()) == (["one", "two"], "completed")


ICS = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:audit\nDTSTART:{day}\nRRULE:FREQ=YEARLY\nEND:VEVENT\nEND:VCALENDAR\n"


async def test_events_of_a_file_are_freezes_as_they_were_when_the_version_was_published(
    harness: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "freeze.ics"
    file.write_text(ICS.format(day=day(harness).replace("-", "")))
    harness.environ["LUCIUS_SOURCE_FREEZE"] = str(file)
    text = runbook({"go": ["move"]}, freeze=[{"ics": "LUCIUS_SOURCE_FREEZE"}])
    assert [await harness.publish(text), await harness.publish(text)] == [1, 1]
    file.write_text(ICS.format(day="20270101"))
    await harness.batch("moves", ["a"])
    harness.turns.definitions = Definitions()  # As in a process that was started since.
    await harness.step()
    (event,) = await harness.events("phase-waits")
    assert (event["reason"], harness.done) == (f"frozen: {day(harness)} (audit)", [])
    assert await harness.publish(text) == 2  # The same text means something else now.
    await harness.step()
    await harness.step()
    assert await harness.batch_status() == "completed"
    (changed,) = await harness.publishing.compare("moves", 1, 2)
    assert (changed.where, "2027-01-01 (audit)" in (changed.after or "")) == ("freeze", True)


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (None, "LUCIUS_SOURCE_FREEZE is not set: set it to the path of the iCalendar file"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "names, line 3: the file ends within VEVENT: it may be cut off"),
        ("x" * 1_048_577, "has more than 1048576 bytes"),
    ],
)
async def test_a_runbook_whose_calendar_cannot_be_read_is_not_published(
    harness: Harness, tmp_path: Path, content: str | None, detail: str
) -> None:
    if content is not None:
        harness.environ["LUCIUS_SOURCE_FREEZE"] = str(tmp_path / "freeze.ics")
        (tmp_path / "freeze.ics").write_text(content)
    with pytest.raises(CallerError) as caught:
        await harness.publish(runbook({"go": ["move"]}, freeze=[{"ics": "LUCIUS_SOURCE_FREEZE"}]))
    assert (caught.value.faults[0].code, caught.value.faults[0].pointer) == ("RUNBOOK_INVALID", "/freeze/0/ics")
    assert detail in caught.value.faults[0].detail
    assert str(tmp_path) not in caught.value.faults[0].detail


async def test_a_batch_cannot_be_advanced_into_a_closed_window(harness: Harness) -> None:
    await at_hour(harness, 12)
    await harness.publish(runbook({"go": ["move"]}, windows=NIGHTS))
    await harness.batch("moves", ["a"], advance="manual")
    with pytest.raises(CallerError, match=r"waits until .*T22:00:00Z: outside its windows; advance the batch when"):
        await harness.operations.advance(1, OPERATOR)
    await at_hour(harness, 22)
    await harness.operations.advance(1, OPERATOR)
    await harness.settle()
    assert await harness.batch_status() == "completed"


async def test_many_phases_that_wait_do_not_keep_others_from_beginning(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucius.runbooks.engine.phases.PHASES_MAX", 2)
    await at_hour(harness, 12)
    await harness.publish(runbook({"go": ["move"]}, windows=NIGHTS))
    for _ in range(3):
        await harness.batch("moves", ["a"])
    await harness.publish(runbook({"go": ["move"]}, name="others"))
    other = await harness.batch("others", ["a"])
    for _ in range(3):
        await harness.step()
    assert await harness.batch_status(other) == "completed"


async def test_a_cancelled_batch_waits_for_nothing(harness: Harness) -> None:
    await opened(harness, {"go": ["one", "two"]}, 5.9)
    harness.answer = lambda job: None
    await harness.step()
    await harness.step(40 * 60)
    await harness.reply_all("one")
    await harness.operations.cancel(1, "enough", OPERATOR)
    await harness.settle()
    assert (await harness.batch_status(), await harness.value("SELECT wait_until FROM batches")) == ("failed", None)
    assert await harness.events("steps-continue") == []

"""Messages that died on the bus: `waiting_for` names them, and an operator sends them again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import OPERATOR, STILL_POLLING, SUCCESS, WORKER, Harness, csv, runbook

from lucius.domain.errors import CallerError
from lucius.ports.bus import BusUnavailable, DeliveryRef, Message
from lucius.runbooks.core.messages import EVENTS_TOPIC, JOBS_TOPIC, ORCHESTRATOR, RESULTS_TOPIC
from lucius.runbooks.loops.settings import OrchestratorSettings

LOST_AFTER = OrchestratorSettings().lost_after_seconds + 1


async def kill_event(harness: Harness) -> str:
    """Let the one message that waits for the orchestrator die; its id."""
    [taken] = await harness.bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 100, 60, 0)
    await harness.bus.dead_letter([taken.ref], "DELIVERED_TOO_OFTEN")
    return taken.ref.message_id


async def kill_jobs(harness: Harness) -> list[str]:
    """Let every job that waits for the worker die; their ids."""
    taken = await harness.bus.receive([JOBS_TOPIC], WORKER, 100, 60, 0)
    await harness.bus.dead_letter([one.ref for one in taken], "DELIVERED_TOO_OFTEN")
    return sorted(one.ref.message_id for one in taken)


async def waits(harness: Harness) -> str:
    return "\n".join((await harness.queries.batch(1))["waiting_for"])


async def member_waits(harness: Harness, key: str) -> str:
    [member], _ = await harness.queries.members(1, "all", key, 1, None)
    return str(member["waiting_for"])


async def send_again(harness: Harness, *names: str) -> list[str]:
    answer = await harness.dead_letters.send_again(1, names or None, OPERATOR)
    assert not answer["more"]
    return list(answer["sent"])


async def listed(harness: Harness) -> list[dict[str, Any]]:
    return list((await harness.dead_letters.describe(await harness.bus.dead_letters(100))).values())


async def test_dead_phase_due_is_named_and_sent_again(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves")
    await harness.tick()
    name = await kill_event(harness)
    assert "phase one has not begun" in await waits(harness)
    assert name in await waits(harness)
    assert name in await member_waits(harness, "a")
    [shown] = await listed(harness)
    assert (shown["batch_id"], shown["phase"], shown["awaited"], shown["can_be_sent"]) == (1, "one", True, True)
    assert (await harness.queries.batch(1))["dead_messages"] == [shown]
    assert await send_again(harness) == [name]
    assert await listed(harness) == []
    await harness.settle()
    assert await harness.batch_status() == "completed"
    assert await harness.events("messages-sent-again") == [{"messages": [name], "count": 1}]


async def test_dead_batch_init_is_named_and_sent_again(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}, init=["check"]))
    await harness.batch("moves")
    name = await kill_event(harness)
    assert name in await waits(harness)
    assert "about to begin" not in await waits(harness)
    assert await send_again(harness, name) == [name]
    await harness.settle()
    assert await harness.init() == ["succeeded"]


async def test_dead_member_messages_are_named_and_sent_again(real_harness: Harness) -> None:
    harness = real_harness
    phases = {"one": ["a"], "two": ["b"]}
    await harness.publish(runbook(phases, on_member_removed=["leave"], offsets={"one": "T-1h", "two": "T-0"}))
    await harness.batch("moves", starts_in=3_600)
    await harness.step()
    await harness.operations.add_members(1, csv(["late"]), OPERATOR)
    added = await kill_event(harness)
    await harness.operations.remove(1, ["b"], OPERATOR)
    removed = await kill_event(harness)
    for name, member in ((added, "late"), (removed, "b")):
        assert name in await waits(harness)
        assert name in await member_waits(harness, member)
    assert {one["member"] for one in await listed(harness)} == {"late", "b"}
    assert await send_again(harness) == [added, removed]
    await harness.settle()
    assert (await harness.steps())["late a"] == "succeeded"
    assert await harness.followups() == {"removal b leave": "succeeded"}


async def test_dead_poll_check_is_named_and_sent_again(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": [{"name": "poll", "poll": {"interval": "5m", "timeout": "2d"}}]}))
    harness.answer = lambda job: STILL_POLLING if job.id.endswith("-a1") else SUCCESS
    await harness.batch("moves", ["a"])
    await harness.step()
    harness.clock.advance(301)
    await harness.tick()
    name = await kill_event(harness)
    assert name in await waits(harness)
    assert name in await member_waits(harness, "a")
    [shown] = await listed(harness)
    assert (shown["type"], shown["member"], shown["step"]) == ("poll-check", "a", "poll")
    assert await send_again(harness) == [name]
    await harness.settle()
    assert await harness.batch_status() == "completed"


async def test_dead_job_is_with_no_worker_and_is_built_again(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves")
    await harness.tick()
    await harness.handle_events()
    [first, *_] = await harness.bus.receive([JOBS_TOPIC], WORKER, 1, 60, 0)
    await harness.bus.abandon([first.ref])
    names = await kill_jobs(harness)
    assert len(names) == 2
    told = await waits(harness)
    assert all(name in told for name in names)
    assert "2 steps wait for dead messages" in told
    assert "with a worker" not in told
    assert "are with workers" not in told
    assert f"worker {WORKER} does not have it" in await member_waits(harness, "a")
    assert await send_again(harness, names[0]) == names[:1]
    assert "1 step is with a worker, 1 waits for a dead message" in await waits(harness)
    assert await send_again(harness) == names[1:]
    jobs = await harness.take_jobs()
    assert sorted(job.id for job in jobs) == names
    assert json.loads(first.body) in [job.body for job in jobs]
    await harness.settle()
    assert await harness.batch_status() == "completed"


async def test_dead_result_is_named_and_cannot_be_sent_again(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}))
    harness.answer = lambda job: None
    await harness.batch("moves", ["a"])
    await harness.step()
    [job] = harness.waiting.values()
    name = f"result-{job.id}"
    await harness.bus.publish([Message(id=name, topic=RESULTS_TOPIC, body=b"{}", properties={})])
    await harness.bus.dead_letter([DeliveryRef(RESULTS_TOPIC, ORCHESTRATOR, name)], "DELIVERED_TOO_OFTEN")
    assert name in await waits(harness)
    assert "cannot be sent again" in await member_waits(harness, "a")
    [shown] = await listed(harness)
    assert (shown["type"], shown["awaited"], shown["can_be_sent"]) == ("result", True, False)
    assert await send_again(harness) == []
    with pytest.raises(CallerError, match="does not store bodies"):
        await send_again(harness, name)
    await harness.reply(job, SUCCESS)
    assert name not in await waits(harness)


async def test_dead_message_that_nobody_waits_for_is_not_the_reason(real_harness: Harness) -> None:
    """The orchestrator has found the work in the tables meanwhile."""
    harness = real_harness
    harness.answer = lambda job: None
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves")
    await harness.tick()
    name = await kill_event(harness)
    harness.clock.advance(LOST_AFTER)
    await harness.orchestrator.recover_lost_messages()
    await harness.settle()
    assert name not in await waits(harness)
    assert "2 steps are with workers" in await waits(harness)
    [shown] = await listed(harness)
    assert (shown["messageId"], shown["awaited"], shown["can_be_sent"]) == (name, False, False)
    assert await send_again(harness) == []
    with pytest.raises(CallerError, match="waits for message"):
        await send_again(harness, name)
    with pytest.raises(CallerError, match="has no dead message"):
        await send_again(harness, "phase-due-77-0")
    with pytest.raises(CallerError, match="there is no batch 2"):
        await harness.dead_letters.send_again(2, None, OPERATOR)


async def test_messages_that_cannot_be_read_are_about_no_batch(harness: Harness) -> None:
    message = Message(id="odd", topic=EVENTS_TOPIC, body=b"not JSON", properties={})
    await harness.bus.publish([message])
    await harness.handle_events()
    harness.observer.failures.clear()
    assert [letter.ref.message_id for letter in await harness.bus.dead_letters(10)] == ["odd"]
    assert await listed(harness) == []


async def test_a_batch_is_shown_while_the_bus_is_out_of_reach(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> list[Any]:
        raise BusUnavailable("no bus")

    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves", ["a"], starts_in=3_600)
    assert "the bus is out of reach" not in await waits(harness)
    monkeypatch.setattr(harness.bus, "dead_letters", unavailable)
    assert "the bus is out of reach" in await waits(harness)
    assert "due at" in await member_waits(harness, "a")

"""Rehearsals: the real scheduler and orchestrator on a virtual clock, and what the report says of their end."""

from __future__ import annotations

import pytest

from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.rehearsal.behaviour import USUAL, Behaviour, Mix
from lucius.runbooks.rehearsal.members import csv_members, made_up_members
from lucius.runbooks.rehearsal.rehearsal import rehearse
from lucius.runbooks.rehearsal.report import PhaseLine, Report, to_json

START = 1_796_112_000_000
HOUR = 3_600_000
MEMBERS = 300

HEAD = """
name: move
data_source:
  {type: sql, connection: LUCIUS_SOURCE_NOWHERE, query: SELECT 1 AS Upn, primary_key: Upn, batch_time: immediate}
"""
BODY = """
init:
  - {name: check, worker_id: cloud, function: Check}
phases:
  - name: prep
    offset: T-5d
    steps:
      - {name: look, worker_id: cloud, function: Look, params: {Upn: "{{Upn}}"}, output_params: {Guid: guid}}
      - {name: tell, worker_id: mail, function: Tell, params: {Guid: "{{Guid}}"}, on_failure: undo}
  - name: go
    offset: T-0
    steps:
      - {name: move, worker_id: cloud, function: Move, params: {Guid: "{{Guid}}"}, poll: {interval: 15m, timeout: 6h}}
rollbacks:
  undo: [{name: untell, worker_id: mail, function: Untell, params: {Upn: "{{Upn}}"}}]
"""
NONE = Mix()


async def run(
    text: str = HEAD + BODY, behaviour: Behaviour | None = None, seed: int = 1, count: int = MEMBERS
) -> Report:
    content = text.encode()
    members = made_up_members(read_runbook(content), count, START)
    return await rehearse(content, members, START, behaviour or Behaviour(default=NONE), seed)


def phase(report: Report, name: str) -> PhaseLine:
    return next(one for one in report.batches[0].phases if one.phase == name)


async def test_where_nothing_fails_everything_is_completed_in_time() -> None:
    report = await run()
    batch = report.batches[0]
    assert (batch.status, batch.members, report.misses, report.holds) == ("completed", MEMBERS, (), ())
    assert [(one.status, one.done, one.began_at == one.due_at) for one in batch.phases] == [
        ("completed", MEMBERS, True)
    ] * 2
    assert batch.init[0].counts == {"succeeded": 1}
    # Init, two steps, and a move that is asked for five times in all.
    assert report.jobs["jobs"] == 1 + MEMBERS * 2 + MEMBERS * 5
    assert (report.jobs["polls"], report.jobs["retries"]) == (MEMBERS * 4, 0)


async def test_barriers_follow_each_other_and_the_workers_limit_shows_as_a_queue() -> None:
    mix = Mix(poll_rounds=0)
    few = await run(behaviour=Behaviour(default=mix, workers=10, workers_of={"mail": 1000}))
    cloud, mail = few.workers
    assert (cloud.worker_id, cloud.in_flight_max, cloud.queue_max) == ("cloud", 10, MEMBERS - 10)
    assert (mail.worker_id, mail.queue_max) == ("mail", 0)
    assert (few.busiest.in_flight, few.busiest.queued) == (10, MEMBERS - 10)
    look, tell = phase(few, "prep").steps
    assert look.began_at is not None
    assert look.ended_at is not None
    assert tell.began_at is not None
    # Three hundred jobs of some thirty seconds, ten at a time; only then may the next step begin.
    assert look.ended_at - look.began_at > MEMBERS / 10 * 20_000
    assert look.ended_at <= tell.began_at


async def test_where_everything_fails_every_member_has_failed() -> None:
    text = HEAD + BODY.replace("init:\n  - {name: check, worker_id: cloud, function: Check}\n", "")
    report = await run(text, Behaviour(default=Mix(fail=1.0)))
    prep, go = report.batches[0].phases
    assert report.batches[0].status == "failed"
    assert (prep.status, prep.failed, prep.done) == ("failed", MEMBERS, 0)
    assert (go.status, go.cancelled, go.done) == ("failed", MEMBERS, 0)
    assert report.members_missing == MEMBERS
    assert {(one.what, one.step, one.reason) for one in report.misses} == {
        ("failed", "look", "Look failed (rehearsed)")
    }


async def test_a_failed_init_means_that_nobody_begins() -> None:
    report = await run(behaviour=Behaviour(default=NONE, functions={"Check": Mix(fail=1.0)}), count=20)
    assert report.batches[0].status == "failed"
    assert report.batches[0].init[0].counts == {"failed": 1}
    assert [one.status for one in report.batches[0].phases] == ["skipped", "skipped"]
    assert [one.what for one in report.misses] == ["never begun"] * 20
    assert "init step check" in report.misses[0].reason


async def test_failed_steps_are_rolled_back() -> None:
    report = await run(behaviour=Behaviour(default=NONE, functions={"Tell": Mix(fail=1.0)}), count=20)
    assert phase(report, "prep").rolled_back == 20
    assert report.jobs["rollback"] == 20
    assert {one.what for one in report.misses} == {"rolled back"}


async def test_where_some_fail_the_batch_completes_with_failures_as_a_real_one_would() -> None:
    report = await run(behaviour=Behaviour(default=NONE, functions={"Tell": Mix(fail=0.6)}), count=20)
    assert 0 < phase(report, "prep").rolled_back < 20
    assert report.batches[0].status == "completed_with_failures"


async def test_lost_jobs_end_in_timeouts_and_throttled_ones_are_sent_again() -> None:
    functions = {"Look": Mix(lost=1.0), "Check": Mix(throttle=1.0)}
    report = await run(behaviour=Behaviour(default=NONE, functions={"Look": functions["Look"]}), count=20)
    assert {one.reason for one in report.misses} == {"no answer within 3600 s"}
    look = phase(report, "prep").steps[0]
    assert look.ended_at is not None
    assert look.began_at is not None
    assert look.ended_at - look.began_at >= HOUR
    throttled = await run(behaviour=Behaviour(default=NONE, functions={"Check": functions["Check"]}), count=2)
    assert throttled.jobs["throttle"] > 10
    assert "throttled until its timeout" in (throttled.batches[0].error or "")


async def test_polls_that_take_too_long_time_out() -> None:
    report = await run(behaviour=Behaviour(default=NONE, functions={"Move": Mix(poll_rounds=100)}), count=20)
    assert phase(report, "go").steps[0].counts == {"poll_timeout": 20}
    assert {one.reason for one in report.misses} == {"still running after 21600 s of polling"}


MISSING = """
name: late
data_source: {type: manual, primary_key: Upn}
phases:
  - {name: first, offset: T-1h, steps: [{name: a, worker_id: w, function: A}, {name: b, worker_id: w, function: B}]}
  - {name: second, offset: T-30m, steps: [{name: c, worker_id: w, function: C}]}
  - {name: third, offset: T+1d, steps: [{name: d, worker_id: w, function: D}]}
"""


async def test_who_has_not_ended_when_the_next_phase_falls_due_is_late() -> None:
    functions = {"A": Mix(duration_seconds=600), "B": Mix(duration_seconds=10)}
    report = await run(MISSING, Behaviour(default=NONE, functions=functions, workers=MEMBERS))
    first, second, third = report.batches[0].phases
    assert report.batches[0].status == "completed"
    assert (first.until, second.until, third.until) == ("phase second", "the batch's start", None)
    assert first.ended_at is not None
    assert first.ended_at > second.due_at
    # One slow member is enough: the barrier keeps everybody from step b until it has ended step a.
    assert first.late == MEMBERS
    late = [one for one in report.misses if one.phase == "first"]
    assert {one.what for one in late} == {"late"}
    waiting = [one for one in late if one.step == "b"]
    assert waiting
    assert {one.reason for one in waiting} == {"was not sent yet at phase second"}
    assert {one.reason for one in late if one.step == "a"} == {"was still running at phase second"}
    assert all(one.late_seconds is not None and one.late_seconds > 0 for one in late)
    assert report.members_missing == MEMBERS
    assert third.late == 0


async def test_a_phase_that_ends_in_its_window_has_nobody_late() -> None:
    report = await run(MISSING, Behaviour(default=Mix(duration_seconds=10), workers=MEMBERS), count=20)
    assert report.misses == ()


async def test_max_failures_holds_the_batch_and_says_what_that_stops() -> None:
    text = HEAD + "max_failures: 10\n" + BODY
    report = await run(text, Behaviour(default=NONE, functions={"Look": Mix(fail=0.5)}))
    (hold,) = report.holds
    prep, go = report.batches[0].phases
    assert report.batches[0].status == "held"
    assert "more than max_failures allows" in hold.reason
    assert (prep.status, go.status, go.began_at) == ("failed", "pending", None)
    assert hold.phases_waiting == ("go",)
    assert prep.failed > 10
    assert hold.members_stopped + prep.failed == MEMBERS
    assert hold.steps_cancelled >= hold.members_stopped
    assert {one.what for one in report.misses} == {"failed", "stopped"}
    assert report.members_missing == MEMBERS


async def test_the_same_seed_gives_the_same_report_and_another_one_another() -> None:
    text = HEAD + "retry: {max_retries: 1, interval: 1m}\n" + BODY
    behaviour = Behaviour(default=USUAL, workers=20)
    first = await run(text, behaviour, 7, 60)
    assert first == await run(text, behaviour, 7, 60)
    assert to_json(first) != to_json(await run(text, behaviour, 8, 60))


async def test_with_a_mix_every_member_ends_in_every_phase() -> None:
    text = HEAD + "retry: {max_retries: 1, interval: 1m}\nprogression: independent\nmax_parallel: 40\n" + BODY
    report = await run(text, Behaviour(default=Mix(fail=0.3, throttle=0.1, lost=0.05)))
    for line in report.batches[0].phases:
        assert line.unfinished == 0
        assert line.done + line.failed + line.rolled_back + line.cancelled == MEMBERS
        assert line.ended_at is not None
    assert report.batches[0].ended_at is not None
    assert report.jobs["retries"] > 0
    assert 20 < report.workers[0].in_flight_max + report.workers[0].queue_max <= 40
    answered = ("success", "running", "fail", "throttle", "lost", "withdrawn")
    assert report.jobs["jobs"] == sum(report.jobs[name] for name in answered)


async def test_batches_come_from_the_time_column_and_unusable_rows_take_no_part() -> None:
    head = HEAD.replace("batch_time: immediate", "batch_time_column: Day")
    content = (head + BODY).encode()
    rows = b"Upn,Day\na,2026-12-01T08:00Z\nb,2026-12-03\nc,never\n"
    members = csv_members(rows, read_runbook(content), None)
    report = await rehearse(content, members, None, Behaviour(default=NONE))
    assert [(one.members, one.status) for one in report.batches] == [(1, "completed")] * 2
    assert len(report.faults) == 1
    assert report.faults[0].startswith("line 4")


async def test_phases_that_were_due_before_the_batch_was_made_begin_at_once() -> None:
    content = MISSING.encode()
    members = made_up_members(read_runbook(content), 5, START)
    report = await rehearse(content, members, START, Behaviour(default=NONE), now=START)
    assert report.begins_at == START
    assert [one.began_at for one in report.batches[0].phases] == [START, START, START + 24 * HOUR]


async def test_a_runbook_with_faults_is_refused() -> None:
    members = made_up_members(read_runbook(MISSING.encode()), 1, START)
    with pytest.raises(RunbookInvalid):
        await rehearse(b"name: late", members, START)


async def test_the_source_is_not_read_even_if_its_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setenv("LUCIUS_SOURCE_NOWHERE", "sqlite:///nowhere.db")
    monkeypatch.setattr("lucius.runbooks.loops.source_rounds.read_source_members", lambda *args: asked.append(args))
    report = await run(count=3)
    assert report.batches[0].status == "completed"
    assert asked == []

"""Plans and rehearsals know what makes phases and steps wait."""

from __future__ import annotations

from lucius.cli.runbooks.rehearsal_tables import planned_waits, rehearsed_waits
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.rehearsal.behaviour import Behaviour, Mix
from lucius.runbooks.rehearsal.members import made_up_members
from lucius.runbooks.rehearsal.plan import make_plan
from lucius.runbooks.rehearsal.rehearsal import rehearse

START = 1_796_112_000_000
"""2026-12-01T08:00Z, a Tuesday."""
HOUR = 3_600_000
HEAD = "name: move\ndata_source: {type: manual, primary_key: Upn}\n"
NIGHTS = 'windows: [{from: "22:00", to: "06:00"}]\nfreeze: [{from: 2026-12-02, to: 2026-12-03, reason: audit}]\n'
PHASES = """
init: [{name: check, worker_id: cloud, function: Check, timeout: 9h}]
phases:
  - {name: prep, offset: T-3h, steps: [{name: look, worker_id: cloud, function: Look, timeout: 9h}]}
  - name: go
    offset: T-0
    steps:
      - {name: move, worker_id: cloud, function: Move, params: {Upn: "{{Upn}}"}, timeout: 9h}
      - {name: tell, worker_id: cloud, function: Tell, params: {Upn: "{{Upn}}"}, timeout: 9h}
"""
SLOW = Behaviour(default=Mix(duration_seconds=3 * HOUR / 1000 / 4))


def test_the_plan_says_when_a_phase_begins_and_why_it_waits() -> None:
    content = (HEAD + NIGHTS + PHASES).encode()
    plan = make_plan(content, made_up_members(read_runbook(content), 3, START), START, START - 10 * HOUR)
    prep, go = plan.batches[0].phases
    assert (prep.begins_at, prep.waits_because) == (prep.due_at, None)
    assert (go.begins_at - START, go.waits_because) == (14 * HOUR, "outside its windows")
    assert planned_waits(plan.batches) == [
        "Phase go, due at 2026-12-01 08:00, begins at 2026-12-01 22:00: outside its windows."
    ]


async def test_the_rehearsal_waits_for_windows_and_freezes_between_phases_and_steps() -> None:
    content = (HEAD + NIGHTS + PHASES).encode()
    members = made_up_members(read_runbook(content), 3, START)
    report = await rehearse(content, members, START, SLOW, grain_seconds=60)
    batch = report.batches[0]
    _, go = batch.phases
    assert (batch.status, go.waits_because) == ("completed", "outside its windows")
    move, tell = go.steps
    assert (move.began_at or 0) - START == 14 * HOUR
    assert (tell.began_at or 0) - START < 24 * HOUR - 8 * HOUR  # Before the freeze begins at midnight.
    assert rehearsed_waits(report.batches) == [
        "Phase go, due at 2026-12-01 08:00, begins at 2026-12-01 22:00: outside its windows."
    ]


async def test_steps_of_a_rehearsal_wait_for_the_end_of_a_freeze() -> None:
    content = (HEAD + "freeze: [{from: 2026-12-02, to: 2026-12-03, reason: audit}]\n" + PHASES).encode()
    members = made_up_members(read_runbook(content), 3, START)
    slow = Behaviour(default=Mix(duration_seconds=3_000))
    late = START + 15 * HOUR + HOUR // 2
    report = await rehearse(content, members, late, slow, grain_seconds=60)
    move, tell = report.batches[0].phases[1].steps
    assert (move.began_at, (tell.began_at or 0) - START) == (late, 64 * HOUR)
    assert report.batches[0].status == "completed"

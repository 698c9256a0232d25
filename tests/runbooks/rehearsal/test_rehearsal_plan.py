"""Plans: what will happen to whom, from the text and the members alone."""

from __future__ import annotations

import pytest

from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.rehearsal.members import csv_members, made_up_members
from lucius.runbooks.rehearsal.plan import RehearsalPlan, make_plan
from lucius.runbooks.rehearsal.report import to_json
from lucius.runbooks.sources.limits import SourceError

HOUR = 3_600
START = 1_796_112_000_000
"""2026-12-01T08:00Z"""

YAML = b"""
name: move
data_source:
  type: csv
  connection: LUCIUS_SOURCE_PEOPLE
  primary_key: Upn
  batch_time_column: Day
  multi_valued_columns: [{name: Aliases, format: semicolon_delimited}]
retry: {max_retries: 1, interval: 1m}
max_parallel: 2
init:
  - {name: check, worker_id: cloud, function: Check, timeout: 10m, retry: {max_retries: 0}}
phases:
  - name: prep
    offset: T-1h
    steps:
      - {name: look, worker_id: cloud, function: "Get-{{Kind}}", params: {Upn: "{{Upn}}", Aliases: "{{Aliases}}"},
         output_params: {Guid: guid}, timeout: 10m}
      - {name: tell, worker_id: mail, function: Tell, timeout: 10m,
         params: {Deep: [{Text: "{{Upn}}: {{Guid}} in {{_batch_id}} at {{_batch_start_time}}"}]}}
  - name: go
    offset: T-0
    steps:
      - {name: move, worker_id: cloud, function: Move, params: {Guid: "{{Guid}}"}, poll: {interval: 5m, timeout: 2h}}
"""
CSV = (
    b"Upn,Kind,Aliases,Day\nanna,Mailbox,a;b,2026-12-01T08:00Z\nbert,User,,2026-12-01T08:00Z\n"
    b"carl,User,c,2026-12-01T08:00Z\ndora,User,d,2026-12-08\nemil,User,e,soon\n"
)


def plan(
    csv: bytes = CSV, start: int | None = None, now: int = START - 10 * HOUR * 1000, **options: object
) -> RehearsalPlan:
    members = csv_members(csv, read_runbook(YAML), start)
    return make_plan(YAML, members, start, now, **options)  # type: ignore[arg-type]


def test_batches_are_by_the_time_column() -> None:
    made = plan()
    assert [(one.start, one.members) for one in made.batches] == [(START, 3), (1_796_688_000_000, 1)]
    assert made.members == 4


def test_a_given_start_makes_one_batch_of_everybody() -> None:
    made = plan(start=START + 1)
    assert [(one.start, one.members) for one in made.batches] == [(START + 1, 5)]


def test_phases_have_their_moments_and_how_far_they_are_away() -> None:
    now = START - 30 * 60_000
    prep, go = plan(now=now).batches[0].phases
    assert (prep.offset, prep.due_at, prep.away_seconds, prep.is_overdue) == ("T-1h", START - 3_600_000, -1_800, True)
    assert (go.offset, go.due_at, go.away_seconds, go.is_overdue) == ("T-0", START, 1_800, False)


def test_a_phase_that_may_outlast_its_window_is_too_short() -> None:
    batch, alone = plan().batches
    prep, go = batch.phases
    # Three members in two turns, two steps of two tries of ten minutes a minute apart.
    assert prep.worst_seconds == 2 * 2 * (2 * 600 + 60)
    assert (prep.window_seconds, prep.until, prep.is_too_short) == (HOUR, "phase go", True)
    assert go.worst_seconds == 2 * (2 * HOUR + 60) + 2 * HOUR
    assert (go.window_seconds, go.is_too_short) == (None, False)
    assert alone.phases[0].worst_seconds == 2 * (2 * 600 + 60)
    assert not alone.phases[0].is_too_short
    assert batch.init_worst_seconds == 600


def test_steps_say_how_they_are_run() -> None:
    move = plan().batches[0].phases[1].steps[0]
    assert (move.worker_id, move.function, move.timeout_seconds) == ("cloud", "Move", HOUR)
    assert (move.max_retries, move.retry_interval_seconds) == (1, 60)
    assert (move.poll_interval_seconds, move.poll_timeout_seconds) == (300, 2 * HOUR)


def test_members_have_their_parameters_and_what_is_filled_in_later() -> None:
    anna = plan().shown[0]
    look, tell, move = anna.steps
    assert anna.member == "anna"
    assert (look.function, look.params, look.waits_for) == ("Get-Mailbox", {"Upn": "anna", "Aliases": ["a", "b"]}, ())
    text = "anna: {{Guid}} in {{_batch_id}} at 2026-12-01T08:00:00Z"
    assert tell.params == {"Deep": [{"Text": text}]}
    assert tell.waits_for == ("Guid", "_batch_id")
    assert (move.params, move.waits_for, move.fault) == ({"Guid": "{{Guid}}"}, ("Guid",), None)


def test_the_first_members_are_shown_or_those_that_are_named() -> None:
    assert [one.member for one in plan(limit=2).shown] == ["anna", "bert"]
    named = plan(keys=("dora", "nobody"))
    assert [one.member for one in named.shown] == ["dora"]
    assert any("nobody" in fault for fault in named.faults)


def test_rows_that_cannot_be_used_are_named() -> None:
    assert len(plan().faults) == 1
    assert "line 6 (emil)" in plan().faults[0]


def test_variables_that_are_no_column_are_named_with_line_and_step() -> None:
    made = plan(CSV.replace(b"Kind", b"Sort"))
    assert any(fault.startswith("line 17:") and "Kind" in fault for fault in made.faults)
    assert "Kind" in (made.shown[0].steps[0].fault or "")
    assert made.shown[0].steps[1].fault is None


def test_what_cannot_be_planned_is_refused() -> None:
    manual = read_runbook(YAML.replace(b"  batch_time_column: Day\n", b"  batch_time: immediate\n"))
    with pytest.raises(SourceError, match="--start"):
        csv_members(CSV, manual, None)
    with pytest.raises(SourceError, match="no usable member"):
        csv_members(b"Upn,Kind,Aliases,Day\n", read_runbook(YAML), START)
    with pytest.raises(RunbookInvalid):
        make_plan(b"name: 1", made_up_members(manual, 1, START), START, START)


def test_made_up_members_have_the_columns_that_templates_ask_for() -> None:
    members = made_up_members(read_runbook(YAML), 300, START)
    assert members.columns == ("Upn", "Kind", "Aliases")
    assert len(members.members) == 300
    made = make_plan(YAML, members, START, START)
    assert made.shown[0].steps[0].params == {"Upn": "member-00001", "Aliases": ["Aliases-00001"]}
    assert all(step.fault is None for step in made.shown[0].steps)


def test_json_has_moments_as_text_and_parameters_as_they_are() -> None:
    found = to_json(plan())
    assert found["batches"][0]["start"] == "2026-12-01T08:00:00Z"
    assert found["batches"][0]["phases"][0]["due_at"] == "2026-12-01T07:00:00Z"
    assert found["shown"][0]["steps"][0]["params"]["Upn"] == "anna"

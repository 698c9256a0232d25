"""Runbooks and batches as people see them: grids of any width, phases, events, explanations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lucius.cli.output.tables import table_lines
from lucius.cli.runbooks.grid import SIGNS, StepColumn, columns_of, error_lines, grid_lines, grid_view, layout_of
from lucius.cli.runbooks.progress import batch_lines, batch_view, phases_text
from lucius.cli.runbooks.render import STATUS_STYLES, difference_lines, dry_run_lines, event_table, preview_table
from lucius.cli.runbooks.watch import EventLines
from lucius.cli.runbooks.why import explain_batch, explain_member
from lucius.runbooks.core.states import BATCH, PHASE, STEP

NOW = datetime(2027, 3, 15, 12, 0, tzinfo=UTC)


def member(key: str, *statuses: str, **fields: Any) -> dict[str, Any]:
    steps = [{"phase": f"p{place // 2}", "step": f"some-step-{place}", "status": s} for place, s in enumerate(statuses)]
    return {"member": key, "status": "active", "failed_at": None, "steps": steps, "followups": [], **fields}


def batch(**fields: Any) -> dict[str, Any]:
    phases = [
        {"phase": "prepare", "version": 2, "offset": "T-1d", "due_at": "2027-03-14T12:00:00Z", "status": "dispatched",
         "dispatched_at": "2027-03-15T11:00:00Z", "completed_at": None, "error": None,
         "steps": [{"step": "create", "step_index": 0, "counts": {"succeeded": 6, "polling": 2}}]},
        {"phase": "move", "version": 2, "offset": "T-0", "due_at": "2027-03-15T14:00:00Z", "status": "pending",
         "dispatched_at": None, "completed_at": None, "error": None, "steps": []},
    ]  # fmt: skip
    return {
        "batch_id": 7, "runbook": "mail", "version": 2, "status": "active", "start": "2027-03-15T14:00:00Z",
        "held_at": None, "hold_reason": None, "error": None, "detected_at": "2027-03-15T10:00:00Z",
        "completed_at": None, "members": {"active": 8, "failed": 0, "removed": 1}, "init": [], "phase_list": phases,
        "waiting_for": ["phase prepare is at step 1 of 1 (create): 2 steps poll"], **fields,
    }  # fmt: skip


def test_every_status_of_a_step_has_a_sign_of_its_own_and_every_status_a_colour() -> None:
    assert set(SIGNS) == set(STEP)
    assert len(set(SIGNS.values())) == len(SIGNS)
    assert {*STEP, *BATCH, *PHASE} <= set(STATUS_STYLES)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("steps", [1, 4, 12, 40])
def test_a_grid_fits_on_any_terminal_and_shows_every_step_of_every_member(width: int, steps: int) -> None:
    statuses = [list(SIGNS)[place % len(SIGNS)] for place in range(steps)]
    members = [member("somebody.with.a.long.name@contoso.com", *statuses), member("ann@contoso.com", *statuses)]
    columns = columns_of({}, members)
    lines = [line.plain for line in grid_view(columns, members, width) if line.no_wrap]  # The rest is broken by words.
    assert len(lines) >= 3
    assert [line for line in lines if len(line) > width] == []
    signs = [letter for line in lines if line.startswith("ann@") for letter in line if letter in SIGNS.values()]
    assert signs == [SIGNS[status] for status in statuses]


def test_names_are_broken_at_hyphens_before_they_are_numbered() -> None:
    columns = [StepColumn("move", "complete-mailbox-move"), StepColumn("clean-up", "done")]
    assert (
        layout_of(columns, 60).headers
        == [
            [
                "complete-mailb…",
            ],
            ["done"],
        ]
        or not layout_of(columns, 60).is_numbered
    )
    assert layout_of(columns, 22).headers[0] == ["complete-", "mailbox-", "move"]
    assert layout_of(columns, 10).is_numbered


def test_a_plain_grid_has_whole_names_signs_and_errors() -> None:
    failed = member("bob@contoso.com", "succeeded", "failed", failed_at="2027-03-15T11:00:00Z")
    failed["steps"][1]["error"] = "no such mailbox\x1b[31m"
    gone = member("cy@contoso.com", "succeeded", status="removed")
    members = [member("ann@contoso.com", "succeeded", "polling"), failed, gone]
    lines = grid_lines(columns_of({}, members), members)
    assert lines[0].split() == ["MEMBER", "P0/SOME-STEP-0", "P0/SOME-STEP-1", "STANDING"]
    assert lines[1].split() == ["ann@contoso.com", "✓", "~"]
    assert lines[2].split() == ["bob@contoso.com", "✓", "✗", "failed"]
    assert lines[3].split() == ["cy@contoso.com", "✓", "removed"]
    assert "✓ succeeded   ~ polling   ✗ failed" in lines
    assert lines[-1] == "bob@contoso.com: some-step-1 failed: no such mailbox [31m"


def test_errors_below_a_grid_are_limited_and_say_so() -> None:
    members = [member(f"m{place}", "failed") for place in range(25)]
    for one in members:
        one["steps"][0]["error"] = "broken"
    lines = error_lines(members)
    assert len(lines) == 12
    assert lines[-1].startswith("and 15 more")


def test_a_batch_is_told_with_its_phases_and_what_it_waits_for() -> None:
    lines = batch_lines(batch(), NOW)
    assert "Waits    phase prepare is at step 1 of 1 (create): 2 steps poll" in lines
    assert any(
        line.split() == ["prepare", "T-1d", "dispatched", "6", "/", "8", "steps", "1", "h", "00", "min"]
        for line in lines
    )
    assert any(line.split() == ["create", "6", "succeeded,", "2", "polling"] for line in lines)
    assert any(line.endswith("due in 2 h 00 min") for line in lines)
    assert not any(line.startswith("Waits") for line in batch_lines(batch(status="failed"), NOW))
    assert phases_text({"completed": 2, "failed": 1, "pending": 1}) == "3 of 4"


@pytest.mark.parametrize("live", [False, True])
def test_a_batch_on_a_terminal_has_bars_and_keeps_to_its_width(live: bool) -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    event = {"id": 1, "at": "2027-03-15T11:00:00Z", "kind": "phase-dispatched", "detail": {"phase": "prepare" * 30}}
    with console.file:
        console.print(batch_view(batch(), NOW, 80, [event], live=live))
    text = console.export_text()
    assert "━━━━━━━━━━━━ 6 / 8 steps" in text
    assert "11:00:00  phase-dispatched" in text
    assert max(map(len, text.splitlines())) <= 80


def test_events_are_told_once_and_oldest_first() -> None:
    told = EventLines()
    first = {"id": 1, "at": "2027-03-15T11:00:00Z", "kind": "batch-active", "detail": {}}
    second = {"id": 2, "at": "2027-03-15T11:00:01Z", "kind": "step-failed", "member": "ann", "detail": {"step": "a"}}
    assert told.of([first]) == ["11:00:00  batch-active"]
    assert told.of([second, first]) == ["11:00:01  step-failed  ann  step=a"]
    assert told.of([second, first]) == []


def test_events_of_one_day_have_it_over_their_column() -> None:
    events = [{"id": 1, "at": "2027-03-15T11:00:00Z", "kind": "batch-active", "actor": "x", "detail": {}}]
    assert table_lines(event_table(events, False, is_brief=True))[0].startswith("2027-03-15 UTC")
    assert "2027-03-15 11:00:00" in table_lines(event_table(events, False, is_brief=False))[1]
    other = [*events, {**events[0], "at": "2027-03-16T11:00:00Z"}]
    assert "2027-03-15 11:00:00" in table_lines(event_table(other, False, is_brief=True))[1]


def test_why_names_the_command_to_go_on_with() -> None:
    waiting = explain_batch(batch(), NOW)
    assert "Phase prepare is at step 1 of 1 (create): 2 steps poll." in waiting.sentences
    assert "lucius batch advance 7" in dict(waiting.commands)
    held = explain_batch(batch(held_at="2027-03-15T11:00:00Z", hold_reason="3 members failed"), NOW)
    assert held.sentences[:2] == ["Batch 7 (mail, version 2) is held.", "The reason: 3 members failed."]
    assert "lucius batch resume 7" in dict(held.commands)
    assert "lucius batch advance 7" not in dict(held.commands)
    ended = explain_batch(batch(status="failed", members={"failed": 2}), NOW)
    assert "lucius batch retry 7" in dict(ended.commands)
    assert "lucius batch cancel 7" not in dict(ended.commands)
    failed = member("ann", "failed", failed_at="2027-03-15T11:00:00Z", waiting_for="failed at step a: no")
    failed["steps"][0]["error"] = "no"
    told = explain_member(batch(), failed, NOW)
    assert "Failed at step a: no." in told.sentences
    assert "lucius batch retry 7 ann" in dict(told.commands)


def test_differences_previews_and_dry_runs_are_readable() -> None:
    found = [
        {"kind": "changed", "where": "phase a / offset", "before": "T-1d", "after": "T-2d"},
        {"kind": "removed", "where": "phase b", "before": "T-0, steps x", "after": None},
    ]
    assert difference_lines(found) == ["~ phase a / offset: T-1d → T-2d", "- phase b: T-0, steps x"]
    preview = preview_table({"columns": ["Key", "Tags"], "rows": [["ann", ["a", "b"]]]}, None)
    assert table_lines(preview) == ["KEY  TAGS", 'ann  ["a", "b"]']
    step = {"phase": "p", "step": "s", "worker_id": "w", "function": "F", "params": {"Guid": "{{Guid}}"},
            "waits_for": ["Guid"], "fault": None}  # fmt: skip
    answer = {"name": "mail", "version": 2, "start": "2027-03-15T14:00:00Z", "total_members": 3,
              "phases": [{"name": "p", "offset": "T-0", "due_at": "2027-03-15T14:00:00Z"}],
              "members": [{"member": "ann", "steps": [step, {**step, "fault": "no column X"}]}]}  # fmt: skip
    lines = dry_run_lines(answer, NOW)
    assert "  T-0     p, due 2027-03-15T14:00:00Z (in 2 h 00 min)" in lines
    assert "  p / s: F at w" in lines
    assert "      filled in when it is sent: Guid" in lines
    assert "      FAULT: no column X" in lines
    assert lines[-1] == "1 of 3 members; --limit shows more."

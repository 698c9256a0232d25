"""What a job looks like: plain functions over a job's JSON."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from lucius.cli.jobs import render
from lucius.cli.jobs.watch import ChangeLines
from lucius.cli.output import formatting, tables

NOW = datetime(2026, 1, 31, 8, 16, 0, tzinfo=UTC)


def job(**fields: Any) -> dict[str, Any]:
    return {
        "jobId": "0192-j1",
        "tenant_id": "demo",
        "request_type": "OCR_EMBEDDING",
        "status": "IN_PROGRESS",
        "current_step_id": "embedding",
        "progress": 0.5,
        "waiting_on": {
            "what": "BACKOFF",
            "since": "",
            "until": "2026-01-31T08:16:30Z",
            "sentence": "Waits for a retry.",
        },
        "created_at": "2026-01-31T08:15:30.000Z",
        "completed_at": None,
        "error": None,
        "redrive_of": None,
        "steps": [
            {
                "stepId": "ocr",
                "service": "ocr",
                "status": "SUCCEEDED",
                "attempt_no": 1,
                "started_at": "2026-01-31T08:15:30.100Z",
                "completed_at": "2026-01-31T08:15:30.350Z",
            },
            {
                "stepId": "embedding",
                "service": "embedding",
                "status": "FAILED_RETRY",
                "attempt_no": 2,
                "progress": 0.4,
                "note": "chunk 7",
                "started_at": "2026-01-31T08:15:31.000Z",
                "error": {"code": "IO_ERROR", "message": "disk [bold]full[/bold]\x1b[2J"},
            },
        ],
        **fields,
    }


def rich_text(view: Any, terminal: bool = False, width: int = 160) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system="truecolor" if terminal else None
    )
    console.print(view)
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]
    return shown


def test_a_job_is_shown_with_its_steps_and_what_it_waits_for() -> None:
    lines = "\n".join(render.job_lines(job(), NOW))
    for part in ("0192-j1", "OCR_EMBEDDING of demo", "IN_PROGRESS 50 %", "30.0 s", "Waits for a retry.", "08:16:30"):
        assert part in lines
    assert "ocr        ocr        SUCCEEDED     1        100 %     0.25 s" in lines
    assert "IO_ERROR: disk [bold]full[/bold] [2J" in lines
    assert "\x1b" not in lines


def test_the_rich_view_says_the_same_and_takes_no_markup_from_services() -> None:
    plain = rich_text(render.job_view(job(), NOW, 160))
    for part in ("0192-j1", "Waits for a retry.", "FAILED_RETRY", "disk [bold]full[/bold]", "40 %"):
        assert part in plain
    assert "\x1b" not in plain
    assert "\x1b[2J" not in rich_text(render.job_view(job(), NOW, 160), terminal=True)
    assert "0192-j1" in rich_text(tables.table_view(render.job_table([job()], NOW), 160))


@pytest.mark.parametrize(
    "empty", [{}, {"steps": None}, {"steps": [{}]}, {"created_at": "whenever", "progress": "much"}]
)
def test_a_job_with_missing_fields_is_shown_all_the_same(empty: dict[str, Any]) -> None:
    assert render.job_lines(empty, NOW)
    rich_text(render.job_view(empty, NOW, 160))
    render.change_lines(None, empty, NOW)
    assert tables.table_lines(render.job_table([empty], NOW))


def test_only_changes_are_told() -> None:
    first = render.change_lines(None, job(), NOW)
    assert [line.split()[2:4] for line in first] == [["job", "IN_PROGRESS"], ["step", "ocr"], ["step", "embedding"]]
    assert render.change_lines(job(), job(), NOW) == []
    ended = job(
        status="FAILED_FINAL", error={"code": "IO_ERROR", "message": "disk full"}, completed_at="2026-01-31T08:15:40Z"
    )
    (line,) = render.change_lines(job(), ended, NOW)
    assert line.endswith("job FAILED_FINAL  IO_ERROR: disk full")
    pending = job(steps=[{"stepId": "ocr", "status": "PENDING", "attempt_no": 0}])
    assert len(render.change_lines(None, pending, NOW)) == 1


def test_every_attempt_has_a_line() -> None:
    attempts = [
        {"attempt_no": 1, "status": "FAILED", "started_at": "2026-01-31T08:15:30Z", "ended_at": "2026-01-31T08:15:35Z"},
        {"attempt_no": 2, "status": "LIVE", "started_at": "2026-01-31T08:15:50Z", "ended_at": None},
    ]
    lines = tables.table_lines(render.attempt_table([{"stepId": "ocr", "attempts": attempts}], NOW))
    assert [line.split()[:3] for line in lines[1:]] == [["ocr", "1", "FAILED"], ["ocr", "2", "LIVE"]]
    assert "5.0 s" in lines[1]
    assert "10.0 s" in lines[2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00 s"),
        (0.351, "0.35 s"),
        (12.44, "12.4 s"),
        (185, "3 min 05 s"),
        (7_800, "2 h 10 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert formatting.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-12.44, "12.4 s ago"), (0, "0.00 s ago"), (30, "in 30.0 s"), (7_800, "in 2 h 10 min")]
)
def test_a_distance_says_on_which_side_of_now_it_lies(seconds: float, text: str) -> None:
    assert formatting.distance((NOW + timedelta(seconds=seconds)).isoformat(), NOW) == text
    assert formatting.distance("whenever", NOW) == ""


LONG = "the model could not be loaded: " + "out of memory, " * 260


def wide_lines(text: str, width: int) -> list[str]:
    return [line for line in text.splitlines() if len(line.rstrip()) > width]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_however_long_the_error(width: int) -> None:
    failed = job(
        jobId="01a1e195-612e-76ac-955a-9be48ae03544",
        waiting_on={"what": "RETRY", "sentence": f"Step embedding will be tried again: {LONG}", "until": None},
        error={"code": "OOM", "message": LONG},
    )
    failed["steps"][1]["error"] = {"code": "OOM", "message": LONG}
    live = rich_text(render.job_view(failed, NOW, width, live=True), width=width)
    whole = rich_text(render.job_view(failed, NOW, width), width=width)
    for shown in (live, whole):
        assert wide_lines(shown, width) == []
        for part in ("embedding", "FAILED_RETRY", "40 %", "29.0 s"):
            assert part in shown
    # A view that is redrawn stays on one screen; the last one says everything.
    assert len(live.splitlines()) <= 22
    assert whole.count("memory,") == 3 * 260
    row = rich_text(tables.table_view(render.job_table([failed], NOW), width), width=width).splitlines()[1]
    assert row.startswith("01a1e195-612e-76ac-955a-9be48ae03544  demo  ")
    assert wide_lines(row, width) == []


def test_columns_that_do_not_fit_are_left_out_least_needed_first() -> None:
    columns = (tables.Column("A"), tables.Column("B", dispensable=1), tables.Column("C", dispensable=2))
    table = tables.Table(columns, [("aaaa", "bbbb", "cccc")], "Note", ["n" * 10])
    assert rich_text(tables.table_view(table, 28)).splitlines()[1].rstrip() == "aaaa  bbbb  cccc  nnnnnnnnnn"
    assert rich_text(tables.table_view(table, 16)).splitlines()[1].rstrip() == "aaaa  bbbb  cccc"
    assert rich_text(tables.table_view(table, 15)).splitlines()[1].rstrip() == "aaaa  bbbb"
    narrow = rich_text(tables.table_view(table, 4), width=40).splitlines()
    assert [line.rstrip() for line in narrow] == ["A", "aaaa", "    nnnnnnnnnn"]
    assert tables.table_lines(table) == ["A     B     C     NOTE", "aaaa  bbbb  cccc  nnnnnnnnnn"]


def test_waits_that_last_are_told_where_nothing_is_redrawn() -> None:
    def waiting(what: str, since: str) -> dict[str, Any]:
        return job(waiting_on={"what": what, "since": since, "until": None, "sentence": f"For {what}."})

    lines = ChangeLines()
    assert not any("waits" in line for line in lines.of(waiting("ACK", "2026-01-31T08:15:59Z"), NOW))
    later = NOW + timedelta(seconds=10)
    assert lines.of(waiting("ACK", "2026-01-31T08:15:59Z"), later) == ["  40.0 s  waits  For ACK."]
    assert lines.of(waiting("ACK", "2026-01-31T08:15:59Z"), later) == []
    assert lines.of(waiting("RETRY", "2026-01-31T08:16:10Z"), later) == ["  40.0 s  waits  For RETRY."]


def test_events_are_told_whole_to_programs_and_in_brief_to_people() -> None:
    events = [
        {"seq": 1, "at": "2026-01-31T08:15:30.250Z", "type": "ACCEPTED", "stepId": None, "job_status": "QUEUED"},
        {"seq": 2, "at": "2026-01-31T08:15:31.000Z", "type": "ACK", "stepId": "ocr", "attempt_no": 2, "lease_id": "l9",
         "job_status": "IN_PROGRESS", "step_status": "PROCESSING", "outcome": "APPLIED"},
        {"seq": 3, "at": "2026-01-31T08:15:32.000Z", "type": "ACK", "stepId": "ocr", "attempt_no": 2,
         "outcome": "DUPLICATE"},
    ]  # fmt: skip
    whole = tables.table_lines(render.event_table(events))
    assert whole[2].startswith("2026-01-31T08:15:31.000Z  ACK       ocr   2        {")
    assert '"lease_id": "l9"' in whole[2]
    brief = rich_text(tables.table_view(render.event_table_in_brief(events), 80), width=80).splitlines()
    assert [line.split() for line in brief] == [
        ["2026-01-31", "UTC", "Type", "Step", "No", "Status"],
        ["08:15:30.250", "ACCEPTED", "QUEUED"],
        ["08:15:31.000", "ACK", "ocr", "2", "PROCESSING"],
        ["08:15:32.000", "ACK", "ocr", "2", "outcome=DUPLICATE"],
    ]
    events[2]["at"] = "2026-02-01T00:00:00Z"
    assert "2026-01-31 08:15:30.250" in rich_text(tables.table_view(render.event_table_in_brief(events), 80))


def test_a_job_whose_rows_cannot_be_read_shows_that_in_place_of_its_status() -> None:
    unreadable = {
        "jobId": "0192-j2",
        "tenant_id": "demo",
        "error": {"code": "ROW_UNREADABLE", "message": "see the log"},
    }
    (_, line) = tables.table_lines(render.job_table([unreadable], NOW))
    assert line.split() == ["0192-j2", "demo", "ROW_UNREADABLE"]


def test_a_job_that_is_asked_for_shows_its_refs() -> None:
    shown = job(input_ref={"uri": "file:///in.pdf"}, output_ref="file:///out.json")
    lines = "\n".join(render.job_lines(shown, NOW, refs=True))
    assert re.search(r"^Input +file:///in.pdf$", lines, re.MULTILINE)
    assert re.search(r"^Output +file:///out.json$", lines, re.MULTILINE)
    assert "file:///in.pdf" in rich_text(render.job_view(shown, NOW, 160, refs=True))
    done = "\n".join(render.job_lines({**shown, "status": "SUCCEEDED"}, NOW, refs=True))
    assert re.search(r"^Result +file:///out.json$", done, re.MULTILINE)
    assert "Output" not in done


def test_a_failure_shows_where_it_was_raised_and_by_which_instance() -> None:
    frames = [{"file": "service.py", "line": 8, "function": "work"}, {"file": "pdf.py", "line": 12, "function": "read"}]
    error = {"code": "SERVICE_DEFECT", "message": "KeyError", "frames": frames, "instance": "host.17.ab\x1b[2J"}
    lines = "\n".join(render.job_lines(job(status="FAILED_FINAL", error=error), NOW))
    assert re.search(r"^Raised at +pdf.py:12 in read, service.py:8 in work$", lines, re.MULTILINE)
    assert "host.17.ab" in lines
    assert "\x1b" not in lines

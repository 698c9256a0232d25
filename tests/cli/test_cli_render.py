"""What a job looks like: plain functions over a job's JSON."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from lucius.cli import render

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


def rich_text(view: Any, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=160, force_terminal=terminal, color_system="truecolor" if terminal else None
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
    plain = rich_text(render.job_view(job(), NOW))
    for part in ("0192-j1", "Waits for a retry.", "FAILED_RETRY", "disk [bold]full[/bold]", "40 %"):
        assert part in plain
    assert "\x1b" not in plain
    assert "\x1b[2J" not in rich_text(render.job_view(job(), NOW), terminal=True)
    assert "0192-j1" in rich_text(render.jobs_view([job()], NOW))


@pytest.mark.parametrize(
    "empty", [{}, {"steps": None}, {"steps": [{}]}, {"created_at": "whenever", "progress": "much"}]
)
def test_a_job_with_missing_fields_is_shown_all_the_same(empty: dict[str, Any]) -> None:
    assert render.job_lines(empty, NOW)
    rich_text(render.job_view(empty, NOW))
    render.change_lines(None, empty, NOW)
    render.job_cells(empty, NOW)


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
    lines = render.attempt_lines([{"stepId": "ocr", "attempts": attempts}], NOW)
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
    assert render.duration_text(seconds) == text

"""`lucius notifications`, `lucius archive` and `lucius prune`: what they make of the server's answers."""

from __future__ import annotations

import json
from typing import Any

SENT: dict[str, Any] = {
    "id": "018f6b1e7c00-1", "cause": "batch_held", "recipient": "teams", "kind": "json", "status": "PENDING",
    "title": "Held: batch 7 of runbook move", "text": "", "runbook": "move", "batch_id": 7, "tenant_id": None,
    "jobId": None, "count": 1, "created_at": "2026-01-31T08:15:30.250Z", "due_at": "2026-01-31T08:15:30.250Z",
    "next_try_at": "2026-01-31T08:16:00.000Z", "ended_at": None, "attempts": 2,
    "last_error": "the receiver answered 500",
}  # fmt: skip
JOB = "018f6b1e-7c00-7000-8000-0123456789ab"
ARCHIVED: dict[str, Any] = {
    "format": 1, "jobId": JOB, "tenant_id": "acme", "archived_at": "2026-03-31T00:00:00.000Z", "closing": None,
    "job": {
        "spec": {"request_type": "OCR", "created_at": "2026-01-31T08:15:30.250Z"}, "status": "FAILED_FINAL",
        "completed_at": "2026-01-31T08:16:30.250Z", "error": {"code": "BAD_INPUT", "message": "not a PDF"},
        "steps": [{"spec": {"step_id": "ocr"}, "status": "FAILED_FINAL"}],
    },
    "attempts": {"ocr": [
        {"attempt_no": 1, "status": "FAILED", "error": {"code": "BAD_INPUT", "message": "not a PDF"}},
    ]},
    "events": [{"at": "2026-01-31T08:15:30.250Z", "type": "ACCEPTED"}],
}  # fmt: skip


def test_notifications_are_listed_with_why_they_fail(scripted: Any) -> None:
    scripted.on("GET /v1/notifications", {"items": [SENT], "next": None}, {"items": [], "next": None})
    shown = scripted.lucius("notifications", "list").stdout
    for part in ("move", "teams", "PENDING", "Held: batch 7 of runbook move", "the receiver answered 500"):
        assert part in shown
    assert scripted.lucius("notifications", "list").stderr == "No notifications.\n"


def test_a_test_waits_for_the_first_try_and_says_what_became_of_it(scripted: Any) -> None:
    waiting = SENT | {"attempts": 0, "last_error": None}
    scripted.on("POST /v1/notifications:test", waiting, SENT | {"status": "DELIVERED"}, status=202)
    scripted.on(f"GET /v1/notifications/{SENT['id']}", SENT)
    failed = scripted.lucius("notifications", "test", "teams", "--runbook", "move")
    assert (failed.exit_code, failed.stdout) == (1, "Not delivered to teams: the receiver answered 500\n")
    sent = scripted.lucius("notifications", "test", "teams", "--tenant", "acme")
    assert (sent.exit_code, sent.stdout) == (0, "Delivered to teams.\n")
    assert scripted.lucius("notifications", "test", "teams").exit_code == 2


def test_an_archived_job_is_shown_with_steps_attempts_and_events(scripted: Any) -> None:
    scripted.on(f"GET /v1/archive/jobs/{JOB}", ARCHIVED)
    shown = scripted.lucius("archive", "get", JOB).stdout
    for part in (JOB, "acme", "FAILED_FINAL", "BAD_INPUT: not a PDF", "Step ocr", "attempt 1  FAILED", "ACCEPTED"):
        assert part in shown
    assert json.loads(scripted.lucius("archive", "get", JOB, "--output", "json").stdout) == ARCHIVED


def test_prune_asks_the_server_until_nothing_is_left(scripted: Any) -> None:
    more = {"jobs": 500, "archived": 500, "operations": 0, "more": True}
    scripted.on("POST /v1/admin/prune", more, more | {"jobs": 7, "archived": 7, "operations": 2, "more": False})
    shown = scripted.lucius("prune", "--older-than", "30d", "--yes")
    assert shown.exit_code == 0
    assert shown.stdout == "507 jobs removed.\n507 jobs archived.\n2 bulk operations removed.\n"
    assert shown.stderr == "500 jobs removed so far\n"

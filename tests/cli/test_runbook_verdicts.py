"""What `lucius batch watch`, `show`, `list` and `why` say of a batch that has ended."""

from __future__ import annotations

from typing import Any

import pytest

ENDED = {
    "batch_id": 7, "runbook": "moves", "version": 1, "phase_list": [], "dead_messages": [], "waiting_for": [],
    "members": {"active": 10, "removed": 0, "failed": 2, "held": 0}, "completed_at": "2027-03-15T08:00:00Z",
    "init": [], "unsuccessful": {"count": 0, "members": []}, "error": None,
}  # fmt: skip
ANN = {"member": "ann", "phase": "go", "step": "move", "status": "failed", "error": "boom"}
BOB = {"member": "bob", "phase": "go", "step": "tell", "status": "cancelled", "error": "stopped"}
VERDICTS = {
    "completed": ("completed", 0, "Batch 7 completed."),
    "completed_with_failures": (
        "failed", 6, "Batch 7 completed with failures: 2 of 10 members did not succeed. See `lucius batch why 7`.",
    ),
    "cancelled": ("failed", 7, "Batch 7 was cancelled. See `lucius batch why 7`."),
    "failed": ("failed", 1, "Batch 7 failed. See `lucius batch why 7`."),
}  # fmt: skip


def ended(verdict: str, **more: Any) -> dict[str, Any]:
    unsuccessful = {"count": 2, "members": [ANN, BOB]} if verdict == "completed_with_failures" else {}
    found = {"unsuccessful": unsuccessful} if unsuccessful else {}
    return {**ENDED, "status": VERDICTS[verdict][0], "verdict": verdict, **found, **more}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_watch_tells_endings_apart_by_text_and_exit_code(scripted: Any, verdict: str) -> None:
    _, code, sentence = VERDICTS[verdict]
    scripted.on("GET /v1/batches/7", ended(verdict))
    scripted.on("GET /v1/batches/7/events", {"items": [], "next": None})
    shown = scripted.lucius("batch", "watch", "7")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (code, sentence)
    assert scripted.lucius("batch", "watch", "7", "--output", "json").exit_code == code


@pytest.mark.parametrize("verdict", VERDICTS)
def test_show_and_list_have_the_verdict(scripted: Any, verdict: str) -> None:
    scripted.on("GET /v1/batches/7", ended(verdict))
    shown = scripted.lucius("batch", "show", "7")
    assert shown.exit_code == 0
    assert any(line.split() == ["Status", verdict] for line in shown.stdout.splitlines())
    scripted.on("GET /v1/batches", {"items": [ended(verdict)], "next": None})
    assert verdict in scripted.lucius("batch", "list").stdout.splitlines()[1].split()


def test_why_names_members_and_the_next_command(scripted: Any) -> None:
    scripted.on("GET /v1/batches/7", ended("completed_with_failures"))
    shown = scripted.lucius("batch", "why", "7").stdout
    assert "completed with failures" in shown
    assert "2 members did not succeed: ann (step move of phase go failed: boom), bob (step tell of phase go" in shown
    assert "lucius batch retry 7" in shown


def test_why_says_that_a_cancelled_batch_needs_a_new_one(scripted: Any) -> None:
    scripted.on("GET /v1/batches/7", ended("cancelled", error="cancelled by olga: enough"))
    shown = scripted.lucius("batch", "why", "7").stdout
    assert "was cancelled" in shown
    assert "lucius batch create moves --csv FILE" in shown


def test_why_says_how_to_retry_a_failed_init(scripted: Any) -> None:
    failed_init = [{"step": "open", "status": "failed", "error": "no licence"}]
    scripted.on("GET /v1/batches/7", ended("failed", init=failed_init, members={}, error="init step open: no licence"))
    assert "lucius batch retry 7" in scripted.lucius("batch", "why", "7").stdout

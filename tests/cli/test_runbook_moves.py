"""`lucius batch` for members that are held because their date moved."""

from __future__ import annotations

from typing import Any

import pytest

BATCH = {
    "batch_id": 7, "runbook": "moves", "version": 1, "status": "active", "phase_list": [], "dead_messages": [],
    "members": {"active": 2, "removed": 0, "failed": 0, "held": 1},
    "waiting_for": ["1 member is held because the source has moved it to another date: ann to 2027-03-20T00:00:00Z"],
}  # fmt: skip
ANN = {
    "member": "ann", "status": "active", "failed_at": None, "steps": [], "followups": [],
    "move_to": "2027-03-20T00:00:00Z", "move_held_at": "2027-03-10T00:00:00Z", "waiting_for": "held: the source …",
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        ("confirm-move", "Batch 7: 1 member leaves for another date.\n"),
        ("keep", "Batch 7: 1 member stays and goes on.\n"),
    ],
)
def test_a_decision_names_members_or_means_all(scripted: Any, verb: str, sentence: str) -> None:
    scripted.on(f"POST /v1/batches/7:{verb}", {"batch_id": 7, "members": 1})
    yes = ["--yes"] if verb == "confirm-move" else []
    shown = scripted.lucius("batch", verb, "7", "ann", *yes)
    assert (shown.exit_code, shown.stdout) == (0, sentence)
    assert scripted.calls[-1][1] == {"members": ["ann"]}
    scripted.lucius("batch", verb, "7", *yes)
    assert scripted.calls[-1][1] == {}


def test_why_says_which_commands_decide(scripted: Any) -> None:
    scripted.on("GET /v1/batches/7", BATCH)
    shown = scripted.lucius("batch", "why", "7").stdout
    for command in ("batch grid 7 --status held", "batch confirm-move 7", "batch keep 7"):
        assert f"lucius {command}" in shown
    scripted.on("GET /v1/batches/7/members", {"items": [ANN], "next": None})
    shown = scripted.lucius("batch", "why", "7", "ann").stdout
    assert "lucius batch confirm-move 7 ann" in shown
    assert "lucius batch keep 7 ann" in shown


def test_the_grid_marks_who_is_held(scripted: Any) -> None:
    scripted.on("GET /v1/batches/7", BATCH)
    scripted.on("GET /v1/batches/7/members", {"items": [ANN], "next": None})
    assert scripted.lucius("batch", "grid", "7").stdout.splitlines()[1].split() == ["ann", "held"]

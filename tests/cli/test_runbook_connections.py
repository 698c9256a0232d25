"""What the command line says of a connection or a source that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BATCH = {
    "batch_id": 7, "runbook": "moves", "version": 1, "status": "active", "phase_list": [], "dead_messages": [],
    "members": {"active": 1}, "waiting_for": ["the source of runbook moves is held: 1 member, down from 9"],
    "source": {"state": "held", "detail": "1 member, down from 9", "members": 9, "checked_at": None},
}  # fmt: skip


def test_publish_warns_with_its_own_exit_code(scripted: Any, tmp_path: Path) -> None:
    file = tmp_path / "runbook.yaml"
    file.write_text("name: moves\n")
    answer = {"name": "moves", "version": 1, "published": True, "missing_connection": "LUCIUS_SOURCE_HR"}
    scripted.on("POST /v1/runbooks", {**answer, "unchecked": "the environment variable LUCIUS_SOURCE_HR is not set"})
    shown = scripted.lucius("runbook", "publish", str(file))
    assert shown.exit_code == 8
    assert shown.stdout == "moves, version 1, is published and active.\n"
    assert "Warning: the server has no connection LUCIUS_SOURCE_HR" in shown.stderr


def test_why_names_the_source_and_what_to_do(scripted: Any) -> None:
    scripted.on("GET /v1/batches/7", BATCH)
    shown = scripted.lucius("batch", "why", "7").stdout
    assert "The source of runbook moves is held: 1 member, down from 9." in shown
    assert "lucius runbook confirm moves" in shown
    assert "lucius runbook preview moves" in shown


def test_why_of_a_member_names_it_too(scripted: Any) -> None:
    member = {"member": "ann", "status": "active", "steps": [], "followups": [], "waiting_for": None}
    scripted.on("GET /v1/batches/7", BATCH)
    scripted.on("GET /v1/batches/7/members", {"items": [member], "next": None})
    assert "The source of runbook moves is held" in scripted.lucius("batch", "why", "7", "ann").stdout

"""The mailbox migration: one command that shows everything, and notices if anything is otherwise than it should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lucius.cli.runbooks.sample_story import BROKEN, JOINER, LEAVER, faults_of

SECONDS_MAX = 150


def test_one_command_shows_the_whole_migration(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    # What another server is told by its environment is none of this one's business.
    environ |= {"LUCIUS_LEDGER": "postgresql://127.0.0.1:1/nobody", "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "lucius.cli.main", "runbook", "sample", "--up"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environ, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for part in (
        "init / check-tenant       polling",
        f"start-move failed for {BROKEN}",
        f"rollback undo-move is done for {BROKEN}",
        f"{JOINER} catches up on announce, prepare",
        f"removal steps are done for {LEAVER}",
        "the batch has ended: phases failed: move, clean-up",
        "As expected: 7 mailboxes were moved",
        "completed with failures: 1 of 8 members did not succeed",
    ):
        assert part in ended.stdout
    assert re.search(r"http://\S+/console/sign-in/\S+ signs in, once", ended.stdout)
    assert re.search(r"Watch the batch in a browser: http://\S+/console/batches/\d+", ended.stdout)
    assert re.search(r"move / start-move +.*\d polling", ended.stdout)
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == [], "everything that it made is gone"


def members() -> list[dict[str, Any]]:
    names = ("tell-user", "look-up", "create-move", "start-move", "complete-move", "forward-mail", "tell-done")
    keys = [BROKEN, LEAVER, JOINER, *(f"user{place}@contoso.com" for place in range(6))]
    made = [
        {"member": key, "status": "active", "followups": [],
         "steps": [{"step": name, "status": "succeeded"} for name in names]}
        for key in keys
    ]  # fmt: skip
    broken, leaver = made[0], made[1]
    for step, status in zip(broken["steps"][3:], ("rolled_back", *["cancelled"] * 3), strict=True):
        step["status"] = status
    for member, kind, steps in (
        (broken, "rollback", ("remove-forwarding", "remove-move", "tell-postponed")),
        (leaver, "removal", ("remove-move", "tell-cancelled")),
    ):
        member["followups"] = [{"kind": kind, "step": step, "status": "succeeded"} for step in steps]
    leaver["status"] = "removed"
    return made


def test_the_story_as_it_should_be_has_no_faults() -> None:
    assert faults_of({"status": "failed"}, members()) == []


@pytest.mark.parametrize(
    ("place", "change", "told"),
    [
        (0, lambda one: one["steps"][3].update(status="failed"), "should be rolled_back"),
        (0, lambda one: one["steps"][4].update(status="succeeded"), "should be cancelled"),
        (0, lambda one: one["followups"].pop(), "rollback steps"),
        (1, lambda one: one.update(status="active"), "should be removed"),
        (1, lambda one: one["followups"][1].update(status="failed"), "removal steps"),
        (2, lambda one: one["steps"].pop(), "should have 7"),
        (3, lambda one: one["steps"][6].update(status="polling"), "should have succeeded"),
    ],
)
def test_anything_else_is_a_fault(place: int, change: Any, told: str) -> None:
    found = members()
    change(found[place])
    (fault,) = faults_of({"status": "failed"}, found)
    assert told in fault


def test_a_batch_that_ended_well_or_lost_members_is_a_fault() -> None:
    assert len(faults_of({"status": "completed"}, members())) == 1
    assert len(faults_of({"status": "failed"}, members()[:-1])) == 1

"""A member whose date moves in the source after it has begun, over HTTP alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.runbook_client import QUICK, RunbookCaller

YAML = """\
name: dated
data_source: {type: csv, connection: LUCIUS_SOURCE_MEMBERS, primary_key: Upn, batch_time_column: Day}
phases:
  - name: prep
    offset: T-300d
    steps: [{name: check, worker_id: exchange, function: Check, params: {Upn: "{{Upn}}"}}]
  - name: go
    offset: T-0
    steps: [{name: move, worker_id: exchange, function: Move, params: {Upn: "{{Upn}}"}}]
"""
SOON, LATE = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (200, 250))


@pytest.mark.parametrize("verb", ["confirm-move", "keep"])
async def test_an_operator_decides_about_a_held_member(
    open_api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    file = tmp_path / "members.csv"
    file.write_text(f"Upn,Day\nann,{SOON}\nbob,{SOON}\n")
    monkeypatch.setenv("LUCIUS_SOURCE_MEMBERS", str(file))
    caller = RunbookCaller(await open_api(**QUICK, source_interval=0.05, source_still_seconds=0.0))
    await caller.publish(YAML)
    await caller.work(2)
    file.write_text(f"Upn,Day\nann,{SOON}\nbob,{LATE}\n")
    shown = await caller.until(1, lambda batch: batch["members"]["held"] == 1)
    assert f"bob to {LATE}T00:00:00Z" in str(shown["waiting_for"])
    held = await caller.members(1, status="held")
    assert [(one["member"], one["move_to"]) for one in held] == [("bob", f"{LATE}T00:00:00.000Z")]
    refused = await caller.client.post(f"/v1/batches/1:{verb}", json={"members": ["ann"]})
    caller.api.assert_problem(refused, 409, "CONFLICT")
    assert await caller.act(1, verb, {"members": ["bob"]}) == {"batch_id": 1, "members": 1}
    if verb == "keep":
        shown = await caller.batch(1)
        assert shown["members"] == {"active": 2, "removed": 0, "failed": 0, "held": 0}
        return
    await caller.work(1)  # The first phase of the batch that begins later.
    assert (await caller.batch(2))["start"] == f"{LATE}T00:00:00.000Z"
    assert [one["member"] for one in await caller.members(2)] == ["bob"]

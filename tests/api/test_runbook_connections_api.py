"""A new source needs no restart, and a connection that does not exist is told when its runbook is published."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.runbook_client import QUICK, RunbookCaller

YAML = """\
name: late source
data_source: {type: csv, connection: LUCIUS_SOURCE_LATE, primary_key: Upn, batch_time_column: Day}
phases:
  - name: go
    offset: T-0
    steps: [{name: move, worker_id: exchange, function: Move, params: {Upn: "{{Upn}}"}}]
"""
DAY = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}"


async def test_a_connection_in_the_file_needs_no_restart(
    open_api: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, members = tmp_path / "sources.env", tmp_path / "members.csv"
    file.write_text("# none yet\n")
    members.write_text(f"Upn,Day\nann,{DAY}\n")
    options = {"source_interval": 0.05, "source_still_seconds": 0.0, "sources_file": str(file)}
    caller = RunbookCaller(await open_api(**QUICK, **options))
    with caplog.at_level(logging.WARNING, "lucius.jobs"):
        made = await caller.publish(YAML)
        assert made["missing_connection"] == "LUCIUS_SOURCE_LATE"
        assert "the environment variable LUCIUS_SOURCE_LATE is not set" in made["unchecked"]
        await caller.until_source("late source", "failed")
    assert any(
        "the data source of runbook late source could not be read" in line and "LUCIUS_SOURCE_LATE" in line
        for line in caplog.messages
    )
    file.write_text(f"LUCIUS_SOURCE_LATE={members}\n")
    await caller.until_source("late source", "ok")
    assert (await caller.publish(YAML))["missing_connection"] is None
    file.write_text("# gone again\n")
    await caller.until_source("late source", "failed")
    shown = await caller.batch(1)
    assert shown["source"]["state"] == "failed"
    assert shown["waiting_for"][-1].startswith(
        "the source of runbook late source could not be read: the environment variable LUCIUS_SOURCE_LATE is not set"
    )


async def test_a_source_that_is_held_is_named_as_well(
    open_api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = tmp_path / "members.csv"
    members.write_text(f"Upn,Day\nann,{DAY}\nben,{DAY}\ncy,{DAY}\n")
    monkeypatch.setenv("LUCIUS_SOURCE_LATE", str(members))
    caller = RunbookCaller(await open_api(**QUICK, source_interval=0.05, source_still_seconds=0.0))
    await caller.publish(YAML)
    await caller.until_source("late source", "ok")
    members.write_text(f"Upn,Day\nann,{DAY}\n")
    await caller.until_source("late source", "held")
    waits = (await caller.batch(1))["waiting_for"]
    assert waits[-1].startswith("the source of runbook late source is held: the source has 1 members, down from 3")

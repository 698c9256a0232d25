"""`lucius runbook plan` and `rehearse`, on files alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lucius.cli.runbooks.rehearsal import plan, rehearse

YAML = """
name: move
data_source: {type: csv, connection: LUCIUS_SOURCE_PEOPLE, primary_key: Upn, batch_time_column: Day}
retry: {max_retries: 1, interval: 1m}
init: [{name: check, worker_id: cloud, function: Check}]
phases:
  - name: prep
    offset: T-1h
    steps:
      - {name: look, worker_id: cloud, function: Look, params: {Upn: "{{Upn}}"}, output_params: {Guid: guid}}
      - {name: tell, worker_id: mail, function: Tell, params: {Upn: "{{Upn}}", Guid: "{{Guid}}"}, on_failure: undo}
  - name: go
    offset: T-0
    steps: [{name: move, worker_id: cloud, function: Move, poll: {interval: 15m, timeout: 6h}}]
rollbacks:
  undo: [{name: untell, worker_id: mail, function: Untell}]
"""
CSV = "Upn,Day\nanna,2026-12-01T08:00Z\nbert,2026-12-01T08:00Z\ncarl,2026-12-02T08:00Z\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "move.yaml").write_text(YAML)
    (tmp_path / "people.csv").write_text(CSV)
    return tmp_path


def call(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def read(command: click.Command, *arguments: str) -> Any:
    ended = call(command, *arguments, "--output", "json")
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_plan_shows_batches_phases_steps_and_members(files: Path) -> None:
    ended = call(plan, "move.yaml", "--members", "people.csv", "--now", "2026-12-01T07:30Z", "--limit", "1")
    assert ended.exit_code == 0
    for part in (
        "Batch that starts at 2026-12-01 08:00 UTC, 2 members", "Batch that starts at 2026-12-02 08:00 UTC, 1 member",
        "overdue by 30 min", "in 30 min", "1 h: too short", "1 after 1 min", "15 min for 6 h", "until phase go",
        "Member anna", '{"Upn": "anna", "Guid": "{{Guid}}"}',
        "1 of 3 members; --limit and --member show others.",
    ):  # fmt: skip
        assert part in ended.stdout
    assert "Member bert" not in ended.stdout


def test_plan_shows_the_member_that_is_asked_for_and_one_batch_at_a_given_start(files: Path) -> None:
    found = read(plan, "move.yaml", "--members", "people.csv", "--member", "carl", "--start", "2027-01-01")
    assert [one["member"] for one in found["shown"]] == ["carl"]
    assert [(one["start"], one["members"]) for one in found["batches"]] == [("2027-01-01T00:00:00Z", 3)]


def test_plan_with_faults_is_shown_and_is_exit_code_3(files: Path) -> None:
    (files / "people.csv").write_text(CSV + "dora,soon\n")
    ended = call(plan, "move.yaml", "--members", "people.csv")
    assert ended.exit_code == 3
    assert "1 fault:" in ended.stdout
    assert "line 5 (dora)" in ended.stdout
    assert "Member anna" in ended.stdout


@pytest.mark.parametrize("command", [plan, rehearse])
def test_a_runbook_with_faults_is_exit_code_3_with_every_line(files: Path, command: click.Command) -> None:
    (files / "move.yaml").write_text(YAML.replace("T-1h", "T-soon").replace("on_failure: undo", "on_failure: redo"))
    ended = call(command, "move.yaml", "--members", "people.csv")
    assert ended.exit_code == 3
    assert "move.yaml:8: " in ended.stderr
    assert "move.yaml:11: " in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--members", "people.csv", "--start", "soon"),
        ("--members", "gone.csv"),
        ("--members", "bad.csv"),
        ("--members", "formula.csv"),
    ],
)
@pytest.mark.parametrize("command", [plan, rehearse])
def test_files_and_options_that_cannot_be_used_are_exit_code_2(
    files: Path, command: click.Command, arguments: tuple[str, ...]
) -> None:
    (files / "bad.csv").write_text("Name,Day\nanna,2026-12-01\n")
    (files / "formula.csv").write_text("Upn,Day\n=cmd(),2026-12-01\n")
    ended = call(command, "move.yaml", *arguments)
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--members", "people.csv", "--count", "3"),
        ("--count", "0"),
        ("--count", "3", "--fail", "101%"),
        ("--count", "3", "--fail", "2"),
        ("--count", "3", "--lost", "-1%"),
        ("--count", "3", "--duration", "soon"),
        ("--count", "3", "--behaviour", "move.yaml"),
        ("--count", "3", "--csv", "no/such/folder.csv"),
    ],
)
def test_a_rehearsal_that_makes_no_sense_is_exit_code_2(files: Path, arguments: tuple[str, ...]) -> None:
    assert call(rehearse, "move.yaml", *arguments).exit_code == 2


def test_rehearse_shows_the_timeline_and_who_would_miss(files: Path) -> None:
    ended = call(
        rehearse, "move.yaml", "--count", "60", "--start", "2026-12-01T08:00Z", "--fail", "30%", "--slow", "0%",
        "--csv", "missing.csv",
    )  # fmt: skip
    assert ended.exit_code == 0, ended.output
    for part in (
        "60 members, seed 1",
        "30% fail",
        "prep T-1h",
        "  tell",
        "LONGEST QUEUE",
        "would miss a window",
        "retries",
    ):
        assert part in ended.stdout
    with (files / "missing.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert f"All {len(rows)} are in missing.csv." in ended.stdout
    assert {row["what"] for row in rows} <= {"failed", "rolled back", "late"}
    assert rows[0]["batch_start"] == "2026-12-01T08:00:00Z"
    assert rows[0]["member"] in ended.stdout


def test_rehearse_takes_batches_and_members_from_a_csv(files: Path) -> None:
    found = read(rehearse, "move.yaml", "--members", "people.csv", "--fail", "0%", "--lost", "0%", "--slow", "0%")
    assert [(one["start"], one["members"], one["status"]) for one in found["batches"]] == [
        ("2026-12-01T08:00:00Z", 2, "completed"),
        ("2026-12-02T08:00:00Z", 1, "completed"),
    ]
    assert found["misses"] == []
    assert found["begins_at"] == "2026-12-01T06:00:00Z"


def test_rehearse_repeats_itself(files: Path) -> None:
    arguments = ("move.yaml", "--count", "30", "--start", "2026-12-01T08:00Z", "--seed", "5", "--fail", "20%")
    assert read(rehearse, *arguments) == read(rehearse, *arguments)


def test_rehearse_without_a_start_begins_at_a_midnight_that_leaves_time(files: Path) -> None:
    found = read(rehearse, "move.yaml", "--count", "2", "--now", "2026-12-01T22:59Z", "--poll-rounds", "0")
    assert found["batches"][0]["start"] == "2026-12-02T00:00:00Z"
    found = read(rehearse, "move.yaml", "--count", "2", "--now", "2026-12-01T23:01Z", "--poll-rounds", "0")
    assert found["batches"][0]["start"] == "2026-12-03T00:00:00Z"


def test_a_behaviour_file_goes_by_function(files: Path) -> None:
    (files / "mix.yaml").write_text("default: {fail: 0%, lost: 0%, slow: 0%}\nfunctions: {Tell: {fail: 100%}}\n")
    arguments = ("move.yaml", "--count", "10", "--start", "2026-12-01", "--behaviour", "mix.yaml")
    found = read(rehearse, *arguments)
    assert {(one["what"], one["step"]) for one in found["misses"]} == {("rolled back", "tell")}
    assert len(found["misses"]) == 10
    shown = call(rehearse, *arguments).stdout
    assert "other values for 1 function" in shown

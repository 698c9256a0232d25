"""Faults of a CSV of members are told by file and line, whichever command reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.crash.processes import API_KEY, Process, free_port, run_lucius

from lucius.cli.failures import EXIT_NO_CONNECTION
from lucius.cli.main import cli
from lucius.samples import mailbox

SAMPLE = Path(mailbox.__file__).parent
HEADER = "UserPrincipalName,DisplayName,TargetAddress,Aliases,MigrationDate"
ANN = "ann@contoso.com,Ann,ann@fabrikam.com,a@contoso.com,2027-03-15T00:00:00Z"
BEN = 'ben@contoso.com,"Ben\nOkafor",ben@fabrikam.com,b@contoso.com,2027-03-15T00:00:00Z'
"""A cell with a line break: rows and lines are not the same."""

FAULTS = {
    "duplicate": ([HEADER, BEN, ANN, "", ANN], "members.csv:6: duplicate primary key; it is in line 4 already"),
    "no-key": ([HEADER, BEN, ANN, "," + ANN.partition(",")[2]], "members.csv:5: the primary key is missing"),
    "cells": ([HEADER, BEN, ANN + ",x"], "members.csv:4: 6 cells, but the header has 5"),
    "one-cell": ([HEADER, "ann"], "members.csv:2: 1 cell, but the header has 5"),
    "quote": ([HEADER, BEN, '"' + ANN], "members.csv:4: a quotation mark is opened and never closed"),
    "columns": (["Mail,Name", "a,b"], "members.csv:1: there is no column 'UserPrincipalName', which primary_key names"),
    "empty": ([""], "members.csv: the CSV is empty"),
    "only-header": ([HEADER], "members.csv: the CSV has no members"),
    "latin": ([HEADER, ANN, "M\udcfcller"], "members.csv:3: not UTF-8"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("csv")
    words = ("up", "--no-services", "--data", str(folder / "data"))
    with Process(*words, settings={"LUCIUS_MANAGEMENT_PORT": "0"}, folder=folder, port=free_port()) as process:
        settings = {"LUCIUS_URL": f"http://127.0.0.1:{process.port}", "LUCIUS_API_KEY": API_KEY}
        published = run_lucius("runbook", "publish", str(SAMPLE / "runbook.yaml"), settings=settings)
        assert published.returncode == EXIT_NO_CONNECTION, published.stderr
        yield settings


def write(folder: Path, lines: list[str]) -> Path:
    file = folder / "members.csv"
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return file


def test_a_batch_is_refused_with_file_and_line(server: dict[str, str], tmp_path: Path) -> None:
    for name, (lines, told) in FAULTS.items():
        file = write(tmp_path, lines)
        words = ["batch", "create", "sample-mailbox-migration", "--csv", str(file)]
        ended = CliRunner().invoke(cli, ["--url", server["LUCIUS_URL"], "--api-key", API_KEY, *words])
        assert ended.exit_code == (2 if name == "latin" else 3), name
        assert f"{tmp_path}/{told}" in ended.stderr
        assert "/csv" not in ended.stderr, "a pointer into the request's body means nothing to whoever has a file"
        assert " row " not in ended.stderr
        assert "query" not in ended.stderr


def test_a_csv_without_a_column_that_a_template_needs_changes_nothing(server: dict[str, str], tmp_path: Path) -> None:
    full = write(tmp_path, [HEADER, ANN])
    short = tmp_path / "short.csv"
    short.write_text("UserPrincipalName,DisplayName,Aliases,MigrationDate\nben@contoso.com,Ben,,2027-03-15T00:00:00Z\n")
    told = (
        f"{short}: the CSV has no column TargetAddress, which {{{{TargetAddress}}}} needs in step forward-mail of phase"
        " move: add the column; a cell may be empty"
    )

    def lucius(*words: str) -> Any:
        return CliRunner().invoke(cli, ["--url", server["LUCIUS_URL"], "--api-key", API_KEY, *words])

    create = ("batch", "create", "sample-mailbox-migration", "--manual", "--output", "json", "--csv")
    before = json.loads(lucius("batch", "list", "--output", "json").stdout)["items"]
    refused = lucius(*create, str(short))
    assert (refused.exit_code, refused.stdout, refused.stderr) == (3, "", f"Error: {told}\n")
    batch = str(json.loads(lucius(*create, str(full)).stdout)["batch_id"])
    refused = lucius("batch", "add", batch, "--csv", str(short))
    assert (refused.exit_code, refused.stdout, refused.stderr) == (3, "", f"Error: {told}\n")
    batches = json.loads(lucius("batch", "list", "--output", "json").stdout)["items"]
    assert len(batches) == len(before) + 1
    assert batches[0]["members"]["active"] == 1


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("duplicate", "no-key", "only-header")])
def test_a_rehearsal_is_refused_with_file_and_line(name: str, tmp_path: Path) -> None:
    lines, told = FAULTS[name]
    file = write(tmp_path, lines)
    ended = CliRunner().invoke(cli, ["runbook", "plan", str(SAMPLE / "runbook.yaml"), "--members", str(file)])
    assert ended.exit_code == 2
    assert f"{tmp_path}/{told}" in ended.stderr


def test_a_plan_tells_the_line_of_a_row_that_it_leaves_out(tmp_path: Path) -> None:
    file = write(tmp_path, FAULTS["duplicate"][0])
    ended = CliRunner().invoke(cli, ["runbook", "plan", str(SAMPLE / "runbook.yaml"), "--members", str(file)])
    assert ended.exit_code == 3
    assert "line 6 (ann@contoso.com): duplicate primary key; it is in line 4 already" in " ".join(ended.stdout.split())

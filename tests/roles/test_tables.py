"""`lucius db`: what each command says, and what an upgrade shows while it copies rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lucius.cli.main import cli
from lucius.cli.output import rows_copied
from lucius.cli.output.rows_copied import shown_rows_copied
from lucius.sql import schema


def invoke(data: Path, *words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, ["db", *words, "--data", str(data)])
    return ended.exit_code, ended.output


def test_each_command_says_what_it_did(tmp_path: Path) -> None:
    name, count = f"SQLite file {tmp_path}/lucius.db", len(schema.MIGRATIONS)
    assert invoke(tmp_path, "upgrade") == (0, f"{name}: {count} migrations applied; at version {schema.VERSION}.\n")
    assert invoke(tmp_path, "upgrade") == (0, f"{name}: 0 migrations applied; at version {schema.VERSION}.\n")
    assert invoke(tmp_path, "upgrade", "--abandon") == (0, f"{name}: no upgrade is under way.\n")
    assert invoke(tmp_path, "contract", "--yes") == (0, f"{name}: nothing to remove.\n")
    assert invoke(tmp_path, "verify") == (0, f"{name} is at version {schema.VERSION}.\n")
    backup = str(tmp_path / "backup.db")
    assert invoke(tmp_path, "backup", backup) == (
        0,
        f"{name}: backed up to {backup}, at schema version {schema.VERSION}.\n",
    )
    assert invoke(tmp_path, "backup", backup)[0] == 4
    assert invoke(tmp_path, "restore", backup) == (
        0,
        f"{name}: restored from {backup}, at schema version {schema.VERSION}.\n"
        f"The previous file is kept as {tmp_path}/lucius.db.replaced: delete it when you do not need it.\n",
    )


def test_help_shows_a_usual_upgrade() -> None:
    shown = CliRunner().invoke(cli, ["db", "--help"]).output
    assert [word for word in ("backup", "upgrade", "contract") if f"lucius db {word}" in shown] == [
        "backup", "upgrade", "contract",
    ]  # fmt: skip


def test_rows_copied_are_shown_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_rows_copied() as report:
        report(1_000, 3_000)
        monkeypatch.setattr(rows_copied, "LINE_SECONDS", 0.0)
        report(2_000, 3_000)
        report(3_000, 3_000)
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["2,000 of 3,000 rows copied (66 %)", "3,000 of 3,000 rows copied (100 %)"]
    assert shown.out == ""


def test_rows_copied_are_redrawn_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with shown_rows_copied() as report:
        report(1_000, 3_000)
        report(3_000, 3_000)
    assert "3,000 of 3,000 rows copied (100 %)" in capsys.readouterr().out


def test_nothing_is_shown_where_nothing_is_copied(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_rows_copied():
        pass
    assert capsys.readouterr() == ("", "")


def test_upgrade_of_no_rows_is_complete() -> None:
    assert rows_copied.rows_copied_line(0, 0) == "0 of 0 rows copied (100 %)"


def test_a_database_of_runbooks_is_upgraded_and_verified_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, count = tmp_path / "runbooks.db", len(schema.MIGRATIONS)
    monkeypatch.setenv("LUCIUS_RUNBOOKS_DATABASE", f"sqlite:///{file}")
    ledger, own = f"SQLite file {tmp_path}/lucius.db", f"SQLite file {file}"
    done = f"{count} migrations applied; at version {schema.VERSION}.\n"
    assert invoke(tmp_path, "upgrade") == (0, f"{ledger}: {done}{own}: {done}")
    at = f"is at version {schema.VERSION}.\n"
    assert invoke(tmp_path, "verify") == (0, f"{ledger} {at}{own} {at}")
    monkeypatch.setenv("LUCIUS_LEDGER", "memory")
    assert invoke(tmp_path, "verify") == (0, f"{own} {at}")
    monkeypatch.setenv("LUCIUS_RUNBOOKS_DATABASE", "off")
    assert invoke(tmp_path, "verify") == (2, "Error: LUCIUS_LEDGER=memory has no tables\n")


@pytest.mark.parametrize("role", ["api", "reconciler", "runbooks", "scheduler"])
def test_roles_of_their_own_need_runbooks_in_a_shared_database(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCIUS_LEDGER", "postgresql://localhost/lucius")
    monkeypatch.setenv("LUCIUS_RUNBOOKS_DATABASE", "sqlite:////tmp/runbooks.db")
    ended = CliRunner().invoke(cli, [role])
    assert ended.exit_code == 2
    assert "a SQLite file has one owner: set LUCIUS_RUNBOOKS_DATABASE to postgresql://… or off" in ended.output

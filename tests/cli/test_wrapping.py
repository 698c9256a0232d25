"""Text on a terminal of 100 × 30: no word is cut in two, and no command is broken."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from tests.crash.processes import run_lucius
from tests.terminals import COLUMNS

from lucius.cli.failures import Unusable
from lucius.cli.output.wrapping import for_terminal, wrapped

WORDS = (
    "the CSV has no column Site, which {{Site}} needs in step note of phase move: add the column; a cell may be empty"
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_wrapped_between_words_and_keep_their_indentation() -> None:
    lines = wrapped(f"Error: {WORDS}\n  {WORDS}", 60).split("\n")
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(" ".join(lines).split()) == f"Error: {WORDS} {WORDS}"
    assert [line[:2] == "  " for line in lines] == [False, False, True, True]


def test_a_command_stays_in_one_piece() -> None:
    command = "lucius operations outcomes 01a1ec9f-7f24-747e-92fd-1f840b662cc6 --status FAILED"
    assert wrapped(f"  {command}", 40) == f"  {command}"
    assert wrapped(f"Two words. See `{command}`.", 40) == f"Two words. See\n`{command}`."


def test_only_a_terminal_gets_wrapped_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert for_terminal(WORDS, io.StringIO()) == WORDS
    screen = Screen()
    Unusable(f"short.csv: {WORDS}").show(screen)
    assert screen.getvalue() == f"Error: short.csv: {WORDS.removesuffix(' the column; a cell may be empty')}\n" + (
        "the column; a cell may be empty\n"
    )


def test_help_is_not_cut_off_on_a_terminal() -> None:
    shown = run_lucius("--help", settings={"COLUMNS": str(COLUMNS)}).stdout
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.", "", shown)
    assert max(map(len, shown.splitlines())) <= COLUMNS


def test_a_command_submitted_again_says_what_to_type(scripted: Any) -> None:
    old = {"jobId": "j1", "status": "FAILED_FINAL", "completed_at": "2026-01-31T00:00:00Z"}
    scripted.on("POST /v1/commands", old, headers={"Idempotency-Replayed": "true"})
    with open("my command.json", "w") as file:
        file.write("{}")
    lines = scripted.lucius("submit", "my command.json").stdout.splitlines()
    assert lines[-4:] == [
        "  lucius submit 'my command.json' --new",
        "      runs the command again, as a new job",
        "  lucius redrive j1",
        "      continues it where it ended",
    ]

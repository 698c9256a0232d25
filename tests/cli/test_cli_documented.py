"""The command line says what it does, and the documentation says the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from lucius.cli.failures import EXIT_CODES
from lucius.cli.main import SECTIONS, cli

ROOT = Path(__file__).parents[2]


def every_command(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_help_lists_every_exit_code() -> None:
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  " in shown.output
        assert meaning in " ".join(shown.output.split())


def test_help_shows_every_command_once_under_the_heading_of_its_section() -> None:
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    places = [shown.index(f"\n{heading}:\n") for heading, _ in SECTIONS]
    assert places == sorted(places)
    for (heading, commands), begin, end in zip(SECTIONS, places, [*places[1:], len(shown)], strict=True):
        for command in commands:
            assert f"\n  {command.name} " in shown[begin:end], f"{command.name} is not shown under {heading}"
            assert shown.count(f"\n  {command.name} ") == 1
    assert {command.name for _, commands in SECTIONS for command in commands} == set(cli.commands)


def test_every_command_and_option_has_help_and_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    for name, command in every_command(cli):
        assert CliRunner().invoke(cli, [*name.split(), "--help"]).exit_code == 0
        assert command.help, f"{name} has no help"
        assert f"lucius {name}" in page, f"docs/reference/cli.md does not name {name}"
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"`{option}" in page, f"{option} of {name} is not documented"


def test_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    assert all(f"| {code} |" in page for code in EXIT_CODES)


def test_the_command_line_loads_without_what_it_may_not_need() -> None:
    code = (
        "import sys, lucius.cli.main; print(sorted({'httpx', 'rich', 'fastapi', 'pypdf', 'apsw'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"

"""Every command that LUCIUS tells its users to run exists, with its options, and works as it is shown."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.test_cli_documented import every_command
from tests.crash.processes import LUCIUS, environment, free_port

from lucius.cli.main import cli

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lucius"
FILLED_IN = "FILLED-IN"
"""Stands where a message is completed while the program runs."""

_SHOWN = re.compile(r"""(?<![\w./"-])lucius((?: +[^\s`;|&(),"]+)+)""")
_QUOTED = re.compile(r"""[`']lucius((?: +[^\s`',;]+)+)[`']""")


class Messages(ast.NodeVisitor):
    """Every text in a module that is not a docstring, with its line; f-strings with their gaps filled in."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # A docstring is for developers; help texts are read from click.
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [part.value if isinstance(part, ast.Constant) else FILLED_IN for part in node.values]
        self.found.append((node.lineno, "".join(str(part) for part in parts)))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.append((node.lineno, node.value))


def messages() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        visitor = Messages()
        visitor.visit(ast.parse(path.read_text("utf-8")))
        for line, text in visitor.found:
            yield f"{path.relative_to(ROOT)}:{line}", text


def help_texts() -> Iterator[tuple[str, str]]:
    for name, command in every_command(cli):
        for text in (command.help, *(getattr(parameter, "help", None) for parameter in command.params)):
            yield f"lucius {name} --help", text or ""


def shipped_texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in (".tmpl", ".yaml", ".md"):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
                yield f"{path.relative_to(ROOT)}:{number}", line


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where each command is shown, and its words after `lucius`."""
    for place, text in messages():
        starts = [text] if text.startswith("lucius ") else []
        for words in [*_QUOTED.findall(text), *(found for one in starts for found in _SHOWN.findall(one)[:1])]:
            yield place, words.split()
    for place, text in [*help_texts(), *shipped_texts()]:
        for words in _SHOWN.findall(text):
            yield place, [word.strip("'`.:") for word in words.split()]


def fault_of(words: list[str]) -> str | None:
    command: click.Command = cli
    for word in words:
        if word in ("--", "$") or word.startswith("#"):
            return None
        if isinstance(command, click.Group):
            if word == FILLED_IN or word.startswith("-"):
                continue
            if word not in command.commands:
                return f"there is no command {word}"
            command = command.commands[word]
        elif word.startswith("--"):
            options = {option for parameter in command.params for option in (*parameter.opts, "--help")}
            if word.partition("=")[0] not in options:
                return f"{command.name} has no option {word}"
    return None


def test_every_command_in_messages_and_help_exists() -> None:
    found = list(commands())
    faults = [f"{place}: lucius {' '.join(words)}: {fault}" for place, words in found if (fault := fault_of(words))]
    assert not faults, "\n".join(faults)
    assert len(found) > 50, "the search finds what it looks for"


@pytest.mark.parametrize(
    ("words", "fault"),
    [(["upp"], "there is no command upp"), (["batch", "go", "7"], "there is no command go"),
     (["watch", FILLED_IN, "--forever"], "watch has no option --forever"), (["batch", "retry", FILLED_IN], None)],
)  # fmt: skip
def test_the_search_would_find_a_wrong_command(words: list[str], fault: str | None) -> None:
    assert fault_of(words) == fault


def unreachable(lucius: str, path: str, folder: Path) -> str:
    """What the error of an unreachable server tells its user to run."""
    settings = environment({"PATH": path, "LUCIUS_URL": f"http://127.0.0.1:{free_port()}"})
    ended = subprocess.run([lucius, "list"], cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 4, ended.stderr
    found = re.search(r"Start a server with `(.+) up`", ended.stderr)
    assert found is not None, ended.stderr
    return found[1]


def path_without_lucius() -> str:
    return os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != LUCIUS.parent)


def test_the_steps_after_new_service_work_in_the_new_folder(tmp_path: Path) -> None:
    folder, near = LUCIUS.parents[1], os.path.join("bin", "lucius")
    words = [near, "new", "service", "tally", "--folder", str(tmp_path / "tally")]
    settings = environment({"PATH": path_without_lucius()})
    made = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert f"registry {LUCIUS} up --no-services" in made.stdout
    assert f"&& {LUCIUS.parent / 'python'} service.py" in made.stdout
    assert f"&& {LUCIUS} submit command.json --watch" in made.stdout


def test_a_hint_is_a_command_that_the_shell_finds() -> None:
    folder, near = LUCIUS.parents[1], os.path.join("bin", "lucius")
    others = path_without_lucius()
    assert unreachable(str(LUCIUS), f"{LUCIUS.parent}{os.pathsep}{others}", folder) == "lucius"
    assert unreachable(near, others, folder) == near
    assert unreachable(str(LUCIUS), others, folder / "lib") == str(LUCIUS)

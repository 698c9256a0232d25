"""`lucius new service`: what it makes is a project that works, and what it cannot make leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lucius import scaffold
from lucius.cli.failures import EXIT_USAGE
from lucius.cli.main import cli
from lucius.registries.files import FileRegistry

FILES = {
    ".gitignore",
    ".lucius/files/demo/input.txt",
    "README.md",
    "command.json",
    "pyproject.toml",
    "registry/protocols/{name}.yaml",
    "service.py",
    "tests/test_service.py",
}
NAMES = ["tally", "word-count", "Word_2", "service", "x" * 50]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new_service(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["new", "service", *arguments])


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def clean_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("LUCIUS_", "PYTEST_"))}


# --- What it makes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_project_has_every_file_filled(here: Path, name: str) -> None:
    made = new_service(name)
    assert made.exit_code == 0, made.output
    assert files_in(here / name) == {one.format(name=name) for one in FILES}
    for path in files_in(here / name):
        text = (here / name / path).read_text("utf-8")
        assert not re.search(r"\$\{?[a-z_]+", text), f"{path} has a place that was not filled"


@pytest.mark.parametrize("name", NAMES)
def test_registry_python_and_toml_are_valid(here: Path, name: str) -> None:
    assert new_service(name).exit_code == 0
    project = here / name
    (protocol,) = FileRegistry(project / "registry").snapshot().protocols.values()
    request_type = scaffold.request_type_of(name)
    assert (protocol.id, protocol.request_types) == (request_type, (request_type,))
    (step,) = protocol.steps
    assert (step.id, step.type, step.service) == (name, request_type, name)
    for path in ("service.py", "tests/test_service.py"):
        ast.parse((project / path).read_text("utf-8"))
    about = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    assert about["name"] == f"{name}-service"
    assert about["dependencies"] == [], "no registry has LUCIUS"


@pytest.mark.parametrize("name", NAMES)
def test_project_passes_ruff_with_its_default_rules(here: Path, name: str) -> None:
    assert new_service(name).exit_code == 0
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
        cwd=here / name,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout


def test_command_asks_for_the_protocol(here: Path) -> None:
    assert new_service("word-count").exit_code == 0
    command = json.loads((here / "word-count" / "command.json").read_text("utf-8"))
    (protocol,) = FileRegistry(here / "word-count" / "registry").snapshot().protocols.values()
    assert command["request_type"] in protocol.request_types
    assert (command["input_ref"], command["output_ref"]) == (
        ".lucius/files/demo/input.txt",
        ".lucius/files/demo/result.json",
    )
    properties = protocol.steps[0].payload_schema["properties"]
    assert set(command["payload"]) <= set(properties)


def test_step_type_and_folder_can_be_chosen(here: Path) -> None:
    made = new_service("invoice-fields", "--folder", "services/my fields", "--step-type", "EXTRACT")
    assert made.exit_code == 0, made.output
    project = here / "services" / "my fields"
    (protocol,) = FileRegistry(project / "registry").snapshot().protocols.values()
    assert (protocol.id, protocol.steps[0].type) == ("INVOICE_FIELDS", "EXTRACT")
    assert '@service.step("EXTRACT", timeout=600)' in (project / "service.py").read_text("utf-8")
    assert "cd 'services/my fields' && python service.py" in made.output


def test_next_steps_are_few_and_exact(here: Path) -> None:
    lines = new_service("tally").output.splitlines()
    assert 3 <= len(lines) <= 5
    assert "  cd tally && LUCIUS_REGISTRY=registry lucius up --no-services" in lines
    assert "  cd tally && lucius submit command.json --watch" in lines


def test_an_empty_folder_is_filled_where_it_is(here: Path) -> None:
    assert new_service("tally", "--folder", ".").exit_code == 0
    assert "service.py" in files_in(here)


# --- What it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "9lives", "-x", "_x", "a b", "a/b", "..", "a.b", "ä", "x" * 51, "true", "Null", "a\n"]
)
def test_names_that_cannot_be_are_refused(here: Path, name: str) -> None:
    made = new_service("--", name)
    assert made.exit_code == EXIT_USAGE
    assert "is not a valid service name" in made.output
    assert "such as word-count" in made.output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("step_type", ["A B", "1", "false", "x" * 65])
def test_step_types_that_cannot_be_are_refused(here: Path, step_type: str) -> None:
    made = new_service("tally", "--step-type", step_type)
    assert made.exit_code == EXIT_USAGE
    assert "is not a valid step type" in made.output
    assert list(here.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused_and_left_alone(here: Path) -> None:
    (here / "tally").mkdir()
    (here / "tally" / ".hidden").write_text("mine")
    made = new_service("tally")
    assert made.exit_code == EXIT_USAGE
    assert "the folder tally is not empty; choose another place with --folder" in made.output
    assert files_in(here) == {"tally/.hidden"}


def test_a_file_in_the_place_of_the_folder_is_refused(here: Path) -> None:
    (here / "tally").write_text("mine")
    made = new_service("tally")
    assert made.exit_code == EXIT_USAGE
    assert "tally is a file" in made.output
    assert (here / "tally").read_text() == "mine"


def test_a_place_below_a_file_is_refused(here: Path) -> None:
    (here / "notes").write_text("mine")
    made = new_service("tally", "--folder", "notes/tally")
    assert made.exit_code == EXIT_USAGE
    assert "notes" in made.output
    assert files_in(here) == {"notes"}


@pytest.mark.parametrize("there_before", [True, False])
def test_nothing_is_left_behind_when_a_write_fails(
    here: Path, monkeypatch: pytest.MonkeyPatch, there_before: bool
) -> None:
    folder = here / "deep" / "tally"
    if there_before:
        folder.mkdir(parents=True)
    opened, real_open = [], Path.open

    def failing_open(path: Path, *arguments: object, **options: object) -> object:
        if path.is_relative_to(here):
            opened.append(path)
            if len(opened) == len(scaffold.FILES):
                raise OSError(28, "No space left on device", str(path))
        return real_open(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", failing_open)
    made = new_service("tally", "--folder", str(folder))
    assert made.exit_code == EXIT_USAGE
    assert "No space left on device; nothing was created" in made.output
    assert len(opened) == len(scaffold.FILES)
    assert sorted(here.rglob("*")) == ([here / "deep", folder] if there_before else [])


# --- What it is ------------------------------------------------------------------------------------------------------


def test_scaffold_loads_nothing_else_of_lucius() -> None:
    code = "import sys, lucius.scaffold; print(sorted(name for name in sys.modules if name.startswith('lucius')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "['lucius', 'lucius.scaffold']"


@pytest.mark.timeout(900)
def test_the_projects_own_tests_pass(here: Path) -> None:
    assert new_service("word-count", "--step-type", "COUNT").exit_code == 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=here / "word-count",
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout

"""A new service's project, from the templates in `service/`. It imports nothing of the rest of lucius.

All texts are rendered before anything is written, no file is ever overwritten, and files created are removed again if
something fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from lucius import __version__

FILES = {
    "service.py.tmpl": "service.py",
    "protocol.yaml.tmpl": "registry/protocols/$name.yaml",
    "command.json.tmpl": "command.json",
    "input.txt.tmpl": ".lucius/files/demo/input.txt",
    "test_service.py.tmpl": "tests/test_service.py",
    "pyproject.toml.tmpl": "pyproject.toml",
    "README.md.tmpl": "README.md",
    "gitignore.tmpl": ".gitignore",
}
"""Each template, and its file in the project."""

NAME_CHARACTERS_MAX = 50
STEP_TYPE_CHARACTERS_MAX = 64
NOT_TEXT_IN_YAML = frozenset({"true", "false", "null"})

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_STEP_TYPE = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{STEP_TYPE_CHARACTERS_MAX - 1}}}")


class ScaffoldRefused(Exception):
    """The project cannot be created; the message says why, and nothing was created."""


def request_type_of(name: str) -> str:
    """The request type in commands: `WORD_COUNT` for `word-count`."""
    return name.upper().replace("-", "_")


def new_service(name: str, folder: Path, step_type: str | None = None) -> list[Path]:
    """Create a service project in `folder`, which must be empty or not exist, and return its files."""
    check_name(name)
    step_type = step_type or request_type_of(name)
    check_step_type(step_type)
    texts = fill({"name": name, "request_type": request_type_of(name), "step_type": step_type, "version": __version__})
    check_folder(folder)
    try:
        return write_whole(folder, texts)
    except OSError as error:
        place = error.filename or folder
        raise ScaffoldRefused(f"{place} cannot be written: {error.strerror or error}; nothing was created") from error


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() in NOT_TEXT_IN_YAML:
        raise ScaffoldRefused(
            f"{name!r} is not a valid service name: use a letter, then letters, digits, '-' or '_', "
            f"at most {NAME_CHARACTERS_MAX} characters, such as word-count"
        )


def check_step_type(step_type: str) -> None:
    if not _STEP_TYPE.fullmatch(step_type) or step_type.lower() in NOT_TEXT_IN_YAML:
        raise ScaffoldRefused(
            f"{step_type!r} is not a valid step type: use a letter, then letters, digits, '.', '-' or '_', "
            f"at most {STEP_TYPE_CHARACTERS_MAX} characters, such as WORD_COUNT"
        )


def check_folder(folder: Path) -> None:
    try:
        is_taken = folder.exists() and any(folder.iterdir())
    except NotADirectoryError as error:
        raise ScaffoldRefused(f"{folder} is a file; choose another place with --folder") from error
    except OSError as error:
        raise ScaffoldRefused(f"{folder} cannot be read: {error.strerror}") from error
    if is_taken:
        raise ScaffoldRefused(f"the folder {folder} is not empty; choose another place with --folder")


def fill(words: Mapping[str, str]) -> dict[str, str]:
    """Every file of the project by path, with its text."""
    templates = resources.files("lucius.scaffold") / "service"
    return {
        Template(target).substitute(words): Template((templates / template).read_text("utf-8")).substitute(words)
        for template, target in FILES.items()
    }


def write_whole(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write every file, or leave nothing behind that was not there before."""
    made: list[Path] = []
    try:
        for relative, text in texts.items():
            path = folder / relative
            _make_folder(path.parent, made)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                made.append(path)
                file.write(text)
    except BaseException:
        for path in reversed(made):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
        raise
    return [folder / relative for relative in texts]


def _make_folder(folder: Path, made: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent, made)
    folder.mkdir()
    made.append(folder)

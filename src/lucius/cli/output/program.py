"""How this program is called, for hints: a command that is shown must work when it is typed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NAME = "lucius"
_HINT = re.compile(rf"(?<=[`'])({NAME})(?= [a-z])")


@cache
def program() -> str:
    """`lucius`, or its path if the shell would not find it under that name: `.venv/bin/lucius` in a clone."""
    own = Path(sys.argv[0])
    if own.name != NAME or not own.is_file():  # Started as a module, or inside another program.
        return NAME
    found = shutil.which(NAME)
    if found is not None and Path(found).resolve() == own.resolve():
        return NAME
    path = os.path.abspath(own)
    near = os.path.relpath(path)
    return shlex.quote(path if near.startswith(os.pardir) else near)


def hint(text: str) -> str:
    """The text, with the commands of `lucius` that it quotes as they have to be typed."""
    return _HINT.sub(lambda _: program(), text)


def command_lines(commands: Iterable[tuple[str, str]]) -> list[str]:
    """What to type next: each command as it has to be typed, and below it what it does."""
    return [line for command, use in commands for line in (f"  {as_typed(command)}", f"      {use}")]


def as_typed(command: str) -> str:
    """A command such as `lucius why JOB`, as it has to be typed."""
    return f"{program()}{command.removeprefix(NAME)}" if command.startswith(f"{NAME} ") else command

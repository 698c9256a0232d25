"""Wraps lines between words on a terminal. A command stays in one piece, so that it can be copied: one in backquotes,
and a line that is a command."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import IO

from lucius.cli.output.program import program

_QUOTED = re.compile(r"`[^`]*`")
_KEPT_SPACE = "\0"
_WIDTH_MIN = 20


def for_terminal(text: str, stream: IO[str]) -> str:
    """The text as this stream shows it best: unchanged unless the stream is a terminal."""
    return wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def wrapped(text: str, width: int) -> str:
    """Each line is wrapped by itself, and keeps its indentation."""
    return "\n".join(_wrapped_line(line, max(_WIDTH_MIN, width)) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    text = line.lstrip(" ")
    if text.startswith(f"{program()} "):
        return line
    indent = " " * (len(line) - len(text))
    kept = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _KEPT_SPACE), text)
    lines = textwrap.wrap(
        kept, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_KEPT_SPACE, " ") if len(lines) > 1 else line

"""Where an exception was raised: file, line and function of its last frames, as a RESULT carries them."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb
from typing import Any

FRAMES_MAX = 8
FILE_CHARACTERS_MAX = 200
FUNCTION_CHARACTERS_MAX = 100
_PACKAGES = ("site-packages", "dist-packages")
_RUNNER = str(Path(__file__).with_name("steps.py"))
"""The kit's own frames above the step function say nothing."""


def last_frames(error: BaseException) -> list[dict[str, Any]]:
    """The step function's own frame and the last ones below it, the innermost last."""
    found = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in walk_tb(error.__traceback__)]
    while found and found[0][0] == _RUNNER:
        del found[0]
    if len(found) > FRAMES_MAX:
        found = [found[0], *found[-(FRAMES_MAX - 1) :]]
    return [{"file": _file(file), "line": line, "function": _text(name)} for file, line, name in found]


def _file(name: str) -> str:
    """Without what only tells where things are installed: relative to the working folder or to the packages' folder,
    else with its folder's name alone."""
    path = Path(name)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    for folder in _PACKAGES:
        if folder in path.parts:
            path = Path(*path.parts[path.parts.index(folder) + 1 :])
    if path.is_absolute():
        path = Path(*path.parts[-2:])
    return path.as_posix().encode("utf-8", "replace").decode("utf-8")[-FILE_CHARACTERS_MAX:]


def _text(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")[:FUNCTION_CHARACTERS_MAX]

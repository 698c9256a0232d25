"""What this program is: its version, the commit it was built from, and the extras that are installed."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from importlib.resources import files
from pathlib import Path

UNKNOWN = "unknown"
_NAME = re.compile(r"[\w.-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")


def commit() -> str:
    """The commit of the wheel, or that of the clone."""
    packaged = files("lucius") / "commit.txt"
    if packaged.is_file():
        return packaged.read_text("utf-8").strip()
    clone = Path(__file__).parents[2]
    if not (clone / ".git").exists():
        return UNKNOWN
    try:
        ran = subprocess.run(  # noqa: S603 - a fixed command
            ["git", "-C", str(clone), "rev-parse", "HEAD"],  # noqa: S607 - git is where the developer has it
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return ran.stdout.strip() or UNKNOWN


def extras() -> dict[str, bool]:
    """Every extra of LUCIUS, and whether all that it needs is installed."""
    found: dict[str, bool] = {}
    for requirement in metadata.requires("lucius") or []:
        extra = _EXTRA.search(requirement)
        name = _NAME.match(requirement)
        if extra and name:
            found[extra[1]] = found.get(extra[1], True) and _is_installed(name[0])
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True

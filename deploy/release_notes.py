"""Prints the newest section of the changelog, for the page of a release."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def newest(changelog: str) -> str:
    """The text below the first `## [`, without that heading. Raises `ValueError` if there is none."""
    sections = re.split(r"^## \[.*\n", changelog, flags=re.MULTILINE)
    if len(sections) < 2 or not sections[1].strip():
        raise ValueError("CHANGELOG.md has no section")
    return sections[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(newest(CHANGELOG.read_text("utf-8")))

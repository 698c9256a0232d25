"""What the tests of the documentation share: the pages, and ways to look into them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

_HEADING = re.compile(r"^(#{1,6}) +(.+)$", re.MULTILINE)
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    return path.read_text("utf-8")


def text_files() -> list[Path]:
    """Every file that git tracks or would track, and that is text."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout.decode()
    found = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in found if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def markdown_files() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and content of every fenced block, without the indentation of the list it stands in."""
    found = []
    for indent, language, content in _FENCE.findall(page):
        lines = [line.removeprefix(indent) for line in content.splitlines()]
        found.append((language, "\n".join(lines) + "\n"))
    return found


def without_blocks(page: str) -> str:
    return _FENCE.sub("", page)


def anchors(page: str) -> set[str]:
    """What GitHub makes of the headings of a page."""
    found = set()
    for _, heading in _HEADING.findall(without_blocks(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of any level."""
    start = page.index(f"\n{heading}\n") + len(heading) + 2
    # A comment in an example looks like a heading; blanked out, it keeps its length and misleads nobody.
    plain = _FENCE.sub(lambda found: " " * len(found[0]), page[start:])
    end = re.search(r"^#{1,6} ", plain, re.MULTILINE)
    return page[start : start + end.start()] if end else page[start:]


def table_rows(page: str) -> dict[str, list[str]]:
    """Every table row of a page by what stands in its first cell, without backticks."""
    rows = {}
    for line in page.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            rows[cells[0].strip("`")] = cells
    return rows

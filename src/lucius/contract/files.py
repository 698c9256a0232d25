"""Files that the service wrote: where they are, and whether they changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Snapshot = dict[str, tuple[int, int, int]]
"""Inode, time of change and size, by path."""


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def uri_of(ref: Any) -> str:
    return str(ref.get("uri", "") if isinstance(ref, dict) else ref)


def workspace_of(directive: dict[str, Any]) -> Path:
    return path_of(str(directive["workspace_ref"]))


def output_of(directive: dict[str, Any]) -> Path:
    return path_of(uri_of(directive["output_ref"]))


def files_under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def snapshot(directive: dict[str, Any]) -> Snapshot:
    """Everything that the attempt has written so far."""
    output = output_of(directive)
    found = files_under(workspace_of(directive)) + ([output] if output.is_file() else [])
    return {str(path): (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path in found for stat in [path.stat()]}


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Paths that are new or different. Removed files were cleaned up, not written."""
    return sorted(name for name in after if before.get(name) != after[name])


def file_refs(value: Any) -> Iterator[str]:
    """Every `file:` URI anywhere in a JSON value."""
    if isinstance(value, str):
        if value.lower().startswith("file:"):
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from file_refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from file_refs(one)

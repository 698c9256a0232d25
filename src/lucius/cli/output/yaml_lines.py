"""JSON values as YAML, for people. The base package has no YAML library, and this subset needs none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@+-]*( [A-Za-z0-9_/.@+(-][A-Za-z0-9_/.@+()-]*)*")
_RESERVED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some version of YAML reads as something else than text."""


def yaml_lines(value: Any) -> list[str]:
    """The lines of a document."""
    return list(_lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, held in value.items():
            yield from _entry(f"{_scalar(str(name))}:", held, nested="  ")
    elif isinstance(value, list) and value:
        for held in value:
            yield from _entry("-", held, nested="  ")
    else:
        yield _scalar(value)


def _entry(head: str, held: Any, nested: str) -> Iterator[str]:
    inner = _lines(held)
    if not isinstance(held, dict | list) or not held:
        yield f"{head} {next(inner)}"
    elif head == "-":
        yield f"- {next(inner)}"
        yield from (nested + line for line in inner)
    else:
        yield head
        yield from (nested + line for line in inner)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    # JSON is YAML: numbers, true, null, quoted texts, {} and [] are written the same.
    return json.dumps(value, ensure_ascii=False)

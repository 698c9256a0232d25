"""Readable names of places: `/phases/0/steps/1/params/Url` is `phase notify / step send / params.Url`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from lucius.domain.payload import pointer_tokens

_SHOWN_CHARS_MAX = 60
_COMPARED_MAX = 200
_MAPS = ("rollbacks",)
_LISTS = {
    "phases": "phase", "steps": "step", "init": "init step", "on_member_removed": "removal step", "windows": "window",
    "freeze": "freeze",
}  # fmt: skip


def in_words(document: Any, pointer: str) -> str:
    """The place; an item without a usable name is given by its number in the list, from 1."""
    parts: list[str] = []
    rest: list[str] = []
    tokens = list(pointer_tokens(pointer))
    value = document
    while tokens:
        token = tokens.pop(0)
        member = _member(value, token)
        if token in _LISTS and tokens and isinstance(member, list) and not rest:
            index = tokens.pop(0)
            value = _member(member, index)
            parts.append(f"{_LISTS[token]} {_name(value, index)}")
        elif not (parts or rest) and token in _MAPS and tokens:
            name = tokens.pop(0)
            parts.append(f"rollback {clipped(name)}")
            value = _member(member, name)
            if tokens and isinstance(value, list):
                index = tokens.pop(0)
                value = _member(value, index)
                parts.append(f"step {_name(value, index)}")
        else:
            rest.append(clipped(token))
            value = member
    return " / ".join([*parts, ".".join(rest)] if rest else parts)


def _member(value: Any, token: str) -> Any:
    if isinstance(value, dict):
        return value.get(token)
    if isinstance(value, list) and token.isascii() and token.isdigit() and int(token) < len(value):
        return value[int(token)]
    return None


def _name(value: Any, index: str) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    if isinstance(name, str) and name.strip() and name.isprintable():
        return clipped(name)
    return str(int(index) + 1)


def clipped(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


def advice(name: str, known: Iterable[str]) -> str:
    """The closest known name, or all known names if they are few."""
    known = list(known)
    near = difflib.get_close_matches(name[:_SHOWN_CHARS_MAX], known[:_COMPARED_MAX], 1, 0.6)
    if near:
        return f"did you mean {near[0]}?"
    if not known:
        return "there are none"
    return f"known: {', '.join(map(clipped, known[:15]))}{' …' if len(known) > 15 else ''}"

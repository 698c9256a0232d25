"""By which values of its payload a job can be found: those of the fields that its protocol declares searchable."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, NamedTuple

VALUE_CHARS_MAX = 200
"""Longer values are kept as a digest: an index has no room for them."""


class SearchValue(NamedTuple):
    """A searchable field of a job's payload, and its value as text."""

    field: str
    value: str


def search_text(value: Any) -> str | None:
    """The text by which a value is found: a string as it is, a number or a boolean as in JSON. None for what cannot be
    searched: null, objects and arrays."""
    if value is None or isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= VALUE_CHARS_MAX and text.isprintable():
        return text
    # PostgreSQL keeps no text with a NUL in it.
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def search_values(share: Any, fields: tuple[str, ...]) -> list[SearchValue]:
    """Those of one step's parameters."""
    if not isinstance(share, dict):
        return []
    texts = [(field, search_text(share.get(field))) for field in fields]
    return [SearchValue(field, text) for field, text in texts if text is not None]

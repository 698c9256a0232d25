"""Keys of rows in Azure Tables.

A key is made of parts, joined by `SEPARATOR`. Azure forbids `/`, `\\`, `#`, `?` and control characters in keys, and
OData quotes them with apostrophes; so every part that comes from outside is percent-encoded, which leaves only letters,
digits and `-._~%`. The separator sorts before all letters and after all digits, and does not occur in a part.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

SEPARATOR = ":"
AFTER_SEPARATOR = ";"
"""The character after it: where a range of keys with one prefix ends."""
KEY_CHARS_MAX = 512
"""Azure allows 1 KiB, in UTF-16."""
FORBIDDEN = frozenset("/\\#?")
INSTANT_DIGITS = 15
"""Milliseconds since 1970, to sort as text until the year 33,658."""
INSTANT_MAX = 10**INSTANT_DIGITS - 1


def part(value: str) -> str:
    """Any text as a part of a key."""
    return quote(value, safe="")


def read_part(text: str) -> str:
    return unquote(text, errors="strict")


def key(*parts: str) -> str:
    """Parts that are encoded already, as a key. Raises `ValueError` for one that Azure does not allow."""
    joined = SEPARATOR.join(parts)
    fault = key_fault(joined)
    if fault is not None:
        raise ValueError(f"{joined[:100]!r} cannot be a key: {fault}")
    return joined


def instant(value: int) -> str:
    """A moment as a part of a key that sorts by time."""
    return f"{min(max(value, 0), INSTANT_MAX):0{INSTANT_DIGITS}d}"


def instant_descending(value: int) -> str:
    """The same, the latest first."""
    return f"{INSTANT_MAX - min(max(value, 0), INSTANT_MAX):0{INSTANT_DIGITS}d}"


def prefix_end(prefix: str) -> str:
    """The end, exclusive, of the range of keys that begin with `prefix` and a separator."""
    return prefix + AFTER_SEPARATOR


def key_fault(text: str) -> str | None:
    """Which rule of Azure's a key breaks; None if it breaks none."""
    if not text:
        return "it is empty"
    if len(text.encode("utf-16-le")) > 2 * KEY_CHARS_MAX:
        return f"it has more than {KEY_CHARS_MAX} characters"
    for character in text:
        if character in FORBIDDEN:
            return f"Azure forbids {character!r}"
        if character < " " or "\x7f" <= character <= "\x9f":
            return f"Azure forbids the control character {character!r}"
    return None

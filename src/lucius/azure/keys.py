"""Keys of rows in Azure Tables.

A key is made of parts, joined by `SEPARATOR`. Azure forbids `/`, `\\`, `#`, `?` and control characters in keys, and
OData quotes them with apostrophes; so every part that comes from outside is percent-encoded, which leaves only letters,
digits and `-._~%`. The separator sorts before all letters and after all digits, and does not occur in a part. A text
that is long once it is encoded is a part by its beginning and its hash, so that several of them have room in one key; a
row that must tell the whole text has it in a column.
"""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote, unquote

SEPARATOR = ":"
AFTER_SEPARATOR = ";"
"""The character after it: where a range of keys with one prefix ends."""
KEY_CHARS_MAX = 512
"""Azure allows 1 KiB, in UTF-16."""
PART_CHARS_MAX = 160
"""Of the beginning of a text that is longer. Two such parts and what else is in a key have room."""
_PART_DIGEST_CHARS = 32
FORBIDDEN = frozenset("/\\#?")
INSTANT_DIGITS = 15
"""Milliseconds since 1970, to sort as text until the year 33,658."""
INSTANT_MAX = 10**INSTANT_DIGITS - 1


def part(value: str) -> str:
    """Any text as a part of a key. Different texts are different parts."""
    text = encoded(value)
    if len(text) <= PART_CHARS_MAX:
        return text
    # Longer than any part that is a whole text.
    return f"{text[:PART_CHARS_MAX]}~{sha256(text.encode()).hexdigest()[:_PART_DIGEST_CHARS]}"


def encoded(value: str) -> str:
    """Any text as one word, however long."""
    return quote(value, safe="")


def decoded(text: str) -> str:
    """The text of a word; of a part, if it is known to be short, as ids are."""
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

"""Filters of lists: names, separated by commas, each of which may end in `*`; `\\` escapes `*`, `,` and itself."""

from __future__ import annotations

NULL = "\0"
"""Means key-values without a label."""
NAMES_MAX = 5


class Pattern:
    """Raises ValueError for a filter that App Configuration would refuse."""

    def __init__(self, text: str | None) -> None:
        self._names = [("", True)] if text is None else _read(text)
        if len(self._names) > NAMES_MAX:
            raise ValueError(f"a filter has at most {NAMES_MAX} names")

    def matches(self, name: str | None) -> bool:
        text = NULL if name is None else name
        return any(text.startswith(start) if is_open else text == start for start, is_open in self._names)


def _read(text: str) -> list[tuple[str, bool]]:
    """Each name, and whether anything may follow it."""
    names: list[tuple[str, bool]] = []
    start, is_open, letters = "", False, iter(text)
    for letter in letters:
        if letter == ",":
            names.append((start, is_open))
            start, is_open = "", False
        elif is_open:
            raise ValueError("* is allowed at the end of a name only")
        elif letter == "*":
            is_open = True
        elif letter == "\\":
            start += next(letters, "\\")
        else:
            start += letter
    names.append((start, is_open))
    return [(NULL if name == "" and not is_open else name, is_open) for name, is_open in names]

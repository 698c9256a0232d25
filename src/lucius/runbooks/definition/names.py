"""Names of runbooks, and what becomes of them and of a source's columns in SQL.

No identifier reaches SQL as it came in: a table's name is made from letters, digits and `_` alone, a column's name is
held to a list of characters, and both are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME_CHARS_MAX = 40
VERSION_MAX = 2_147_483_647
IDENTIFIER_BYTES_MAX = 63
"""What PostgreSQL keeps of an identifier; the rest it would cut off in silence."""
COLUMNS_MAX = 500

NAME_ADVICE = f"a runbook's name has 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ - and space, and begins with a letter"

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9 _-]{{0,{NAME_CHARS_MAX - 1}}}")
_NOT_IN_A_TABLE = re.compile(r"[^a-z0-9]+")
_IN_A_COLUMN = frozenset("0123456789_ -.@#()/")
_NEVER_QUOTED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\"\\$:]")
_SHOWN_CHARS_MAX = 80


def check_name(name: str) -> str:
    """The name itself. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{_shown(name)} cannot be the name of a runbook: {NAME_ADVICE}")
    return name


def sanitize(name: str) -> str:
    return _NOT_IN_A_TABLE.sub("_", name.lower())


def data_table_name(name: str, version: int) -> str:
    """Never longer than an identifier may be. Raises ValueError."""
    if not 1 <= version <= VERSION_MAX:
        raise ValueError(f"{version} is no version of a runbook: versions count from 1 to {VERSION_MAX}")
    return f"runbook_{sanitize(check_name(name))}_v{version}"


def tables_collide(name_a: str, name_b: str) -> bool:
    """Whether two different runbooks would keep their members in one table."""
    return name_a != name_b and sanitize(name_a) == sanitize(name_b)


def column_fault(name: str) -> str | None:
    """Why a source's column cannot be used, or None if it can."""
    if not name:
        return "a column has no name; give every column of the source one"
    unfit = sorted({char for char in name if not (char.isalpha() or char in _IN_A_COLUMN)})
    shown = _shown(name)
    if unfit:
        return f"the column {shown} holds {', '.join(map(repr, unfit[:5]))}; rename it: letters, digits and _ -.@#()/"
    if name.startswith("_"):
        return f"the column {shown} begins with _, as the system's own columns do; rename it"
    if name != name.strip():
        return f"the column {shown} begins or ends with a space, so that no template could name it; rename it"
    if len(name.encode()) > IDENTIFIER_BYTES_MAX:
        return f"the column {shown} has more than {IDENTIFIER_BYTES_MAX} bytes; give it a shorter name"
    return None


def columns_faults(names: Iterable[str]) -> list[str]:
    """What is wrong with a source's columns: each of them, and those that differ by letter case alone."""
    names = list(names)
    if len(names) > COLUMNS_MAX:
        return [f"the source has {len(names)} columns; name in the query those that are needed, at most {COLUMNS_MAX}"]
    faults = [fault for name in names if (fault := column_fault(name))]
    seen: dict[str, str] = {}
    for name in filter(None, names):
        folded = name.casefold()
        if folded in seen:
            faults.append(
                f"the columns {_shown(seen[folded])} and {_shown(name)} differ by letter case at most; rename one"
            )
        seen.setdefault(folded, name)
    return faults


def quoted(identifier: str) -> str:
    """The identifier in double quotes. Raises ValueError for one that could say more than a name."""
    if not identifier or _NEVER_QUOTED.search(identifier):
        raise ValueError(f"{_shown(identifier)} cannot be an identifier in SQL")
    if len(identifier.encode()) > IDENTIFIER_BYTES_MAX:
        raise ValueError(f"{_shown(identifier)} has more than {IDENTIFIER_BYTES_MAX} bytes, too many for an identifier")
    return f'"{identifier}"'


def _shown(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARS_MAX else repr(name[:_SHOWN_CHARS_MAX]) + "…"

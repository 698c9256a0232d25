"""Names of runbooks and columns, and the SQL identifiers made from them.

No identifier reaches SQL unchecked: a table's name consists of letters, digits and `_` only, a column's name of an
allowed set of characters, and both are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from lucius.domain.runbook_tenants import TENANT_PATTERN

NAME_CHARS_MAX = 40
VERSION_MAX = 2_147_483_647
IDENTIFIER_BYTES_MAX = 63
"""PostgreSQL silently truncates longer identifiers."""
COLUMNS_MAX = 500
SANITIZED_CHARS_MAX = 42
"""Leaves room for the rest of a table's name, with the longest version."""

NAME_ADVICE = (
    f"a runbook's name has 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ - and space, and begins with a letter; before it may"
    " stand a tenant's id and a dot"
)
NAME_PATTERN = rf"({TENANT_PATTERN}\.)?[A-Za-z][A-Za-z0-9 _-]{{0,{NAME_CHARS_MAX - 1}}}"

_NAME = re.compile(NAME_PATTERN)
_NOT_IN_A_TABLE = re.compile(r"[^a-z0-9]+")
_IN_A_COLUMN = frozenset("0123456789_ -.@#()/")
_NEVER_QUOTED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\"\\$:]")
_SHOWN_CHARS_MAX = 80


def check_name(name: str) -> str:
    """Returns the name. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{_shown(name)} is not a valid runbook name: {NAME_ADVICE}")
    return name


def sanitize(name: str) -> str:
    """The name in a table's name. Two underscores stand for the dot after a tenant and for nothing else, so that names
    collide only with those of the same tenant, or of one whose id differs in punctuation alone."""
    found = "__".join(_NOT_IN_A_TABLE.sub("_", part.lower()) for part in name.split("."))
    if len(found) <= SANITIZED_CHARS_MAX:
        return found
    digest = sha256(found.encode()).hexdigest()[:8]
    return f"{found[: SANITIZED_CHARS_MAX - len(digest) - 1]}_{digest}"


def data_table_name(name: str, version: int) -> str:
    """Never longer than an identifier may be. Raises ValueError."""
    if not 1 <= version <= VERSION_MAX:
        raise ValueError(f"{version} is not a runbook version: versions are from 1 to {VERSION_MAX}")
    return f"runbook_{sanitize(check_name(name))}_v{version}"


def tables_collide(name_a: str, name_b: str) -> bool:
    """Whether two different runbooks would use the same table for their members."""
    return name_a != name_b and sanitize(name_a) == sanitize(name_b)


def column_fault(name: str) -> str | None:
    """Why a source's column cannot be used, or None."""
    if not name:
        return "a column has no name; name every column of the source"
    unfit = sorted({char for char in name if not (char.isalpha() or char in _IN_A_COLUMN)})
    shown = _shown(name)
    if unfit:
        return f"the column {shown} contains {', '.join(map(repr, unfit[:5]))}; rename it: letters, digits, _ -.@#()/"
    if name.startswith("_"):
        return f"the column {shown} begins with _, which is reserved for system columns; rename it"
    if name != name.strip():
        return f"the column {shown} begins or ends with a space, so no template could refer to it; rename it"
    if len(name.encode()) > IDENTIFIER_BYTES_MAX:
        return f"the column {shown} has more than {IDENTIFIER_BYTES_MAX} bytes; give it a shorter name"
    return None


def columns_faults(names: Iterable[str]) -> list[str]:
    """Faults of a source's columns: each column, and names that differ only in letter case."""
    names = list(names)
    if len(names) > COLUMNS_MAX:
        return [f"the source has {len(names)} columns; select at most {COLUMNS_MAX} in the query"]
    faults = [fault for name in names if (fault := column_fault(name))]
    seen: dict[str, str] = {}
    for name in filter(None, names):
        folded = name.casefold()
        if folded in seen:
            faults.append(
                f"the columns {_shown(seen[folded])} and {_shown(name)} differ at most in letter case; rename one"
            )
        seen.setdefault(folded, name)
    return faults


def quoted(identifier: str) -> str:
    """The identifier in double quotes. Raises ValueError if it could be more than a name."""
    if not identifier or _NEVER_QUOTED.search(identifier):
        raise ValueError(f"{_shown(identifier)} cannot be an identifier in SQL")
    if len(identifier.encode()) > IDENTIFIER_BYTES_MAX:
        raise ValueError(f"{_shown(identifier)} has more than {IDENTIFIER_BYTES_MAX} bytes, too many for an identifier")
    return f'"{identifier}"'


def _shown(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARS_MAX else repr(name[:_SHOWN_CHARS_MAX]) + "…"

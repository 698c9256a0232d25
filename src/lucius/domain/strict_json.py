"""A strict JSON parser: refuses whatever two parsers could read differently.

A parser that keeps the last of two equal keys, rounds a big integer or accepts a lone surrogate gives two different
commands the same hash. The C scanner of the standard library does the work; hooks see every object and every number.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from math import isinf
from typing import Any, NoReturn

import msgspec

from lucius.domain.errors import CallerError

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
_INTEGER_CHARS_MAX = 20
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN_MAX = 80


def parse(body: bytes, depth_max: int) -> object:
    """The document in `body`. Raises `MALFORMED_JSON`, saying what is wrong and where."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8: {error.reason} at byte {error.start}")
    if text.startswith("\ufeff"):
        _refuse("the body starts with a byte order mark; send UTF-8 without one")
    try:
        document: object = _DECODER.decode(text)
    except JSONDecodeError as error:
        _refuse(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse_depth(depth_max)
    # A body with fewer brackets than levels cannot be too deep, and nearly every body has fewer.
    if body.count(b"{") + body.count(b"[") > depth_max and is_deeper(document, depth_max):
        _refuse_depth(depth_max)
    if _SURROGATE_ESCAPE.search(body):
        _check_surrogates(document)
    return document


def _refuse(detail: str) -> NoReturn:
    raise CallerError.of("MALFORMED_JSON", detail) from None


def _refuse_depth(depth_max: int) -> NoReturn:
    _refuse(f"the body is nested deeper than {depth_max} levels")


def _shown(text: str) -> str:
    """A piece of the body for an error message: short, and without lone surrogates."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= _SHOWN_MAX else whole[:_SHOWN_MAX] + "…"


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                _refuse(f"duplicate key {_shown(key)!r}")
            seen.add(key)
    return members


def _read_integer(digits: str) -> int:
    value = int(digits) if len(digits) <= _INTEGER_CHARS_MAX else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        _refuse(f"the integer {_shown(digits)} does not fit in 64 bits")
    return value


def _read_float(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        _refuse(f"the number {_shown(digits)} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


def is_deeper(document: object, depth_max: int) -> bool:
    """Level by level, without recursion."""
    level: list[Any] = [document] if isinstance(document, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > depth_max:
            return True
        members = (member for one in level for member in (one.values() if isinstance(one, dict) else one))
        level = [member for member in members if isinstance(member, dict | list)]
    return False


def _check_surrogates(document: object) -> None:
    try:
        msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        _refuse(f"a string holds the lone surrogate U+{ord(error.object[error.start]):04X}")


_DECODER = JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_integer,
    parse_float=_read_float,
    parse_constant=_refuse_constant,
)

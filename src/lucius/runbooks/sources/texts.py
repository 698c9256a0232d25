"""Values of a source as text: a member's row keeps nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec


class Unfit(Exception):
    """A value that has no text; the message goes on from `column 'X' `, and does not show the value."""


def value_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | UUID | str):
        return str(value)
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return moment.isoformat().removesuffix("+00:00") + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple | dict):
        return _dumped(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise Unfit("holds bytes, which are no text: convert them in the query")
    raise Unfit(f"is of the type {type(value).__name__}, which has no text here: convert it in the query")


def array_text(form: str) -> Callable[[Any], str | None]:
    """What reads a multi-valued column of that format, into a JSON array as text. Nothing stays nothing."""
    separator = {"semicolon_delimited": ";", "comma_delimited": ","}.get(form)

    def split(value: Any) -> str | None:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return _dumped(value)
        text = value_text(value) or ""
        if separator is None:
            return _dumped(_parsed(text))
        return _dumped([part for piece in text.split(separator) if (part := piece.strip())])

    return split


def _parsed(text: str) -> list[Any]:
    if not text.strip():
        return []
    try:
        return msgspec.json.decode(text, type=list[Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        raise Unfit("holds a text that is no JSON array, such as its format json_array wants") from None


def _dumped(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        raise Unfit("holds a list or an object that cannot be written as JSON: convert it in the query") from None

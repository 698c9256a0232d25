"""Values of a source as text: a member's row stores only text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec


class Unfit(Exception):
    """A value without a text form; the message continues `column 'X' ` and does not show the value."""


def value_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | UUID | str):
        return str(value)
    if isinstance(value, datetime):
        try:
            moment = value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
        except OverflowError:
            raise Unfit("has a time that is out of range in UTC") from None
        return moment.isoformat().removesuffix("+00:00") + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple | dict):
        return _dumped(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise Unfit("has bytes instead of text: convert them in the query")
    raise Unfit(f"has the unsupported type {type(value).__name__}: convert it to text in the query")


def array_text(form: str) -> Callable[[Any], str | None]:
    """A function that converts a multi-valued column of that format into a JSON array as text. None stays None."""
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
        raise Unfit("has text that is not a JSON array, which its format json_array requires") from None


def _dumped(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        raise Unfit("has a list or object that cannot be written as JSON: convert it in the query") from None

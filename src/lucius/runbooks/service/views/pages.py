"""Shared by the views: raw JSON, and times as text."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from lucius.domain.time import Instant, iso

T = TypeVar("T")
Paged = tuple[list[T], int | None]
"""Items, and the id that the next page continues from."""

_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def json_text(text: str) -> Any:
    """Raw JSON from a column. Text that is not JSON would make the whole response invalid."""
    try:
        return _decode_raw(text)
    except msgspec.MsgspecError:
        return {"error": {"code": "ROW_UNREADABLE", "message": "the database value is not JSON"}}


def moment(instant: Instant | None) -> str | None:
    return None if instant is None else iso(instant)

"""Calls with many items: counted before any is parsed, then read one by one.

Parsing first and counting afterwards lets a body of 4 MiB become millions of objects. An array-like struct takes as
many items as it has fields, each as its bytes, and skips the rest without building anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from lucius.domain.errors import CallerError, LuciusError
from lucius.usecases.bodies import UNREADABLE, body_error
from lucius.usecases.pacing import Pace

T = TypeVar("T")

_ABSENT = Raw(b"")


@lru_cache(maxsize=16)
def _splitter(count: int) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = [(f"item_{index}", Raw, _ABSENT) for index in range(count)]
    return msgspec.json.Decoder(msgspec.defstruct("FirstItems", fields, array_like=True, frozen=True))


def split(array: Raw, name: str, count_max: int) -> list[Raw]:
    """The items of a JSON array, unparsed. Rejects an empty array and one of more than `count_max` items."""
    try:
        first: tuple[Raw, ...] = astuple(_splitter(count_max + 1).decode(array))
    except UNREADABLE as error:
        raise body_error(error, f"/{name}") from error
    items = [item for item in first if item is not _ABSENT]
    if not items or len(items) > count_max:
        found = f"more than {count_max}" if items else "none"
        raise CallerError.of("ENVELOPE_INVALID", f"expected 1 to {count_max} {name}, not {found}", f"/{name}")
    return items


async def read_each(items: Iterable[Raw], read: Callable[[Raw], T], item_bytes_max: int) -> list[T | LuciusError]:
    """Read items one by one; an item that cannot be read is replaced by its error."""
    found: list[T | LuciusError] = []
    pace = Pace()
    for item in items:
        if pace.is_over():
            await pace.rest()
        size = len(item)
        try:
            if size > item_bytes_max:
                raise CallerError.of("BODY_TOO_LARGE", f"the item has {size} bytes, more than {item_bytes_max}")
            found.append(read(item))
        except LuciusError as error:
            found.append(error)
    return found

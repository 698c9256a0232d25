"""Calls with many items: counted before any is parsed, then read one by one.

Parsing first and counting afterwards lets a body of 4 MiB become millions of objects. An array-like struct takes as
many items as it has fields, each as its bytes, and stops at the first item too many.
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

LARGE_BYTES = 262_144
"""An array of this size may take half a millisecond to pass over."""

_ABSENT = Raw(b"")
_TOO_MANY = "Expected `array` of at most length"
"""How msgspec begins its message for an item too many."""


@lru_cache(maxsize=16)
def _splitter(count: int) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = [(f"item_{index}", Raw, _ABSENT) for index in range(count)]
    first_items = msgspec.defstruct("FirstItems", fields, array_like=True, frozen=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(first_items)


def split(array: Raw, name: str, count_max: int) -> list[Raw]:
    """The items of a JSON array, unparsed. Rejects an empty array and one of more than `count_max` items."""
    try:
        fields: tuple[Raw, ...] = astuple(_splitter(count_max).decode(array))
    except UNREADABLE as error:
        if str(error).startswith(_TOO_MANY):
            raise _wrong_count(name, count_max, f"more than {count_max}") from None
        raise body_error(error, f"/{name}") from error
    items = [item for item in fields if item is not _ABSENT]
    if not items:
        raise _wrong_count(name, count_max, "none")
    return items


async def split_resting(array: Raw, name: str, count_max: int) -> list[Raw]:
    """`split`, with a rest before and after it if the array is large: every pass over its bytes takes a slice."""
    if len(array) < LARGE_BYTES:
        return split(array, name, count_max)
    pace = Pace()
    await pace.rest()
    items = split(array, name, count_max)
    await pace.rest()
    return items


def _wrong_count(name: str, count_max: int, found: str) -> CallerError:
    return CallerError.of("ENVELOPE_INVALID", f"expected 1 to {count_max} {name}, not {found}", f"/{name}")


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

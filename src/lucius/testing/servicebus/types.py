"""AMQP's types where Python has none of its own. Whatever is decoded encodes to the same type again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class UByte(int):
    pass


class UShort(int):
    pass


class UInt(int):
    pass


class ULong(int):
    pass


class Byte(int):
    pass


class Short(int):
    pass


class Int(int):
    """32 bits. A plain `int` is a long: 64 bits."""


class Timestamp(int):
    """Milliseconds since 1970."""

    @classmethod
    def of(cls, seconds: float) -> Timestamp:
        return cls(round(seconds * 1000))


class Float(float):
    """32 bits. A plain `float` is a double."""


class Char(str):
    pass


class Symbol(str):
    pass


class Array(list[Any]):
    """Elements of one type."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """IEEE 754 decimals: carried, never calculated with."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Described:
    descriptor: Any
    value: Any

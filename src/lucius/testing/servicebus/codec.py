"""AMQP 1.0 values to bytes and back (part 1 of the standard), within limits.

Whatever bytes arrive, `decode` returns a value or raises `DecodeError`, in time and memory proportional to the input.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from lucius.testing.servicebus.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

DEPTH_MAX = 32
"""Values within values."""
EMPTY_ELEMENTS_MAX = 1_000
"""Elements of an array whose type takes no bytes: their number is bounded by nothing else."""

NUMBERS: dict[int, tuple[str, type]] = {
    0x50: (">B", UByte),
    0x51: (">b", Byte),
    0x52: (">B", UInt),
    0x53: (">B", ULong),
    0x54: (">b", Int),
    0x55: (">b", int),
    0x60: (">H", UShort),
    0x61: (">h", Short),
    0x70: (">I", UInt),
    0x71: (">i", Int),
    0x72: (">f", Float),
    0x80: (">Q", ULong),
    0x81: (">q", int),
    0x82: (">d", float),
    0x83: (">q", Timestamp),
}
WIDE = {UByte: 0x50, Byte: 0x51, UShort: 0x60, Short: 0x61, UInt: 0x70, Int: 0x71, Float: 0x72, ULong: 0x80}
WIDE |= {int: 0x81, float: 0x82, Timestamp: 0x83}
FIXED: dict[int, tuple[int, Any]] = {
    0x40: (0, None),
    0x41: (0, True),
    0x42: (0, False),
    0x43: (0, UInt(0)),
    0x44: (0, ULong(0)),
}
DECIMAL_BYTES = {0x74: 4, 0x84: 8, 0x94: 16}
LONG_FORM = 0x10
"""What is added to the code of a variable-width type whose size takes four bytes instead of one."""


class DecodeError(ValueError):
    """The bytes are no AMQP value, or one beyond the limits."""


def decode(data: bytes | memoryview, at: int = 0) -> tuple[Any, int]:
    """The value that starts at `at`, and where it ends."""
    view = memoryview(data)
    try:
        return _value(view, at, 0)
    except (IndexError, struct.error) as error:
        raise DecodeError("The bytes end within a value.") from error
    except UnicodeDecodeError as error:
        raise DecodeError("A string is not valid UTF-8, or a symbol not ASCII.") from error


def decode_only(data: bytes | memoryview) -> Any:
    """The one value that the bytes hold."""
    value, end = decode(data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes follow the value.")
    return value


def _value(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEPTH_MAX:
        raise DecodeError(f"More than {DEPTH_MAX} values are nested in each other.")
    code = data[at]
    if code == 0x00:
        descriptor, at = _value(data, at + 1, depth + 1)
        value, at = _value(data, at, depth + 1)
        return Described(descriptor, value), at
    return _of_type(code, data, at + 1, depth)


def _of_type(code: int, data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if code in NUMBERS:
        form, kind = NUMBERS[code]
        (number,) = struct.unpack_from(form, data, at)
        return kind(number), at + struct.calcsize(form)
    if code in FIXED:
        return FIXED[code][1], at
    if code == 0x45:
        return [], at
    if code == 0x56:
        return _boolean(data[at]), at + 1
    if code == 0x73:
        return _char(data, at), at + 4
    if code == 0x98:
        return UUID(bytes=_octets(data, at, 16)), at + 16
    if code in DECIMAL_BYTES:
        width = DECIMAL_BYTES[code]
        return Decimal(_octets(data, at, width)), at + width
    return _variable(code, data, at, depth)


def _variable(code: int, data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    short, is_long = code & ~LONG_FORM, bool(code & LONG_FORM)
    if short not in (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0):
        raise DecodeError(f"There is no type with the code 0x{code:02x}.")
    size, at = _size(data, at, is_long)
    end = at + size
    if end > len(data):
        raise DecodeError("The bytes end within a value.")
    if short < 0xC0:
        octets = bytes(data[at:end])
        if short == 0xA0:
            return octets, end
        return (octets.decode() if short == 0xA1 else Symbol(octets.decode("ascii"))), end
    count, at = _size(data, at, is_long)
    read = _array if short == 0xE0 else _elements
    items, after = read(data[:end], at, count, depth)
    if after != end:
        raise DecodeError("A list, map or array does not end where its size says.")
    return (_mapping(items) if short == 0xC1 else items), end


def _elements(data: memoryview, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    if count > len(data) - at:
        raise DecodeError(f"{count} elements do not fit into {len(data) - at} bytes.")
    items = []
    for _ in range(count):
        item, at = _value(data, at, depth + 1)
        items.append(item)
    return items, at


def _array(data: memoryview, at: int, count: int, depth: int) -> tuple[Array, int]:
    descriptor: Any = None
    code = data[at]
    if is_described := code == 0x00:
        descriptor, at = _value(data, at + 1, depth + 1)
        code = data[at]
    at += 1
    takes_no_bytes = code in FIXED or code == 0x45
    if count > (EMPTY_ELEMENTS_MAX if takes_no_bytes else len(data) - at):
        raise DecodeError(f"{count} elements do not fit into {len(data) - at} bytes.")
    if depth >= DEPTH_MAX:
        raise DecodeError(f"More than {DEPTH_MAX} values are nested in each other.")
    items = Array()
    for _ in range(count):
        item, at = _of_type(code, data, at, depth + 1)
        items.append(Described(descriptor, item) if is_described else item)
    return items, at


def _mapping(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise DecodeError("A map has a key without a value.")
    try:
        mapping = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError as error:
        raise DecodeError("A key of a map is itself a list, map or array.") from error
    if len(mapping) != len(items) // 2:
        raise DecodeError("A map has the same key twice.")
    return mapping


def _size(data: memoryview, at: int, is_long: bool) -> tuple[int, int]:
    if is_long:
        (size,) = struct.unpack_from(">I", data, at)
        return size, at + 4
    return data[at], at + 1


def _octets(data: memoryview, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise DecodeError("The bytes end within a value.")
    return bytes(data[at : at + count])


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise DecodeError(f"A boolean is 0 or 1, not {octet}.")
    return octet == 1


def _char(data: memoryview, at: int) -> Char:
    (number,) = struct.unpack_from(">I", data, at)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise DecodeError(f"There is no character with the number {number}.")
    return Char(chr(number))


def encode(value: Any) -> bytes:
    """The bytes of a value; raises `TypeError` for what AMQP has no type for."""
    if isinstance(value, Described):
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if isinstance(value, Array):
        return _encoded_array(value)
    code, octets = _coded(value)
    return bytes([code]) + octets


def _coded(value: Any) -> tuple[int, bytes]:
    """The code of a value's type, and the bytes after it."""
    if value is None:
        return 0x40, b""
    if isinstance(value, bool):
        return (0x41 if value else 0x42), b""
    kind = type(value)
    if kind in WIDE:
        if kind is ULong and value < 256:
            return 0x53, bytes([value])
        code = WIDE[kind]
        try:
            return code, struct.pack(NUMBERS[code][0], value)
        except (struct.error, OverflowError) as error:
            raise TypeError(f"{value} does not fit into AMQP's {kind.__name__.lower()}.") from error
    if isinstance(value, Char):
        return 0x73, struct.pack(">I", ord(value))
    if isinstance(value, Symbol):
        return _sized(0xA3, value.encode("ascii"))
    if isinstance(value, str):
        return _sized(0xA1, value.encode())
    if isinstance(value, bytes | bytearray | memoryview):
        return _sized(0xA0, bytes(value))
    if isinstance(value, UUID):
        return 0x98, value.bytes
    if isinstance(value, Decimal):
        return {4: 0x74, 8: 0x84, 16: 0x94}[len(value.octets)], value.octets
    if isinstance(value, dict):
        return _compound(0xC1, [encode(part) for pair in value.items() for part in pair])
    if isinstance(value, list | tuple):
        return _compound(0xC0, [encode(item) for item in value])
    raise TypeError(f"AMQP has no type for {kind.__name__}.")


def _sized(code: int, octets: bytes) -> tuple[int, bytes]:
    if len(octets) < 256:
        return code, bytes([len(octets)]) + octets
    return code | LONG_FORM, struct.pack(">I", len(octets)) + octets


def _compound(code: int, items: list[bytes]) -> tuple[int, bytes]:
    octets = b"".join(items)
    if len(octets) < 255 and len(items) < 256:
        return code, bytes([len(octets) + 1, len(items)]) + octets
    return code | LONG_FORM, struct.pack(">II", len(octets) + 4, len(items)) + octets


def _encoded_array(items: Array) -> bytes:
    described = [item for item in items if isinstance(item, Described)]
    if described and (len(described) != len(items) or any(item.descriptor != items[0].descriptor for item in items)):
        raise TypeError("The elements of an array have one descriptor, or none.")
    constructor = b"\x00" + encode(items[0].descriptor) if described else b""
    code, elements = _array_elements([item.value if isinstance(item, Described) else item for item in items])
    octets = constructor + bytes([code]) + b"".join(elements)
    return b"\xf0" + struct.pack(">II", len(octets) + 4, len(items)) + octets


def _array_elements(values: list[Any]) -> tuple[int, list[bytes]]:
    """One code for all, which for strings and the like is that of the long form."""
    if any(isinstance(value, Array) for value in values):
        if not all(isinstance(value, Array) for value in values):
            raise TypeError("The elements of an array are of one type.")
        return 0xF0, [_encoded_array(value)[1:] for value in values]
    coded = [_widened(*_coded(value)) for value in values]
    codes = {code for code, _ in coded} or {0x40}
    if len(codes) > 1:
        raise TypeError("The elements of an array are of one type.")
    return codes.pop(), [octets for _, octets in coded]


def _widened(code: int, octets: bytes) -> tuple[int, bytes]:
    if code in (0x41, 0x42):
        return 0x56, bytes([code == 0x41])
    if code == 0x53:
        return 0x80, struct.pack(">Q", octets[0])
    if code in (0xA0, 0xA1, 0xA3):
        return code | LONG_FORM, struct.pack(">I", octets[0]) + octets[1:]
    if code in (0xC0, 0xC1):
        return code | LONG_FORM, struct.pack(">II", octets[0] + 3, octets[1]) + octets[2:]
    return code, octets

"""AMQP values: what is encoded decodes to the same, and whatever else arrives is refused in time."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lucius.testing.servicebus.codec import DEPTH_MAX, DecodeError, decode, decode_only, encode
from lucius.testing.servicebus.frames import FRAME_BYTES_MAX, Frame, FrameReader, ProtocolHeader, frame
from lucius.testing.servicebus.performatives import Attach, Flow, Rejected, Transfer, read
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


def integers(kind: type, low: int, high: int) -> st.SearchStrategy[Any]:
    return st.integers(low, high).map(kind)


LONGS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(
    integers(UByte, 0, 255),
    integers(UShort, 0, 2**16 - 1),
    integers(UInt, 0, 2**32 - 1),
    integers(ULong, 0, 2**64 - 1),
    integers(Byte, -128, 127),
    integers(Short, -(2**15), 2**15 - 1),
    integers(Int, -(2**31), 2**31 - 1),
    LONGS,
    LONGS.map(Timestamp),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.uuids(),
    st.binary(max_size=300),
    TEXT,
    st.text(st.characters(max_codepoint=127), max_size=20).map(Symbol),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(Decimal),
)
ARRAYS = st.one_of(
    st.lists(LONGS, max_size=5),
    st.lists(TEXT, max_size=5),
    st.lists(st.uuids(), max_size=5),
    st.lists(st.booleans(), max_size=5),
    st.lists(integers(ULong, 0, 2**64 - 1), max_size=5),
    st.lists(st.lists(LONGS, max_size=3).map(Array), max_size=3),
    st.lists(st.dictionaries(TEXT, LONGS, max_size=3), max_size=3),
    st.lists(LONGS, min_size=1, max_size=3).map(lambda items: [Described(ULong(7), item) for item in items]),
).map(Array)
VALUES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(TEXT, inner, max_size=5),
        st.builds(Described, st.one_of(LONGS.map(abs).map(lambda n: ULong(n % 2**63)), TEXT.map(str)), inner),
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """The value with its types, so that 1 as a long differs from 1 as a byte."""
    if isinstance(value, Described):
        return ("described", typed(value.descriptor), typed(value.value))
    if isinstance(value, dict):
        return ("map", [(typed(key), typed(item)) for key, item in value.items()])
    if isinstance(value, list):
        return (type(value).__name__, [typed(item) for item in value])
    return (type(value).__name__, value)


@settings(deadline=None)
@given(VALUES)
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    assert typed(decode_only(encode(value))) == typed(value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"\xf0\x00\x00\x00\x09\xff\xff\xff\xff\x40")
@example(b"\xd0\x00\x00\x00\x08\xff\xff\xff\xff\x40\x40\x40\x40")
@example(b"\xc1\x03\x01\x40")
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert 0 < end <= len(data)
    encode(value)


@settings(deadline=None)
@given(VALUES, st.data())
def test_a_value_cut_short_is_an_error(value: Any, data: st.DataObject) -> None:
    whole = encode(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DecodeError):
        decode_only(whole[:cut])


def test_nesting_beyond_the_limit_is_an_error() -> None:
    deep = b"\x40"
    for _ in range(DEPTH_MAX + 1):
        deep = b"\xd0" + struct.pack(">II", len(deep) + 4, 1) + deep
    with pytest.raises(DecodeError, match="nested"):
        decode(deep)
    with pytest.raises(DecodeError, match="nested"):
        decode(b"\x00" * 10_000 + b"\x40")


def test_an_array_of_millions_of_empty_elements_is_an_error() -> None:
    with pytest.raises(DecodeError, match="do not fit"):
        decode(b"\xf0" + struct.pack(">II", 5, 100_000_000) + b"\x40")


def test_a_value_without_a_type_cannot_be_encoded() -> None:
    for value in (object(), Array([1, "a"]), 1 + 2j, 2**64, UInt(-1)):
        with pytest.raises(TypeError):
            encode(value)


def test_known_encodings_are_as_the_standard_has_them() -> None:
    assert encode(None) == b"\x40"
    assert encode(ULong(0x10)) == b"\x53\x10"
    assert encode(UInt(7)) == b"\x70\x00\x00\x00\x07"
    assert encode(Symbol("PLAIN")) == b"\xa3\x05PLAIN"
    assert encode([True, "a"]) == b"\xc0\x05\x02\x41\xa1\x01a"
    assert decode_only(b"\x54\xff") == -1
    assert decode_only(b"\x45") == []
    assert decode_only(b"\x56\x01") is True
    assert math.isnan(decode_only(encode(math.nan)))
    assert decode_only(encode(UUID(int=5))) == UUID(int=5)


# --- Frames ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 65_535), st.binary(max_size=100))), st.integers(1, 50)
)
def test_frames_arrive_whole_however_they_are_cut(sent: list[tuple[int, int, bytes]], cut: int) -> None:
    stream = b"".join(frame(*one) for one in sent)
    reader = FrameReader()
    found = [one for at in range(0, len(stream), cut) for one in reader.feed(stream[at : at + cut])]
    assert found == [Frame(*one) for one in sent]


def test_a_header_and_frames_follow_each_other() -> None:
    data = ProtocolHeader(3).encoded() + frame(1, 0, b"x") + ProtocolHeader(0).encoded()
    assert list(FrameReader().feed(data)) == [ProtocolHeader(3), Frame(1, 0, b"x"), ProtocolHeader(0)]


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">IBBH", FRAME_BYTES_MAX + 1, 2, 0, 0),
        struct.pack(">IBBH", 4, 2, 0, 0),
        struct.pack(">IBBH", 16, 1, 0, 0),
        struct.pack(">IBBH", 16, 5, 0, 0),
        struct.pack(">IBBH", 16, 2, 9, 0),
    ],
    ids=["too large", "smaller than its head", "offset within the head", "offset behind the end", "unknown type"],
)
def test_a_malformed_head_is_an_error_before_its_body_arrives(head: bytes) -> None:
    with pytest.raises(DecodeError):
        list(FrameReader().feed(head))


# --- Performatives ---------------------------------------------------------------------------------------------------


def test_performatives_survive_the_wire() -> None:
    for sent in (
        Attach(name="l", handle=3, role=True, snd_settle_mode=1, properties={Symbol("a"): 1}),
        Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=4, drain=True),
        Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=False),
        Rejected(),
    ):
        assert read(decode_only(sent.encoded())) == sent


@pytest.mark.parametrize(
    "value",
    [
        1,
        Described(ULong(0x99), []),
        Described(ULong(0x14), "text"),
        Described(ULong(0x14), [None]),
        Described(ULong(0x14), ["handle"]),
        Described([1], []),
    ],
)
def test_what_is_no_performative_is_an_error(value: Any) -> None:
    with pytest.raises(DecodeError):
        read(value)

"""Strict JSON: what every parser reads alike passes unchanged, and everything else is refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucius.domain.errors import CallerError
from lucius.domain.strict_json import INTEGER_MAX, INTEGER_MIN, parse

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(INTEGER_MIN, INTEGER_MAX) | st.floats(allow_nan=False, allow_infinity=False)
)
DOCUMENTS = st.recursive(SCALARS | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


def refusal(body: bytes, depth_max: int = 32) -> str:
    with pytest.raises(CallerError) as caught:
        parse(body, depth_max)
    assert caught.value.code == "MALFORMED_JSON"
    assert caught.value.status == 400
    json.dumps(caught.value.detail).encode()
    caught.value.detail.encode()
    return caught.value.detail


@UNTIMED
@given(DOCUMENTS, st.booleans())
def test_parse_returns_the_document_whatever_the_escaping(document: object, ascii_only: bool) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert parse(body, 100) == document


@UNTIMED
@given(st.binary(max_size=60))
def test_parse_refuses_or_agrees_with_the_standard_library(body: bytes) -> None:
    try:
        document = parse(body, 32)
    except CallerError as error:
        refused_with = error.code
    else:
        refused_with = None
        assert document == json.loads(body)
    assert refused_with in (None, "MALFORMED_JSON")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"\xff{}", "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"", "line 1, column 1"),
        (b"   ", "not JSON"),
        (b"{", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b"[1,]", "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b'{"a": +1}', "not JSON"),
        (b'{"a": .5}', "not JSON"),
        (b'{"a": 1.}', "not JSON"),
        (b'{"a": 0x1}', "not JSON"),
        (b'{"a": True}', "not JSON"),
        (b"{} {}", "not JSON"),
        (b"// note\n{}", "not JSON"),
        (b'{"a": "line\nbreak"}', "not JSON"),
        (b'{"a": "\\x"}', "not JSON"),
        (b'{"a": 1}\x00', "not JSON"),
    ],
)
def test_parse_refuses_what_is_not_json(body: bytes, detail: str) -> None:
    assert detail in refusal(body)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_parse_refuses_constants_by_name(name: str) -> None:
    assert name in refusal(f'{{"a": [{name}]}}'.encode())


@pytest.mark.parametrize("digits", ["1e999", "-1e999", "1.5e309", "9" * 400 + ".0"])
def test_parse_refuses_numbers_that_are_infinite_in_disguise(digits: str) -> None:
    assert "too large" in refusal(f"[{digits}]".encode())


@pytest.mark.parametrize("value", [INTEGER_MAX, INTEGER_MIN, 0, -1, 2**53 + 1])
def test_parse_keeps_integers_exactly(value: int) -> None:
    assert parse(f"[{value}]".encode(), 2) == [value]


@pytest.mark.parametrize("value", [INTEGER_MAX + 1, INTEGER_MIN - 1, 2**64, 10**30, -(10**30)])
def test_parse_refuses_integers_beyond_64_bits(value: int) -> None:
    assert "64 bits" in refusal(f'{{"a": {value}}}'.encode())


def test_parse_refuses_an_integer_of_many_thousand_digits_without_converting_it() -> None:
    assert "64 bits" in refusal(b"9" * 100_000)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"a": 1, "b": 2, "a": 1}', "a"),
        (b'{"x": [{"deep": {"k": 1, "k": 1}}]}', "k"),
        (b'{"tenant_id": "a", "tenant\\u005fid": "b"}', "tenant_id"),
    ],
)
def test_parse_names_the_duplicate_key(body: bytes, key: str) -> None:
    assert f"duplicate key {key!r}" in refusal(body)


def test_parse_keeps_a_very_long_key_out_of_the_error() -> None:
    key = b"k" * 5000
    assert len(refusal(b'{"' + key + b'": 1, "' + key + b'": 2}')) < 200


@pytest.mark.parametrize(
    "escape", ["\\ud800", "\\uDBFF", "\\udc00", "\\udfff", "\\udc00\\ud800", "\\ud83d\\ud83d\\ude00"]
)
@pytest.mark.parametrize("frame", ['["{}"]', '{{"{}": 1}}', '{{"a": {{"b": ["x{}y"]}}}}'])
def test_parse_refuses_lone_surrogates_in_values_and_keys(escape: str, frame: str) -> None:
    assert "lone surrogate" in refusal(frame.format(escape).encode())


def test_parse_refuses_a_duplicate_key_with_a_lone_surrogate() -> None:
    assert "duplicate key" in refusal(b'{"\\ud800": 1, "\\ud800": 2}')


def test_parse_reads_surrogate_pairs_and_escaped_backslashes() -> None:
    assert parse(b'["\\ud83d\\ude00", "\\\\ud800"]', 32) == ["\U0001f600", "\\ud800"]


@pytest.mark.parametrize("depth", [1, 2, 32])
def test_parse_counts_levels_exactly(depth: int) -> None:
    assert parse(b"[" * depth + b"]" * depth, depth) is not None
    assert "deeper" in refusal(b"[" * (depth + 1) + b"]" * (depth + 1), depth)
    assert "deeper" in refusal(b'{"a":' * (depth + 1) + b"1" + b"}" * (depth + 1), depth)


def test_parse_does_not_take_breadth_or_text_for_depth() -> None:
    assert parse(json.dumps([[]] * 500).encode(), 2) == [[]] * 500
    assert parse(json.dumps(["[[[[{{{{" * 20]).encode(), 1) == ["[[[[{{{{" * 20]
    assert parse(json.dumps("[" * 50).encode(), 1) == "[" * 50


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_parse_refuses_nesting_that_would_break_the_stack(opening: bytes) -> None:
    assert "deeper" in refusal(opening * 60_000)

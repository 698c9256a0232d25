"""Canonical JSON: documents that mean the same have one form, and documents that do not have two."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lucius.domain.canonical import canonical_json, idempotency_hash, idempotency_scope_key

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)


def plain(value: Any) -> Any:
    """What a document means, written down independently: no null members, one kind of number."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(member) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1.50, "1.5"),
        (1e2, "100"),
        (-0.0, "0"),
        (0, "0"),
        (-3.0, "-3"),
        (0.1, "0.1"),
        (123456789012.0, "123456789012"),
        (9007199254740993, "9007199254740993"),
        (2.0**63, "9223372036854775808"),
        (1e300, "1e+300"),
        (1e-7, "1e-07"),
        (5e-324, "5e-324"),
        (True, "true"),
        (None, "null"),
        ("a:null,1.50", '"a:null,1.50"'),
        ([None, 1, None], "[null,1,null]"),
        ([3, 1, 2], "[3,1,2]"),
        ({"b": 1, "a": None, "B": 2}, '{"B":2,"b":1}'),
        ({"a": [{"x": None, "y": [None]}]}, '{"a":[{"y":[null]}]}'),
        ({"n": None, "z": "[1.50"}, '{"z":"[1.50"}'),
        ([1.0, 2.5, -1e3], "[1,2.5,-1000]"),
        ("ü😀", '"ü😀"'),
        ('\x00\x1f\n\t"\\/\x7f\u2028', '"\\u0000\\u001f\\n\\t\\"\\\\/\x7f\u2028"'),
        ({"é": 1, "z": 2, "\U0001f600": 3, "\uffff": 4}, '{"z":2,"é":1,"\uffff":4,"\U0001f600":3}'),
        ({}, "{}"),
    ],
)
def test_canonical_json_has_one_form(value: object, text: str) -> None:
    assert canonical_json(value) == text.encode()


@UNTIMED
@given(DOCUMENTS)
def test_canonical_json_keeps_the_meaning(value: Any) -> None:
    text = canonical_json(value)
    assert plain(json.loads(text)) == plain(value)
    assert canonical_json(json.loads(text)) == text


@UNTIMED
@given(DOCUMENTS)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    assert canonical_json(shuffled(value)) == canonical_json(value)


@UNTIMED
@given(DOCUMENTS, DOCUMENTS)
def test_canonical_json_tells_different_documents_apart(one: Any, other: Any) -> None:
    same = json.dumps(plain(one), sort_keys=True) == json.dumps(plain(other), sort_keys=True)
    assert (canonical_json(one) == canonical_json(other)) is same


@UNTIMED
@given(st.dictionaries(TEXT, DOCUMENTS, max_size=4), TEXT)
def test_canonical_json_passes_over_members_that_are_null(value: dict[str, Any], name: str) -> None:
    assume(name not in value)
    assert canonical_json({**value, name: None}) == canonical_json(value)


@UNTIMED
@given(st.integers(-(2**53), 2**53))
def test_canonical_json_takes_a_float_for_the_integer_it_equals(value: int) -> None:
    assert canonical_json({"n": float(value)}) == canonical_json({"n": value})


COMMAND: dict[str, Any] = {
    "tenant_norm": "acme",
    "request_type": "OCR",
    "input_ref": "https://a.example/in",
    "output_ref": {"uri": "https://a.example/out"},
    "payload": {"pages": [1, 2], "dpi": 300},
    "schema_version": "1",
}


def test_idempotency_hash_is_that_of_the_six_fields() -> None:
    text = (
        '{"input_ref":"https://a.example/in","output_ref":{"uri":"https://a.example/out"},'
        '"payload":{"dpi":300,"pages":[1,2]},"request_type":"OCR","schema_version":"1","tenant_id":"acme"}'
    )
    assert idempotency_hash(**COMMAND) == sha256(text.encode()).hexdigest()


def test_idempotency_hash_does_not_move_when_the_meaning_does_not() -> None:
    same = COMMAND | {"payload": {"dpi": 300.0, "language": None, "pages": [1.0, 2]}}
    assert idempotency_hash(**same) == idempotency_hash(**COMMAND)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_norm": "acme2"},
        {"request_type": "SIS"},
        {"input_ref": "https://a.example/in2"},
        {"input_ref": {"uri": "https://a.example/in"}},
        {"output_ref": {"uri": "https://a.example/out", "x": 1}},
        {"payload": {"pages": [2, 1], "dpi": 300}},
        {"payload": {"pages": [1, 2, None], "dpi": 300}},
        {"payload": {"pages": [1, 2], "dpi": "300"}},
        {"schema_version": "1.0"},
    ],
)
def test_idempotency_hash_moves_with_every_field(change: dict[str, Any]) -> None:
    assert idempotency_hash(**(COMMAND | change)) != idempotency_hash(**COMMAND)


def test_scope_key_goes_by_the_key_where_there_is_one() -> None:
    assert idempotency_scope_key("acme", "k", "h1") == idempotency_scope_key("acme", "k", "h2")
    assert idempotency_scope_key("acme", None, "h1") != idempotency_scope_key("acme", None, "h2")
    assert idempotency_scope_key("acme", "h1", "x") != idempotency_scope_key("acme", None, "h1")
    assert idempotency_scope_key("acme", "k", "h") != idempotency_scope_key("acm", "ek", "h")
    assert len(idempotency_scope_key("acme", "k", "h")) == 32


@UNTIMED
@given(st.tuples(TEXT, st.none() | TEXT, TEXT), st.tuples(TEXT, st.none() | TEXT, TEXT))
def test_scope_keys_are_equal_only_for_the_same_claim(
    one: tuple[str, str | None, str], other: tuple[str, str | None, str]
) -> None:
    def claim(tenant: str, key: str | None, hash_: str) -> tuple[str, bool, str]:
        return tenant, key is None, hash_ if key is None else key

    assert (idempotency_scope_key(*one) == idempotency_scope_key(*other)) is (claim(*one) == claim(*other))

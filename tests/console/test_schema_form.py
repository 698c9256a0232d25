"""Forms made from JSON Schemas, without a browser."""

from __future__ import annotations

from typing import Any

from lucius.console.schema_form import (
    FIELDS_MAX,
    faults_by_field,
    fields_of,
    payload_of,
    shown,
)
from lucius.domain.errors import Fault
from lucius.domain.protocol import Protocol, StepDefinition


def protocol_of(*schemas: tuple[str, dict[str, Any]]) -> Protocol:
    steps = tuple(
        StepDefinition(id=f"s{place}", type="T", service="x", payload_pointer=pointer, payload_schema=schema)
        for place, (pointer, schema) in enumerate(schemas)
    )
    return Protocol(id="P", version=1, request_types=("P",), steps=steps)


SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "a/b~c": {"type": "integer", "minimum": 1},
        "is_urgent": {"type": "boolean"},
        "kind": {"enum": ["x", 1, None]},
        "inner": {"type": "object", "properties": {"deep": {"type": "number"}}},
        "many": {"type": "array", "items": {}},
        "anything": True,
    },
}


def test_each_value_has_a_field_of_its_kind() -> None:
    (step,) = fields_of(protocol_of(("/part", SCHEMA)))
    kinds = {field.pointer: field.kind for field in step.fields}
    assert kinds == {
        "/payload/part/name": "text", "/payload/part/a~1b~0c": "number", "/payload/part/is_urgent": "choice",
        "/payload/part/kind": "choice", "/payload/part/inner/deep": "number", "/payload/part/many": "json",
        "/payload/part/anything": "json",
    }  # fmt: skip
    assert [field.pointer for field in step.fields if field.is_required] == ["/payload/part/name"]


def test_what_is_typed_becomes_the_payload_and_back() -> None:
    fields = fields_of(protocol_of(("/part", SCHEMA)))[0].fields
    typed = {
        "/payload/part/name": "ann", "/payload/part/a~1b~0c": "7", "/payload/part/is_urgent": "false",
        "/payload/part/kind": "null", "/payload/part/inner/deep": "1.5", "/payload/part/many": '["<b>"]',
        "/payload/part/anything": "",
    }  # fmt: skip
    payload, faults = payload_of(fields, typed, 20)
    part = {"name": "ann", "a/b~c": 7, "is_urgent": False, "kind": None, "inner": {"deep": 1.5}, "many": ["<b>"]}
    assert (payload, faults) == ({"part": part}, [])
    again = {pointer: text for pointer, text in typed.items() if text not in ("", "null")}
    assert shown(fields, {"payload": payload}) == again


def test_what_cannot_be_read_is_said_at_its_field() -> None:
    fields = fields_of(protocol_of(("", SCHEMA)))[0].fields
    typed = {
        "/payload/a~1b~0c": "many", "/payload/kind": '"y"', "/payload/many": "[1,", "/payload/anything": '{"a": NaN}',
    }  # fmt: skip
    _, faults = payload_of(fields, typed, 20)
    assert {fault.pointer for fault in faults} == set(typed)
    _, (deep,) = payload_of(fields, {"/payload/many": "[" * 50 + "]" * 50}, 20)
    assert deep.pointer == "/payload/many"


def test_steps_share_what_they_both_read_and_a_large_protocol_is_json() -> None:
    first, second = fields_of(protocol_of(("", SCHEMA), ("", SCHEMA)))
    assert (len(first.fields), second.fields) == (7, ())
    wide = {"properties": {f"p{number}": {"type": "string"} for number in range(FIELDS_MAX + 1)}}
    assert [[field.kind for field in step.fields] for step in fields_of(protocol_of(("/a", wide), ("/b", {})))] == [
        ["json"], ["json"],
    ]  # fmt: skip
    payload, faults = payload_of(fields_of(protocol_of(("", {})))[0].fields, {"/payload": "[1]"}, 20)
    assert (payload, [fault.detail for fault in faults]) == ({}, ["must be a JSON object"])


def test_faults_belong_to_the_nearest_field() -> None:
    faults = [Fault("X", "/payload/a/0", "one"), Fault("X", "/payload/ab", "two"), Fault("X", "", "three")]
    at, elsewhere = faults_by_field(["/payload/a", "/tenant_id"], faults)
    assert at == {"/payload/a": ["one"]}
    assert [fault.detail for fault in elsewhere] == ["two", "three"]

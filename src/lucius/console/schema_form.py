"""A form made from JSON Schemas: a field for each value that can be typed, JSON text for the rest.

The form only asks. Whether what was typed is right, the API's validation says: its faults have pointers, and each is
shown at the field that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lucius.console.forms import Form
from lucius.domain.errors import CallerError, Fault
from lucius.domain.protocol import Protocol
from lucius.domain.strict_json import parse

DEPTH_MAX = 3
"""Objects within objects that become fields; deeper ones are typed as JSON."""
FIELDS_MAX = 60
"""A protocol with more is typed as JSON, one text for each step."""
CHARS_MAX = 65_536
OPTIONS_MAX = 200
PREFIX = "field:"
PAYLOAD = "/payload"

TEXT, NUMBER, CHOICE, JSON = "text", "number", "choice", "json"


class Field(Struct, frozen=True, kw_only=True):
    pointer: str
    """Into the envelope: `/payload/ocr/language`."""
    words: str
    kind: str
    is_required: bool = False
    hint: str = ""
    options: tuple[str, ...] = ()
    """Of a choice: values as JSON."""
    minimum: float | None = None
    maximum: float | None = None
    chars_max: int = CHARS_MAX

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.pointer}"

    @property
    def element_id(self) -> str:
        """Of its element in the page: names of properties may hold anything."""
        return f"field-{sha256(self.pointer.encode()).hexdigest()[:12]}"


class StepFields(Struct, frozen=True):
    step_id: str
    service: str
    fields: tuple[Field, ...]


def fields_of(protocol: Protocol) -> list[StepFields]:
    """By step. Steps that read the same part of the payload share its fields: the first one has them."""
    found: list[StepFields] = []
    known: set[str] = set()
    for step in protocol.steps:
        wanted = _fields(step.payload_schema, PAYLOAD + step.payload_pointer, "", False, 0)
        fields = tuple(field for field in wanted if field.pointer not in known)
        known |= {field.pointer for field in fields}
        found.append(StepFields(step.id, step.service, fields))
    if len(known) <= FIELDS_MAX:
        return found
    return [
        StepFields(step.id, step.service, (_json(PAYLOAD + step.payload_pointer, "parameters", "", True),))
        for step in protocol.steps
    ]


def _fields(schema: Mapping[str, Any], pointer: str, words: str, is_required: bool, depth: int) -> Iterable[Field]:
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties and depth < DEPTH_MAX:
        required = schema.get("required", ())
        for name, inner in properties.items():
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            inner = inner if isinstance(inner, dict) else {}
            yield from _fields(inner, place, f"{words} › {name}" if words else name, name in required, depth + 1)
        return
    yield _field(schema, pointer, words or "parameters", is_required)


def _field(schema: Mapping[str, Any], pointer: str, words: str, is_required: bool) -> Field:
    known = _json(pointer, words, str(schema.get("description", "")), is_required)
    options, kind = schema.get("enum"), schema.get("type")
    if kind == "boolean":
        options = [True, False]
    if isinstance(options, list) and 0 < len(options) <= OPTIONS_MAX:
        return replace(known, kind=CHOICE, options=tuple(_text(one) for one in options))
    if kind in ("integer", "number"):
        return replace(known, kind=NUMBER, minimum=schema.get("minimum"), maximum=schema.get("maximum"))
    if kind == "string":
        return replace(known, kind=TEXT, chars_max=min(CHARS_MAX, int(schema.get("maxLength", CHARS_MAX))))
    return known


def _json(pointer: str, words: str, hint: str, is_required: bool) -> Field:
    return Field(pointer=pointer, words=words, kind=JSON, is_required=is_required, hint=hint)


# --- What was typed --------------------------------------------------------------------------------------------------


def typed(fields: Iterable[Field], form: Form) -> dict[str, str]:
    """By pointer, as it was typed."""
    return {field.pointer: form.text(field.name, CHARS_MAX) for field in fields}


def payload_of(
    fields: Sequence[Field], values: Mapping[str, str], depth_max: int
) -> tuple[dict[str, Any], list[Fault]]:
    """The payload, and what could not be read. An empty field is left out."""
    payload: dict[str, Any] = {}
    faults = []
    for field in fields:
        text = values.get(field.pointer, "")
        if not text:
            continue
        try:
            _place(payload, field.pointer.removeprefix(PAYLOAD), _read(field, text, depth_max))
        except CallerError as error:
            faults.append(Fault("PAYLOAD_INVALID", field.pointer, error.detail))
    return payload, faults


def _read(field: Field, text: str, depth_max: int) -> Any:
    if field.kind == TEXT:
        return text
    if field.kind == CHOICE:
        if text not in field.options:
            raise CallerError.of("PAYLOAD_INVALID", f"must be one of {', '.join(field.options)}")
        return msgspec.json.decode(text)
    if field.kind == NUMBER:
        try:
            return msgspec.json.decode(text, type=int | float)
        except msgspec.MsgspecError:
            raise CallerError.of("PAYLOAD_INVALID", "must be a number") from None
    return parse(text.encode(), depth_max)


def _place(payload: dict[str, Any], pointer: str, value: Any) -> None:
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    if not tokens:
        if not isinstance(value, dict):
            raise CallerError.of("PAYLOAD_INVALID", "must be a JSON object")
        payload |= value
        return
    place = payload
    for token in tokens[:-1]:
        place = place.setdefault(token, {})
        if not isinstance(place, dict):
            raise CallerError.of("PAYLOAD_INVALID", "another field has put a value where this one needs an object")
    place[tokens[-1]] = value


# --- What is shown ---------------------------------------------------------------------------------------------------


def shown(fields: Iterable[Field], envelope: Mapping[str, Any]) -> dict[str, str]:
    """The values of an envelope as they would be typed, by pointer."""
    found = {}
    for field in fields:
        value = _find(envelope, field.pointer)
        if value is not None:
            found[field.pointer] = value if field.kind == TEXT and isinstance(value, str) else _text(value)
    return found


def _find(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        value = value.get(token.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def faults_by_field(pointers: Iterable[str], faults: Iterable[Fault]) -> tuple[dict[str, list[str]], list[Fault]]:
    """What is wrong with each field, and what belongs to none."""
    known = sorted(pointers, key=len, reverse=True)
    at: dict[str, list[str]] = {}
    elsewhere = []
    for fault in faults:
        place = next((one for one in known if fault.pointer == one or fault.pointer.startswith(f"{one}/")), None)
        if place is None:
            elsewhere.append(fault)
        else:
            at.setdefault(place, []).append(fault.detail)
    return at, elsewhere

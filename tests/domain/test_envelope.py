"""Envelope v1: every field, wrong in every way, and all faults at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lucius.domain.schemas
from lucius.domain.canonical import idempotency_hash, idempotency_scope_key
from lucius.domain.envelope import (
    FAULTS_MAX,
    OPTIONAL,
    REQUIRED,
    Envelope,
    EnvelopeRules,
    Terms,
    read_envelope,
    tenant_of,
)
from lucius.domain.errors import CallerError, Fault
from lucius.domain.protocol import Protocol, StepDefinition
from lucius.domain.refs import RefPolicy
from lucius.domain.routing import DecisionSource, Mode
from lucius.domain.time import iso

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NOW = 1_790_000_000_000
DAY = 86_400_000
OWN = "https://lucius.example"
RULES = EnvelopeRules(own_callback_urls=(OWN + "/",))
SCHEMAS = Path(lucius.domain.schemas.__file__).parent
SCHEMA = jsonschema_rs.Draft202012Validator(json.loads((SCHEMAS / "envelope.json").read_text()), offline=True)


def step(id_: str, pointer: str, schema: dict[str, Any]) -> StepDefinition:
    return StepDefinition(id=id_, type=id_.upper(), service=id_, payload_pointer=pointer, payload_schema=schema)


STRICT = {"type": "object", "additionalProperties": False}
OCR = {**STRICT, "properties": {"dpi": {"type": "integer"}, "a/b": {"type": "array", "items": {"type": "string"}}}}
SIS = {**STRICT, "required": ["prompt_set"], "properties": {"prompt_set": {"type": "array", "minItems": 1}}}
ONE = Protocol(id="ONE", version=1, request_types=("ONE",), steps=(step("ocr", "", OCR),))
TWO = Protocol(id="TWO", version=1, request_types=("TWO",), steps=(step("ocr", "/ocr", OCR), step("sis", "/sis", SIS)))
ANY = Protocol(id="ANY", version=1, request_types=("ANY",), steps=(step("any", "", {}),))
LIST = Protocol(id="LIST", version=1, request_types=("LIST",), steps=(step("a", "/s/0", OCR), step("b", "/s/1", OCR)))
REQUEST_TYPES = {"ONE": ONE, "ONE→": ONE, "TWO": TWO, "ANY": ANY, "LIST": LIST}

MINIMAL: dict[str, Any] = {
    "tenant_id": "Acme",
    "request_type": "ONE",
    "input_ref": "https://a.example/in.pdf",
    "output_ref": "s3://bucket/out/",
    "payload": {},
    "schema_version": "1",
}


def read(
    change: dict[str, Any] | None = None, terms: Terms | None = None, rules: EnvelopeRules = RULES, without: str = ""
) -> Envelope:
    document = {name: value for name, value in {**MINIMAL, **(change or {})}.items() if name != without}
    return read_envelope(document, tenant_of(document), REQUEST_TYPES, terms or Terms(), rules, NOW)


def faults_of(document: object, terms: Terms | None = None, rules: EnvelopeRules = RULES) -> list[Fault]:
    try:
        read_envelope(document, tenant_of(document), REQUEST_TYPES, terms or Terms(), rules, NOW)
    except CallerError as error:
        return list(error.faults)
    return []


def only_fault(change: dict[str, Any], terms: Terms | None = None, rules: EnvelopeRules = RULES) -> tuple[str, str]:
    (fault,) = faults_of({**MINIMAL, **change}, terms, rules)
    return fault.code, fault.pointer


def test_minimal_envelope_is_read() -> None:
    envelope = read()
    hash_ = idempotency_hash("acme", "ONE", MINIMAL["input_ref"], MINIMAL["output_ref"], {}, "1")
    assert envelope.tenant_id == "acme"
    assert envelope.request_type == "ONE"
    assert envelope.protocol is ONE
    assert bytes(envelope.input_ref) == b'"https://a.example/in.pdf"'
    assert bytes(envelope.output_ref) == b'"s3://bucket/out/"'
    assert [bytes(payload) for payload in envelope.payloads] == [b"{}"]
    assert envelope.idempotency_hash == hash_
    assert envelope.scope_key == idempotency_scope_key("acme", None, hash_)
    assert envelope.callback_urls == {}
    assert envelope.routing.resolved_mode is Mode.DEFAULT
    assert envelope.routing.decision_source is DecisionSource.GLOBAL_CONFIG
    assert envelope.routing.routing_key_used == "acme"
    assert [getattr(envelope, name) for name in OPTIONAL if name not in ("mode", "callback_urls")] == [None] * 5


def test_full_envelope_is_read() -> None:
    envelope = read(
        {
            "tenant_id": "  ACME ",
            "request_type": "TWO",
            "input_ref": {"uri": "gs://b/in", "etag": "ü"},
            "payload": {"sis": {"prompt_set": ["x"]}, "ocr": {"dpi": 300}},
            "schema_version": "1.7",
            "mode": "BURST",
            "idempotency_key": "Key 1",
            "doc_id": " Doc-7 ",
            "callback_urls": {
                "completed": "https://hooks.example/x?y=1",
                "ack": f"{OWN}/v1/callbacks/ack",
                "result": None,
            },
            "correlation_id": "c 1",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "not_before": iso(NOW + DAY),
        }
    )
    assert envelope.routing.routing_key_used == "acmedoc-7"
    assert envelope.routing.decision_source is DecisionSource.REQUEST
    assert [bytes(payload) for payload in envelope.payloads] == [b'{"dpi":300}', b'{"prompt_set":["x"]}']
    assert bytes(envelope.input_ref) == '{"uri":"gs://b/in","etag":"ü"}'.encode()
    assert envelope.scope_key == idempotency_scope_key("acme", "Key 1", envelope.idempotency_hash)
    assert envelope.doc_id == "Doc-7"
    assert envelope.not_before == NOW + DAY
    assert envelope.correlation_id == "c 1"
    assert envelope.callback_urls == {
        "completed": "https://hooks.example/x?y=1",
        "ack": f"{OWN}/v1/callbacks/ack",
    }


def test_alias_keeps_its_name_and_hash_differs_from_the_other_name() -> None:
    assert read({"request_type": "ONE→"}).protocol is ONE
    assert read({"request_type": "ONE→"}).request_type == "ONE→"
    assert read({"request_type": "ONE→"}).idempotency_hash != read().idempotency_hash


@pytest.mark.parametrize("document", [None, [], "x", 1, True, [MINIMAL]])
def test_envelope_is_refused_when_it_is_not_an_object(document: object) -> None:
    (fault,) = faults_of(document)
    assert (fault.code, fault.pointer) == ("ENVELOPE_INVALID", "")


@pytest.mark.parametrize("name", REQUIRED)
def test_required_field_is_named_when_it_is_missing(name: str) -> None:
    with pytest.raises(CallerError) as caught:
        read(without=name)
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [("ENVELOPE_INVALID", f"/{name}")]


@pytest.mark.parametrize("name", REQUIRED)
def test_required_field_is_refused_when_it_is_null(name: str) -> None:
    code, pointer = only_fault({name: None})
    assert (code, pointer) == ("REF_INVALID" if name.endswith("_ref") else "ENVELOPE_INVALID", f"/{name}")


@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_field_counts_as_left_out_when_it_is_null(name: str) -> None:
    assert read({name: None}) == read()


@pytest.mark.parametrize(
    ("name", "pointer"), [("unknown", "/unknown"), ("a/b~c", "/a~1b~0c"), ("", "/"), ("Tenant_id", "/Tenant_id")]
)
def test_unknown_field_is_refused_by_name(name: str, pointer: str) -> None:
    assert only_fault({name: None}) == ("ENVELOPE_INVALID", pointer)


WRONG: dict[str, list[Any]] = {
    "tenant_id": [
        "*",
        " * ",
        1,
        True,
        [],
        {},
        "",
        "   ",
        "x" * 129,
        "a/b",
        "a\\b",
        "a#b",
        "a?b",
        "a\nb",
        "acme\n",
        "\tacme",
        "\x7f",
        "a\x00",
        "\x85",
        "\u3000",
        ".",
        " .. ",
    ],
    "request_type": [1, [], {}, False],
    "payload": [[], "x", 1, True],
    "schema_version": [
        1,
        1.0,
        True,
        [],
        "",
        "x",
        "1.",
        "1.x",
        "1.0.0",
        "01",
        "1.01",
        " 1",
        "1\n",
        "v1",
        "1.-1",
        "\uff11",
    ],
    "mode": ["", "default", "burst", "Safe", "FAST", 1, [], {}, True],
    "idempotency_key": ["", "x" * 257, "a\nb", "\x00", 1, [], {}, False],
    "doc_id": ["", "  ", "x" * 257, "a\nb", "x\n", "\x9f", 1, [], {}],
    "correlation_id": ["", "x" * 129, "ü", "a\nb", "\x7f", 1, [], {}],
    "traceparent": [
        *("", "x", 1, []),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
    ],
    "not_before": [
        "",
        "now",
        1790000000,
        1.5,
        [],
        "2026-01-31",
        "2026-01-31T08:15:30",
        "20260131T081530Z",
        "2026-W05",
        "2026-01-31 08:15:30Z",
        "2026-01-31T08:15Z",
        "2026-01-31T08:15:30+01",
        "2026-01-31T08:15:30Z\n",
    ],
    "callback_urls": [[], "https://a.example", 1, True],
}
WRONG_BY_THE_CALENDAR = ["2026-02-30T00:00:00Z", "2026-01-31T24:00:01Z", "2026-01-31T08:15:60Z", "2026-13-01T00:00:00Z"]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_field_is_refused_when_it_is_wrong(name: str, value: Any) -> None:
    assert only_fault({name: value}) == ("ENVELOPE_INVALID", f"/{name}")
    assert not SCHEMA.is_valid({**MINIMAL, name: value})


RIGHT: dict[str, list[Any]] = {
    "tenant_id": [
        "a",
        "x" * 128,
        " " + "x" * 128 + "\u3000",
        "Ünïcode 日本",
        "a b",
        "a%2fb",
        "...",
        "**",
        "a.b",
        "'; drop",
    ],
    "schema_version": ["1", "1.0", "1.1", "1.25"],
    "mode": ["DEFAULT", "SAFE"],
    "idempotency_key": ["x", "x" * 256, " ", "日本"],
    "doc_id": ["x", "x" * 256, "a/b#c?d\\e", "日本"],
    "correlation_id": ["x", "x" * 128, "a b/c:d"],
    "not_before": [iso(NOW), iso(NOW - 365 * DAY), "1970-01-01T00:00:00Z", "2026-01-31t08:15:30.123456789+01:00"],
    "callback_urls": [
        {},
        {"completed": "http://127.0.0.1:9/x"},
        {"completed": None},
        {"completed": "HTTPS://[::1]?x"},
        {"ack": OWN},
        {"ack": OWN + "/"},
        {"result": f"{OWN}/v1/callbacks/result", "ack": f"{OWN}/x"},
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
def test_field_is_taken_when_it_is_right(name: str, value: Any) -> None:
    read({name: value})
    assert SCHEMA.is_valid({**MINIMAL, name: value})


@pytest.mark.parametrize("version", ["0", "2", "2.0", "10", "3.1.4", "999"])
def test_other_major_version_is_refused_by_name(version: str) -> None:
    (fault,) = faults_of({**MINIMAL, "schema_version": version})
    assert (fault.code, fault.pointer) == ("SCHEMA_VERSION_UNSUPPORTED", "/schema_version")
    assert version in fault.detail
    assert not SCHEMA.is_valid({**MINIMAL, "schema_version": version})


@pytest.mark.parametrize("request_type", ["", "OCR", "one", " ONE", "x" * 5000])
def test_unknown_request_type_is_refused(request_type: str) -> None:
    (fault,) = faults_of({**MINIMAL, "request_type": request_type})
    assert (fault.code, fault.pointer) == ("REQUEST_TYPE_UNKNOWN", "/request_type")
    assert len(fault.detail) < 200


@pytest.mark.parametrize("moment", WRONG_BY_THE_CALENDAR)
def test_not_before_is_refused_when_it_is_no_moment(moment: str) -> None:
    assert only_fault({"not_before": moment}) == ("ENVELOPE_INVALID", "/not_before")


def test_not_before_lies_at_most_thirty_days_ahead() -> None:
    assert read({"not_before": iso(NOW + 30 * DAY)}).not_before == NOW + 30 * DAY
    assert only_fault({"not_before": iso(NOW + 30 * DAY + 1)}) == ("ENVELOPE_INVALID", "/not_before")
    assert only_fault({"not_before": "9999-12-31T23:59:59Z"}) == ("ENVELOPE_INVALID", "/not_before")


@pytest.mark.parametrize("name", ["completed", "ack", "result"])
@pytest.mark.parametrize(
    "url",
    [
        *("", "x", 1, [], {}, "ftp://a.example/x", "//a.example", "https://", "https:///x", "javascript:alert(1)"),
        *("https://user:pw@a.example/x", "https://@a.example", "https://a.example/x y", "https://a.example/#f"),
        *("https://a.example\\x", "https://a.example/\n", "https://a.example/\x00", "https://a b/", "https://a:x/"),
        "https://a.example/" + "x" * 2048,
    ],
)
def test_callback_url_is_refused_when_it_is_no_web_address(name: str, url: Any) -> None:
    assert only_fault({"callback_urls": {name: url}}) == ("ENVELOPE_INVALID", f"/callback_urls/{name}")
    assert not SCHEMA.is_valid({**MINIMAL, "callback_urls": {name: url}})


@pytest.mark.parametrize("name", ["ack", "result"])
@pytest.mark.parametrize(
    "url", ["https://evil.example/", OWN + ".evil.example/", "http://lucius.example/", "https://lucius.examplex"]
)
def test_ack_and_result_may_only_be_our_own(name: str, url: str) -> None:
    assert only_fault({"callback_urls": {name: url}}) == ("ENVELOPE_INVALID", f"/callback_urls/{name}")
    assert only_fault({"callback_urls": {name: OWN + "/"}}, rules=EnvelopeRules())[1] == f"/callback_urls/{name}"


def test_every_fault_of_the_callback_urls_is_named() -> None:
    urls = {"heartbeat": "https://a.example", "a/b": 1, "completed": 1, "ack": "https://evil.example/"}
    found = faults_of({**MINIMAL, "callback_urls": urls})
    assert {fault.pointer for fault in found} == {
        "/callback_urls/heartbeat",
        "/callback_urls/a~1b",
        "/callback_urls/completed",
        "/callback_urls/ack",
    }


def test_port_of_a_callback_url_is_one() -> None:
    assert only_fault({"callback_urls": {"completed": "https://a.example:65536/"}})[1] == "/callback_urls/completed"


@pytest.mark.parametrize("name", ["input_ref", "output_ref"])
@pytest.mark.parametrize(
    ("ref", "code", "below"),
    [
        (1, "REF_INVALID", ""),
        ([], "REF_INVALID", ""),
        ("", "REF_INVALID", ""),
        ("x", "REF_INVALID", ""),
        ("https://a.example/x y", "REF_INVALID", ""),
        ({}, "REF_INVALID", "/uri"),
        ({"uri": None}, "REF_INVALID", "/uri"),
        ({"uri": "file:///x"}, "REF_FORBIDDEN", "/uri"),
        ("https://u:p@a.example/x", "REF_FORBIDDEN", ""),
        ("https://a.example/x?sig=1", "REF_FORBIDDEN", ""),
    ],
)
def test_ref_is_refused_where_it_stands(name: str, ref: Any, code: str, below: str) -> None:
    assert only_fault({name: ref}) == (code, f"/{name}{below}")


def test_refs_are_held_to_the_tenants_policy() -> None:
    terms = Terms(refs=RefPolicy(hosts=("a.example",)))
    assert only_fault({}, terms) == ("REF_FORBIDDEN", "/output_ref")
    assert read({"output_ref": "https://a.example/out"}, terms)


@pytest.mark.parametrize(
    ("payload", "pointers"),
    [
        ({}, ["/payload/sis/prompt_set"]),
        ({"sis": {}}, ["/payload/sis/prompt_set"]),
        ({"sis": {"prompt_set": []}}, ["/payload/sis/prompt_set"]),
        ({"sis": None}, ["/payload/sis"]),
        ({"sis": [1]}, ["/payload/sis"]),
        ({"sis": {"prompt_set": [1]}, "ocr": {"dpi": "x"}}, ["/payload/ocr/dpi"]),
        ({"sis": {"prompt_set": [1]}, "other": 1}, ["/payload/other"]),
        ({"sis": {"prompt_set": [1], "x": 1, "y/z": 2}}, ["/payload/sis/x", "/payload/sis/y~1z"]),
        ({"sis": {"prompt_set": [1]}, "ocr": {"a/b": ["x", 2]}}, ["/payload/ocr/a~1b/1"]),
        ({"prompt_set": [1]}, ["/payload/prompt_set", "/payload/sis/prompt_set"]),
    ],
)
def test_payload_faults_point_at_the_member(payload: dict[str, Any], pointers: list[str]) -> None:
    found = faults_of({**MINIMAL, "request_type": "TWO", "payload": payload})
    assert {fault.code for fault in found} == {"PAYLOAD_INVALID"}
    assert sorted(fault.pointer for fault in found) == pointers


def test_one_step_protocol_reads_the_whole_payload() -> None:
    assert bytes(read({"payload": {"dpi": 1}}).payloads[0]) == b'{"dpi":1}'
    assert only_fault({"payload": {"ocr": {}}}) == ("PAYLOAD_INVALID", "/payload/ocr")


def test_pointer_may_lead_into_a_list() -> None:
    envelope = read({"request_type": "LIST", "payload": {"s": [{"dpi": 1}]}})
    assert [bytes(payload) for payload in envelope.payloads] == [b'{"dpi":1}', b"{}"]
    assert only_fault({"request_type": "LIST", "payload": {"s": [1]}}) == ("PAYLOAD_INVALID", "/payload/s/0")


def test_payload_fault_does_not_repeat_a_large_value() -> None:
    (fault,) = faults_of({**MINIMAL, "payload": {"dpi": "x" * 100_000}})
    assert len(fault.detail) < 400


def test_payload_with_very_many_faults_is_still_answered() -> None:
    found = faults_of({**MINIMAL, "payload": {"a/b": [1] * 30_000}})
    assert len(found) == FAULTS_MAX + 1
    assert found[0].pointer == "/payload/a~1b/0"
    assert "at least 1000" in found[-1].detail


def test_directive_must_fit_the_bus_with_artifacts_of_earlier_steps() -> None:
    rules = EnvelopeRules(message_bytes_max=10_000, artifacts_bytes_max=1_000, directive_overhead_bytes=500)
    change = {"request_type": "ANY", "payload": {"x": ""}, "input_ref": "s3://b/i", "output_ref": "s3://b/o"}
    room = 10_000 - 500 - len('{"x":""}') - 2 * len('"s3://b/i"')
    assert read({**change, "payload": {"x": "x" * room}}, rules=rules)
    assert only_fault({**change, "payload": {"x": "x" * (room + 1)}}, rules=rules) == ("PAYLOAD_INVALID", "/payload")
    two = {"request_type": "TWO", "payload": {"sis": {"prompt_set": ["x" * 8_450]}}}
    assert only_fault(two, rules=rules) == ("PAYLOAD_INVALID", "/payload")
    assert only_fault({"input_ref": {"uri": "s3://b/i", "x": "x" * 9_500}}, rules=rules)[0] == "PAYLOAD_INVALID"


@pytest.mark.parametrize(
    ("requested", "tenant", "default", "mode", "source"),
    [
        (None, None, Mode.DEFAULT, Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG),
        (None, None, Mode.BURST, Mode.BURST, DecisionSource.GLOBAL_CONFIG),
        (None, Mode.BURST, Mode.DEFAULT, Mode.BURST, DecisionSource.TENANT_CONFIG),
        ("SAFE", Mode.BURST, Mode.BURST, Mode.DEFAULT, DecisionSource.REQUEST),
        ("DEFAULT", Mode.BURST, Mode.BURST, Mode.DEFAULT, DecisionSource.REQUEST),
        ("BURST", Mode.DEFAULT, Mode.DEFAULT, Mode.BURST, DecisionSource.REQUEST),
    ],
)
def test_mode_is_the_first_that_is_set(
    requested: str | None, tenant: Mode | None, default: Mode, mode: Mode, source: DecisionSource
) -> None:
    terms = Terms(mode=tenant, default_mode=default)
    routing = read({"mode": requested, "doc_id": "D"}, terms).routing
    assert (routing.resolved_mode, routing.decision_source) == (mode, source)
    assert routing.routing_key_used == ("acmed" if mode is Mode.BURST else "acme")
    assert mode.value in routing.decision_reason


def test_burst_needs_a_doc_id_wherever_it_was_set() -> None:
    assert only_fault({"mode": "BURST"}) == ("DOC_ID_REQUIRED", "/doc_id")
    assert only_fault({}, Terms(mode=Mode.BURST)) == ("DOC_ID_REQUIRED", "/doc_id")
    assert only_fault({"mode": "BURST", "doc_id": ""}) == ("ENVELOPE_INVALID", "/doc_id")


def test_burst_is_refused_to_a_tenant_that_may_not_use_it() -> None:
    terms = Terms(burst_allowed=False)
    assert only_fault({"mode": "BURST", "doc_id": "d"}, terms) == ("MODE_FORBIDDEN", "/mode")
    assert read({"mode": "SAFE", "doc_id": "d"}, terms)


def test_tenant_is_refused_when_it_is_not_admitted() -> None:
    assert only_fault({}, Terms(admitted=False)) == ("TENANT_FORBIDDEN", "/tenant_id")


def test_tenant_is_found_in_normal_form_or_not_at_all() -> None:
    assert tenant_of({**MINIMAL, "tenant_id": " ACME"}) == "acme"
    assert tenant_of({**MINIMAL, "tenant_id": "a/b"}) is None
    assert tenant_of([]) is None
    assert faults_of({**MINIMAL, "tenant_id": "a/b"})[0].pointer == "/tenant_id"


def test_every_fault_is_named_at_once_and_the_gravest_leads() -> None:
    document = {
        "tenant_id": "a/b",
        "request_type": "NONE",
        "input_ref": "nothing",
        "output_ref": "ftp://a.example/x",
        "payload": [],
        "schema_version": "2",
        "mode": "BURST",
        "callback_urls": {"ack": "x"},
        "correlation_id": "",
        "traceparent": "",
        "not_before": "",
        "idempotency_key": "",
        "surprise": 1,
    }
    with pytest.raises(CallerError) as caught:
        read_envelope(document, tenant_of(document), REQUEST_TYPES, Terms(burst_allowed=False), RULES, NOW)
    error = caught.value
    assert (error.code, error.status) == ("MODE_FORBIDDEN", 403)
    assert sorted((fault.code, fault.pointer) for fault in error.faults) == [
        ("DOC_ID_REQUIRED", "/doc_id"),
        *(
            ("ENVELOPE_INVALID", pointer)
            for pointer in (
                *("/callback_urls/ack", "/correlation_id", "/idempotency_key", "/not_before"),
                *("/payload", "/surprise", "/tenant_id", "/traceparent"),
            )
        ),
        ("MODE_FORBIDDEN", "/mode"),
        ("REF_FORBIDDEN", "/output_ref"),
        ("REF_INVALID", "/input_ref"),
        ("REQUEST_TYPE_UNKNOWN", "/request_type"),
        ("SCHEMA_VERSION_UNSUPPORTED", "/schema_version"),
    ]


def test_the_number_of_faults_listed_has_a_limit_that_says_so() -> None:
    found = faults_of({**MINIMAL, **{f"x{n}": 1 for n in range(5000)}})
    assert len(found) == FAULTS_MAX + 1
    assert "5000" in found[-1].detail


@pytest.mark.parametrize("document", [None, [], {}, {"tenant_id": 1}, {"tenant_id": "a/b"}, {"tenant_id": " "}])
def test_tenant_of_is_none_when_no_tenant_is_named(document: object) -> None:
    assert tenant_of(document) is None


def test_tenant_of_is_the_normal_form() -> None:
    assert tenant_of({"tenant_id": " Acme "}) == "acme"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TRIED = st.one_of(
    JSON,
    *(st.sampled_from(values) for values in WRONG.values()),
    *(st.sampled_from(values) for values in RIGHT.values()),
)


@UNTIMED
@given(
    st.dictionaries(st.sampled_from([*REQUIRED, *OPTIONAL, "other"]), TRIED, max_size=5),
    st.sets(st.sampled_from(REQUIRED)),
)
def test_what_the_checks_accept_meets_the_published_schema(changes: dict[str, Any], missing: set[str]) -> None:
    document = {name: value for name, value in {**MINIMAL, **changes}.items() if name not in missing or name in changes}
    found = faults_of(document)
    if not found:
        assert SCHEMA.is_valid(document)
    if SCHEMA.is_valid(document):
        # What a schema cannot know: the registry, the tenant's rules, the calendar, and the finer points of a URI.
        assert all(fault.code != "SCHEMA_VERSION_UNSUPPORTED" for fault in found)
        beyond = ("/not_before", "/callback_urls/completed", "/callback_urls/ack", "/callback_urls/result")
        assert all(fault.code != "ENVELOPE_INVALID" or fault.pointer in beyond for fault in found)


@pytest.mark.parametrize("name", ["envelope", "directive", "ack", "result", "heartbeat"])
def test_published_schema_is_valid_and_its_examples_meet_it(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"]
    assert schema["title"]
    assert schema["description"]
    validator = jsonschema_rs.Draft202012Validator(schema, offline=True)
    assert schema["examples"]
    for example in schema["examples"]:
        validator.validate(example)


def test_published_schema_names_the_fields_that_are_read() -> None:
    schema = json.loads((SCHEMAS / "envelope.json").read_text())
    assert tuple(schema["required"]) == REQUIRED
    assert set(schema["properties"]) == {*REQUIRED, *OPTIONAL}


def test_what_is_read_can_be_written_down() -> None:
    assert msgspec.json.encode(read({"request_type": "TWO", "payload": {"sis": {"prompt_set": ["x"]}}}))

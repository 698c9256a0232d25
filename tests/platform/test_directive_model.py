"""The directive model: any JSON is a directive or is refused as none, and no token shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lucius.platform import Directive
from lucius.platform.directive import AttemptKey, DirectiveInvalid
from lucius.platform.idempotency_store import Owed
from lucius.platform.orchestrator import Callback

TOKEN = "v1.k1.1772265360.secret"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MESSAGE: dict[str, Any] = {
    "type": "DIRECTIVE",
    "jobId": "job",
    "tenant_id": "acme",
    "stepId": "ocr",
    "protocol_id": "OCR",
    "step_type": "OCR",
    "service": "ocr",
    "attempt_no": 2,
    "lease_id": "lease",
    "lease_seconds": 900,
    "last_step": False,
    "ack_by": "2026-01-31T08:16:00.250Z",
    "workspace_ref": "file:///workspace/acme/job/OCR/2/",
    "input_ref": "file:///input",
    "output_ref": {"uri": "file:///output", "etag": "x"},
    "payload": {"language": "en"},
    "previous": {"first": {"ref": "file:///a", "count": 1}},
    "callback_token": TOKEN,
    "correlation_id": "correlation",
    "traceparent": TRACEPARENT,
    "a_field_of_the_future": [1, 2, 3],
}

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, 1.5, 0, True])
texts = st.text(st.characters(exclude_categories=()), max_size=12)
leaves = st.none() | st.booleans() | numbers | texts
anything = leaves | st.lists(leaves, max_size=3) | st.dictionaries(texts, leaves, max_size=3)
spoilt = st.dictionaries(st.sampled_from([*MESSAGE, "contract_test"]), anything, max_size=3)


@settings(max_examples=300, deadline=None)
@given(anything | spoilt | spoilt.map(lambda changes: {**MESSAGE, **changes}))
@example({**MESSAGE, "attempt_no": float("nan")})
@example({**MESSAGE, "attempt_no": 10**400})
@example({**MESSAGE, "lease_seconds": float("inf")})
@example({**MESSAGE, "lease_seconds": -(10**400)})
@example({**MESSAGE, "lease_id": "\ud800"})
@example({**MESSAGE, "contract_test": {"work_seconds": 10**400}})
@example({**MESSAGE, "callback_token": "two\nlines"})
def test_any_json_is_a_directive_or_is_refused(message: Any) -> None:
    try:
        directive = Directive.read(message)
    except DirectiveInvalid:
        return
    # Whatever is taken for one can be recorded and called back for.
    json.dumps(directive.identity(), allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert 1 <= directive.attempt_no < 2**63
    assert 0 < directive.lease_seconds < float("inf")
    directive.callback_token.encode("ascii")
    (directive.traceparent or "").encode("ascii")


def test_a_directive_is_read_as_it_was_sent() -> None:
    directive = Directive.read(MESSAGE)
    assert directive.key == AttemptKey("job", "ocr", 2, "lease")
    assert directive.label == "job/ocr attempt 2"
    assert directive.identity() == {name: MESSAGE[name] for name in directive.identity()}
    assert (directive.last_step, directive.lease_seconds, directive.ack_by) == (False, 900.0, MESSAGE["ack_by"])
    assert (directive.payload, directive.previous) == (MESSAGE["payload"], MESSAGE["previous"])
    assert (directive.input_ref, directive.output_ref) == (MESSAGE["input_ref"], MESSAGE["output_ref"])
    assert (directive.correlation_id, directive.traceparent) == ("correlation", TRACEPARENT)
    assert directive.callback_token == TOKEN
    assert directive.artifact("first", "ref") == "file:///a"
    assert directive.artifact("first", "count") is None
    assert directive.artifact("second", "ref") is None


@pytest.mark.parametrize("name", ["payload", "previous", "last_step", "ack_by", "correlation_id", "traceparent"])
def test_what_is_not_needed_may_be_missing(name: str) -> None:
    directive = Directive.read({key: value for key, value in MESSAGE.items() if key != name})
    default = {"last_step": True, "traceparent": None, "payload": {}, "previous": {}}.get(name, "")
    assert getattr(directive, name) == default


@pytest.mark.parametrize(
    "name",
    [
        *("jobId", "tenant_id", "stepId", "step_type", "service", "lease_id", "workspace_ref"),
        *("callback_token", "attempt_no", "lease_seconds"),
    ],
)
def test_what_is_needed_is_asked_for_by_name(name: str) -> None:
    for message in (
        {key: value for key, value in MESSAGE.items() if key != name},
        {**MESSAGE, name: None},
        {**MESSAGE, name: {}},
        {**MESSAGE, name: True},
    ):
        with pytest.raises(DirectiveInvalid, match=name) as refused:
            Directive.read(message)
        assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("number", [0, -1, 1.5, 2**63, float("nan"), float("inf")])
def test_an_attempt_is_a_whole_number_from_one(number: float) -> None:
    with pytest.raises(DirectiveInvalid, match="attempt_no"):
        Directive.read({**MESSAGE, "attempt_no": number})
    assert Directive.read({**MESSAGE, "attempt_no": 3.0}).attempt_no == 3
    assert Directive.read({**MESSAGE, "attempt_no": 2**53 + 1}).attempt_no == 2**53 + 1


@pytest.mark.parametrize("traceparent", ["", "garbage", f"{TRACEPARENT}\nX-Header: 1", f"{TRACEPARENT}ü", 7])
def test_a_trace_context_that_is_none_is_left_out(traceparent: Any) -> None:
    assert Directive.read({**MESSAGE, "traceparent": traceparent}).traceparent is None


def test_no_representation_shows_the_token() -> None:
    directive = Directive.read(MESSAGE)
    owed = Owed(directive.key, "acme", TOKEN, {"status": "SUCCEEDED"})
    callback = Callback("ACK", directive.identity(), TOKEN)
    for one in (directive, owed, callback):
        assert TOKEN not in repr(one)
        assert TOKEN not in str(one)

"""The directive model: the fields that a service uses. Unknown fields are ignored, so that servers can add some."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

ATTEMPT_NO_MAX = 2**63 - 1
LANES = 16
TEXTS = ("jobId", "tenant_id", "stepId", "step_type", "service", "lease_id", "workspace_ref", "callback_token")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_HEADER_TEXT = re.compile(r"[!-~]+")


class AttemptKey(NamedTuple):
    """Deliveries with equal keys are the same attempt."""

    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str


class DirectiveInvalid(ValueError):
    """The message is not a directive; the text names the field and never contains the token."""


@dataclass(frozen=True)
class Directive:
    job_id: str
    tenant_id: str
    step_id: str
    step_type: str
    service: str
    attempt_no: int
    lease_id: str
    lease_seconds: float
    workspace_ref: str
    input_ref: Any
    output_ref: Any
    payload: Mapping[str, Any] = field(default_factory=dict)
    previous: Mapping[str, Any] = field(default_factory=dict)
    last_step: bool = True
    ack_by: str = ""
    correlation_id: str = ""
    traceparent: str | None = None
    callback_token: str = field(default="", repr=False)
    lane: int | None = None
    """Which of the bus's lanes it came by."""
    rehearsed_seconds: float = 0.0
    """Extra duration of the work, for contract tests; ignored otherwise."""

    @classmethod
    def read(cls, message: Any) -> Directive:
        if not isinstance(message, Mapping):
            raise DirectiveInvalid("a directive must be a JSON object")
        lease_seconds = _number(message, "lease_seconds")
        if lease_seconds <= 0:
            raise DirectiveInvalid("lease_seconds must be more than 0")
        job_id, tenant_id, step_id, step_type, service, lease_id, workspace_ref, token = _texts(message)
        return cls(
            job_id=job_id,
            tenant_id=tenant_id,
            step_id=step_id,
            step_type=step_type,
            service=service,
            attempt_no=_attempt_no(message),
            lease_id=lease_id,
            lease_seconds=lease_seconds,
            workspace_ref=workspace_ref,
            input_ref=message.get("input_ref"),
            output_ref=message.get("output_ref"),
            payload=_object(message, "payload"),
            previous=_object(message, "previous"),
            last_step=message.get("last_step") is not False,
            ack_by=_optional_text(message, "ack_by"),
            correlation_id=_optional_text(message, "correlation_id"),
            traceparent=_traceparent(message.get("traceparent")),
            callback_token=_token(token),
            lane=_lane(message.get("lane")),
            rehearsed_seconds=_rehearsed(message.get("contract_test")),
        )

    @cached_property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job_id, self.step_id, self.attempt_no, self.lease_id)

    @cached_property
    def label(self) -> str:
        return f"{self.job_id}/{self.step_id} attempt {self.attempt_no}"

    def identity(self) -> dict[str, Any]:
        """The fields that every callback repeats."""
        return {
            "jobId": self.job_id,
            "stepId": self.step_id,
            "tenant_id": self.tenant_id,
            "attempt_no": self.attempt_no,
            "lease_id": self.lease_id,
        }

    def context(self, traceparent: str | None = None) -> dict[str, str]:
        """What ties every callback to its command: the correlation id, and the trace (`traceparent`, or its own)."""
        found = {"correlation_id": self.correlation_id, "traceparent": traceparent or self.traceparent}
        return {name: value for name, value in found.items() if value}

    def artifact(self, step_id: str, name: str) -> str | None:
        """An artifact of an earlier step, usually a ref, or None."""
        artifacts = self.previous.get(step_id)
        value = artifacts.get(name) if isinstance(artifacts, Mapping) else None
        return value if isinstance(value, str) and value else None


def _texts(message: Mapping[str, Any]) -> list[str]:
    values = [message.get(name) for name in TEXTS]
    for name, value in zip(TEXTS, values, strict=True):
        if not isinstance(value, str) or not value:
            raise DirectiveInvalid(f"{name} is missing or not a string")
    texts = cast(list[str], values)
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can escape half of a surrogate pair, but it cannot be encoded.
        name = next(name for name, text in zip(TEXTS, texts, strict=True) if not _is_unicode(text))
        raise DirectiveInvalid(f"{name} is not valid Unicode") from error
    return texts


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _optional_text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""


def _token(token: str) -> str:
    if not _HEADER_TEXT.fullmatch(token):
        raise DirectiveInvalid("callback_token cannot be sent back: it has characters not allowed in a header")
    return token


def _traceparent(value: Any) -> str | None:
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else None


def _lane(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LANES else None


def _attempt_no(message: Mapping[str, Any]) -> int:
    value = _number(message, "attempt_no")
    if not value.is_integer() or not 1 <= (number := int(message["attempt_no"])) <= ATTEMPT_NO_MAX:
        raise DirectiveInvalid("attempt_no must be a whole number of at least 1")
    return number


def _number(message: Mapping[str, Any], name: str) -> float:
    value = message.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DirectiveInvalid(f"{name} is missing or not a number")
    number = _as_float(value)
    if not math.isfinite(number):
        raise DirectiveInvalid(f"{name} is not a finite number")
    return number


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _object(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DirectiveInvalid(f"{name} is not a JSON object")
    return dict(value)


def _rehearsed(contract_test: Any) -> float:
    seconds = contract_test.get("work_seconds") if isinstance(contract_test, Mapping) else None
    return _as_float(seconds) if isinstance(seconds, int | float) else 0.0

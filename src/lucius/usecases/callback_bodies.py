"""Callbacks as services send them: ACK, RESULT and HEARTBEAT, from JSON to domain facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from lucius.domain.attempt import NULL, Failure, Frame, Verdict
from lucius.domain.callbacks import CallbackIds
from lucius.domain.errors import CallerError
from lucius.domain.fields import FieldFault, read_correlation_id
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.routing import normal_form
from lucius.domain.strict_json import is_deeper
from lucius.domain.time import BadMoment, Instant, InstantOutOfRange, from_datetime, read_moment
from lucius.usecases.bodies import UNREADABLE, body_error

CODE_CHARS_MAX = 128
MESSAGE_CHARS_MAX = 4_096
NOTE_CHARS_MAX = 1_024
ACKED_BY_CHARS_MAX = 128
FRAMES_MAX = 10
FRAME_CHARS_MAX = 256
LINE_MAX = 2**31 - 1
DEPTH_MAX = 32
"""Levels of artifacts."""
SINGLE_OVERHEAD_BYTES = 65_536
RATE_LIMITED_SECONDS = 30.0
"""How long to wait if a service was rate-limited and did not say for how long."""


def single_bytes_max(artifacts_bytes_max: int) -> int:
    """The largest callback: artifacts, an output_ref of the same size, and the rest."""
    return artifacts_bytes_max * 2 + SINGLE_OVERHEAD_BYTES


class ReportedFrame(Struct, frozen=True):
    file: str = ""
    line: int = 0
    function: str = ""


class ReportedError(Struct, frozen=True):
    code: str = "STEP_FAILED"
    message: str = ""
    frames: list[ReportedFrame] | None = None
    instance: str | None = None


class CallbackBody(Struct, frozen=True, kw_only=True):
    """The fields of every callback. Unknown fields are ignored: services may be newer than this server."""

    jobId: str
    stepId: str
    tenant_id: str
    attempt_no: int
    lease_id: str
    correlation_id: str | None = None
    traceparent: str | None = None

    def ids(self) -> CallbackIds:
        return CallbackIds(normal_form(self.tenant_id), self.jobId, self.stepId, self.attempt_no, self.lease_id)


class AckBody(CallbackBody, frozen=True, kw_only=True, tag_field="type", tag="ACK"):
    status: Literal["ACKED"] | None = None
    acked_at: str | None = None
    acked_by: Annotated[str, Meta(min_length=1, max_length=ACKED_BY_CHARS_MAX)] | None = None
    callback_token: str | None = None


class HeartbeatBody(CallbackBody, frozen=True, kw_only=True, tag_field="type", tag="HEARTBEAT"):
    progress: float | None = None
    note: str | None = None
    callback_token: str | None = None


class ResultBody(CallbackBody, frozen=True, kw_only=True, tag_field="type", tag="RESULT"):
    status: Literal["SUCCEEDED", "FAILED", "FAILED_RETRY", "FAILED_FINAL"]
    failure_class: Literal["RETRYABLE", "NON_RETRYABLE", "RATE_LIMITED"] | None = None
    retry_after: float | None = None
    artifacts: Raw = NULL
    output_ref: Raw = NULL
    error: ReportedError | None = None
    completed_at: str | None = None
    callback_token: str | None = None


AnyBody = AckBody | HeartbeatBody | ResultBody
FACTS: dict[type[AnyBody], type[Callback]] = {AckBody: Acked, HeartbeatBody: HeartbeatSeen, ResultBody: Resulted}


def fact_of(body: AnyBody, artifacts_bytes_max: int) -> Callback:
    """The callback as a domain fact. Raises `CallerError` if a value is out of range."""
    about, correlation_id = (body.stepId, body.attempt_no, body.lease_id), _read_correlation_id(body.correlation_id)
    if isinstance(body, AckBody):
        at = _read_moment(body.acked_at, "acked_at")
        return Acked(*about, body.acked_by, status=body.status, at=at, correlation_id=correlation_id)
    if isinstance(body, HeartbeatBody):
        return HeartbeatSeen(*about, *_read_progress(body), correlation_id)
    _check_artifacts(body, artifacts_bytes_max)
    is_success = body.status == "SUCCEEDED"
    is_limited = not is_success and body.failure_class == "RATE_LIMITED"
    return Resulted(
        *about,
        Verdict.SUCCEEDED if is_success else Verdict.FAILED,
        retryable=body.status != "FAILED_FINAL" and body.failure_class != "NON_RETRYABLE",
        rate_limited_seconds=_read_retry_after(body) if is_limited else None,
        # Copies: a Raw is a view that would keep the whole request in memory.
        artifacts=body.artifacts.copy() if is_success else NULL,
        output_ref=body.output_ref.copy() if is_success else NULL,
        error=None if is_success else _read_error(body.error),
        at=_read_moment(body.completed_at, "completed_at"),
        correlation_id=correlation_id,
    )


def _check_artifacts(body: ResultBody, bytes_max: int) -> None:
    size = len(body.artifacts)
    if size > bytes_max:
        detail = f"artifacts have {size} bytes, more than {bytes_max}: store a reference instead"
        raise CallerError.of("BODY_TOO_LARGE", detail, "/artifacts")
    if len(body.output_ref) > bytes_max:
        raise CallerError.of("BODY_TOO_LARGE", "output_ref is too large", "/output_ref")
    _check_readable(body.artifacts, "/artifacts")
    _check_readable(body.output_ref, "/output_ref")


def _check_readable(raw: Raw, pointer: str) -> None:
    """Later services receive this unchanged, so it must be JSON that any parser accepts."""
    if raw is NULL:
        return
    text = bytes(raw)
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE as error:
        raise CallerError.of("MALFORMED_JSON", f"this is not valid JSON: {error}", pointer) from error
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX and is_deeper(value, DEPTH_MAX):
        raise CallerError.of("MALFORMED_JSON", f"this is nested deeper than {DEPTH_MAX} levels", pointer)


def _clean(text: str, chars_max: int) -> str:
    """Safe for every store: without NUL, which SQL text cannot contain, and of bounded length."""
    return text.replace("\x00", "�")[:chars_max]


def _read_error(error: ReportedError | None) -> Failure | None:
    if error is None:
        return None
    frames = (
        Frame(_clean(one.file, FRAME_CHARS_MAX), min(max(one.line, 0), LINE_MAX), _clean(one.function, FRAME_CHARS_MAX))
        for one in (error.frames or ())[-FRAMES_MAX:]
    )
    return Failure(
        _clean(error.code, CODE_CHARS_MAX) or "STEP_FAILED",
        _clean(error.message, MESSAGE_CHARS_MAX),
        tuple(frames),
        _clean(error.instance, ACKED_BY_CHARS_MAX) if error.instance else None,
    )


def _read_correlation_id(value: str | None) -> str | None:
    try:
        return None if value is None else read_correlation_id(value)
    except FieldFault as fault:
        raise CallerError.of("ENVELOPE_INVALID", str(fault), "/correlation_id") from fault


def _read_moment(value: str | None, name: str) -> Instant | None:
    """When something was, by the service's clock."""
    try:
        return None if value is None else from_datetime(read_moment(value))
    except (BadMoment, InstantOutOfRange) as error:
        raise CallerError.of("ENVELOPE_INVALID", f"{name} {error}", f"/{name}") from error


def _read_progress(body: HeartbeatBody) -> tuple[float | None, str | None]:
    if body.progress is not None and not 0 <= body.progress <= 1:
        raise CallerError.of("ENVELOPE_INVALID", "progress must be between 0 and 1", "/progress")
    return body.progress, _clean(body.note, NOTE_CHARS_MAX) if body.note is not None else None


def _read_retry_after(body: ResultBody) -> float:
    if body.retry_after is None:
        return RATE_LIMITED_SECONDS
    if not 0 <= body.retry_after < float("inf"):
        raise CallerError.of("ENVELOPE_INVALID", "retry_after must be a non-negative number of seconds", "/retry_after")
    return body.retry_after


_decode_ack = msgspec.json.Decoder(AckBody).decode
_decode_heartbeat = msgspec.json.Decoder(HeartbeatBody).decode
_decode_result = msgspec.json.Decoder(ResultBody).decode
_decode_any: Callable[[Raw | bytes], AnyBody] = msgspec.json.Decoder(AnyBody).decode

DECODERS: dict[str, Callable[[bytes], AnyBody]] = {
    "ack": _decode_ack,
    "heartbeat": _decode_heartbeat,
    "result": _decode_result,
}


def read_callback(kind: str, body: bytes) -> AnyBody:
    """A callback from its body; faults have a JSON pointer."""
    decode = DECODERS[kind]
    try:
        return decode(body)
    except UNREADABLE as error:
        raise body_error(error) from error


def read_any_callback(item: Raw | bytes) -> AnyBody:
    """A callback of a batch or from the bus, whose kind is in its `type`."""
    try:
        return _decode_any(item)
    except UNREADABLE as error:
        raise body_error(error) from error

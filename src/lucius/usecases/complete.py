"""Callbacks: ACK, RESULT and HEARTBEAT, from the body and its token to the fact that the engine is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from lucius.domain.attempt import NULL, Failure, Verdict
from lucius.domain.callbacks import CallbackIds, TokenSigner
from lucius.domain.effects import Outcome
from lucius.domain.errors import CallerError, Fault, LuciusError, WorkerError
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.routing import normal_form
from lucius.domain.strict_json import is_deeper
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, Told
from lucius.ports.observer import Observer

CODE_CHARS_MAX = 128
MESSAGE_CHARS_MAX = 4_096
NOTE_CHARS_MAX = 1_024
ACKED_BY_CHARS_MAX = 128
DEPTH_MAX = 32
"""Levels of artifacts."""
RATE_LIMITED_SECONDS = 30.0
"""How long to wait where a service was rate-limited and did not say for how long."""


class ReportedError(Struct, frozen=True):
    code: str = "STEP_FAILED"
    message: str = ""


class CallbackBody(Struct, frozen=True, kw_only=True):
    """What every callback carries. Fields that this server does not know are passed over: services may be newer."""

    jobId: str
    stepId: str
    tenant_id: str
    attempt_no: int
    lease_id: str

    def ids(self) -> CallbackIds:
        return CallbackIds(normal_form(self.tenant_id), self.jobId, self.stepId, self.attempt_no, self.lease_id)


class AckBody(CallbackBody, frozen=True, kw_only=True, tag_field="type", tag="ACK"):
    status: Literal["ACKED"] | None = None
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
    callback_token: str | None = None


AnyBody = AckBody | HeartbeatBody | ResultBody


class _Batch(Struct, frozen=True):
    callbacks: list[Raw]


class Completion:
    """The use case. `told` answers one callback; a batch enqueues all of its items before it waits for the first."""

    def __init__(
        self, engine: Engine, signer: TokenSigner, clock: Clock, observer: Observer, artifacts_bytes_max: int
    ) -> None:
        self._engine = engine
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._artifacts_bytes_max = artifacts_bytes_max

    def begin(self, body: AnyBody, token: str | None) -> Awaitable[Told | None]:
        """Check a callback and hand it to the engine; raises before the ledger is read where it is not authentic."""
        ids = body.ids()
        if not self._signer.verifies(token, ids, self._clock.now()):
            self._observer.callback_answered(kind_of(body), "FORGED")
            raise CallerError.of(
                "UNAUTHENTICATED", "the callback token is missing, not genuine, expired, or made for other ids"
            )
        return self._engine.tell(ids.job_id, ids.tenant_id, self._fact(body))

    async def told(self, body: AnyBody, token: str | None) -> Told:
        return self.conclude(body, await self.begin(body, token))

    def conclude(self, body: AnyBody, told: Told | None) -> Told:
        """The answer to a callback, or the error that tells the worker to stop."""
        if told is None:
            raise WorkerError.of("JOB_NOT_FOUND", f"there is no job {body.jobId}", "/jobId")
        self._observer.callback_answered(kind_of(body), told.outcome.value)
        match told.outcome:
            case Outcome.STALE_ATTEMPT:
                detail = f"attempt {body.attempt_no} of step {body.stepId} is not the current one: stop working on it"
                raise WorkerError.of("STALE_ATTEMPT", detail, "/attempt_no")
            case Outcome.JOB_TERMINAL:
                raise WorkerError.of("JOB_TERMINAL", f"step {body.stepId} has ended: stop working on it", "/stepId")
            case Outcome.STEP_NOT_FOUND:
                raise WorkerError.of("STEP_NOT_FOUND", f"job {body.jobId} has no step {body.stepId}", "/stepId")
        return told

    def _fact(self, body: AnyBody) -> Callback:
        if isinstance(body, AckBody):
            return Acked(body.stepId, body.attempt_no, body.lease_id, body.acked_by)
        if isinstance(body, HeartbeatBody):
            return HeartbeatSeen(body.stepId, body.attempt_no, body.lease_id, *_read_progress(body))
        self._check_artifacts(body)
        is_success = body.status == "SUCCEEDED"
        is_limited = not is_success and body.failure_class == "RATE_LIMITED"
        return Resulted(
            body.stepId,
            body.attempt_no,
            body.lease_id,
            Verdict.SUCCEEDED if is_success else Verdict.FAILED,
            retryable=body.status != "FAILED_FINAL" and body.failure_class != "NON_RETRYABLE",
            rate_limited_seconds=_read_retry_after(body) if is_limited else None,
            # Copies: a Raw is a view that would keep the whole request in memory.
            artifacts=body.artifacts.copy() if is_success else NULL,
            output_ref=body.output_ref.copy() if is_success else NULL,
            error=None if is_success else _read_error(body.error),
        )

    def _check_artifacts(self, body: ResultBody) -> None:
        size = len(bytes(body.artifacts))
        if size > self._artifacts_bytes_max:
            detail = f"artifacts have {size} bytes, at most {self._artifacts_bytes_max} are taken: store a reference"
            raise CallerError.of("BODY_TOO_LARGE", detail, "/artifacts")
        if len(bytes(body.output_ref)) > self._artifacts_bytes_max:
            raise CallerError.of("BODY_TOO_LARGE", "output_ref is too large", "/output_ref")
        _check_readable(body.artifacts, "/artifacts")
        _check_readable(body.output_ref, "/output_ref")


def kind_of(body: AnyBody) -> str:
    return "ACK" if isinstance(body, AckBody) else "RESULT" if isinstance(body, ResultBody) else "HEARTBEAT"


def _check_readable(raw: Raw, pointer: str) -> None:
    """Later services are given this as it stands: what their parsers would choke on must not get in."""
    if raw is NULL:
        return
    text = bytes(raw)
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE as error:
        raise CallerError.of("MALFORMED_JSON", f"this is not valid JSON: {error}", pointer) from error
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX and is_deeper(value, DEPTH_MAX):
        raise CallerError.of("MALFORMED_JSON", f"this is nested deeper than {DEPTH_MAX} levels", pointer)


def _clean(text: str, chars_max: int) -> str:
    """Fit for every store: no NUL, which SQL text can't hold, and of bounded length."""
    return text.replace("\x00", "�")[:chars_max]


def _read_error(error: ReportedError | None) -> Failure | None:
    if error is None:
        return None
    return Failure(_clean(error.code, CODE_CHARS_MAX) or "STEP_FAILED", _clean(error.message, MESSAGE_CHARS_MAX))


def _read_progress(body: HeartbeatBody) -> tuple[float | None, str | None]:
    if body.progress is not None and not 0 <= body.progress <= 1:
        raise CallerError.of("ENVELOPE_INVALID", "progress lies between 0 and 1", "/progress")
    return body.progress, _clean(body.note, NOTE_CHARS_MAX) if body.note is not None else None


def _read_retry_after(body: ResultBody) -> float:
    if body.retry_after is None:
        return RATE_LIMITED_SECONDS
    if not 0 <= body.retry_after < float("inf"):
        raise CallerError.of("ENVELOPE_INVALID", "retry_after is a number of seconds, not negative", "/retry_after")
    return body.retry_after


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_ack = msgspec.json.Decoder(AckBody).decode
_decode_heartbeat = msgspec.json.Decoder(HeartbeatBody).decode
_decode_result = msgspec.json.Decoder(ResultBody).decode
_decode_any = msgspec.json.Decoder(AnyBody).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_batch_whole = msgspec.json.Decoder(dict[Literal["callbacks"], list[AnyBody]]).decode

DECODERS: dict[str, Callable[[bytes], AnyBody]] = {
    "ack": _decode_ack,
    "heartbeat": _decode_heartbeat,
    "result": _decode_result,
}


def read_callback(kind: str, body: bytes) -> AnyBody:
    """A callback from its body; faults are named by their place."""
    decode = DECODERS[kind]
    try:
        return decode(body)
    except _UNREADABLE as error:
        raise body_error(error) from error


def read_batch(body: bytes) -> list[AnyBody | LuciusError]:
    """The callbacks of a batch; one that cannot be read takes nobody with it."""
    try:
        return list(_decode_batch_whole(body)["callbacks"])
    except (*_UNREADABLE, KeyError):
        pass  # Something in it is wrong: find out what, item by item.
    try:
        items = _decode_batch(body).callbacks
    except _UNREADABLE as error:
        raise body_error(error) from error
    found: list[AnyBody | LuciusError] = []
    for item in items:
        try:
            found.append(_decode_any(item))
        except _UNREADABLE as error:
            found.append(body_error(error))
    return found


def body_error(error: Exception) -> CallerError:
    """A body that is no JSON, or not of the shape asked for."""
    if not isinstance(error, msgspec.ValidationError):
        return CallerError.of("MALFORMED_JSON", f"the body is not valid JSON: {error}")
    text, _, place = str(error).partition(" - at `$")
    pointer = place.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
    if text.startswith("Invalid JSON") or "utf-8" in text.lower():
        return CallerError.of("MALFORMED_JSON", f"the body is not valid JSON: {text}")
    return CallerError([Fault("ENVELOPE_INVALID", pointer, text)])

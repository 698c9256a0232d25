"""The error model: the classes of failure in a RESULT callback.

A step function raises one of the three below. Any other exception is classified here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from lucius.kit.errors import ServiceUnusable

__all__ = [
    "FailureClass",
    "NonRetryable",
    "RateLimited",
    "Retryable",
    "ServiceUnusable",
    "StepFailed",
    "WorkStopped",
    "classified",
    "failure_result",
]

FailureClass = Literal["RETRYABLE", "NON_RETRYABLE", "RATE_LIMITED"]

CODE_CHARACTERS_MAX = 128
MESSAGE_CHARACTERS_MAX = 2_500
"""Enough for the longest ref with some text around it."""
RATE_LIMITED_SECONDS = 30.0


class StepFailed(Exception):
    """The work cannot be done. By default it is not retried, because most failures are caused by the input."""

    failure_class: ClassVar[FailureClass] = "NON_RETRYABLE"

    def __init__(self, code: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        if retry_after_seconds is not None and not 0 <= retry_after_seconds < math.inf:
            raise ValueError(f"retry_after_seconds={retry_after_seconds} is not a number of seconds")
        self.code = _sendable(code)[:CODE_CHARACTERS_MAX] or "FAILED"
        self.message = _sendable(message)[:MESSAGE_CHARACTERS_MAX]
        self.retry_after_seconds = None if retry_after_seconds is None else float(retry_after_seconds)


class NonRetryable(StepFailed):
    """The input or the parameters are at fault: another attempt would fail in the same way."""


class Retryable(StepFailed):
    """A failure that may pass: the orchestrator retries later, as often as the protocol allows."""

    failure_class = "RETRYABLE"


class RateLimited(StepFailed):
    """Not now: the orchestrator retries after `retry_after_seconds`, and the attempt does not count."""

    failure_class = "RATE_LIMITED"

    def __init__(self, code: str, message: str, retry_after_seconds: float = RATE_LIMITED_SECONDS) -> None:
        super().__init__(code, message, retry_after_seconds)


class WorkStopped(Exception):
    """The attempt is no longer current; raised inside the work at its next report or write."""


def classified(error: BaseException) -> StepFailed:
    """Any exception of the work, as a failure with a class.

    An I/O error may pass, so it is retryable (including `TimeoutError` and `ConnectionError`). A bug is retryable too:
    it costs at most the attempts that the protocol allows, and a fixed version may be deployed in the meantime.
    """
    if isinstance(error, StepFailed):
        return error
    if isinstance(error, OSError):
        return Retryable("IO_ERROR", error.strerror or type(error).__name__)
    return Retryable("SERVICE_DEFECT", f"{type(error).__name__}: {error}")


def failure_result(failure: StepFailed, frames: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The failure part of a RESULT; `frames` say where it was raised."""
    error: dict[str, Any] = {"code": failure.code, "message": failure.message}
    if frames:
        error["frames"] = list(frames)
    result: dict[str, Any] = {"status": "FAILED", "failure_class": failure.failure_class, "error": error}
    if failure.retry_after_seconds is not None:
        result["retry_after"] = failure.retry_after_seconds
    return result


def _sendable(text: str) -> str:
    """File names in messages may contain bytes that are not text; a callback cannot carry them."""
    return text.encode("utf-8", "replace").decode("utf-8")

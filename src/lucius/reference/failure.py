"""Why a step failed, in the words of a RESULT callback."""

from __future__ import annotations

from typing import Literal

FailureClass = Literal["RETRYABLE", "NON_RETRYABLE", "RATE_LIMITED"]

MESSAGE_CHARACTERS_MAX = 1_000


class StepFailed(Exception):
    """The work cannot be done. By default trying again will not help, because most failures are the input's."""

    def __init__(
        self,
        code: str,
        message: str,
        failure_class: FailureClass = "NON_RETRYABLE",
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message[:MESSAGE_CHARACTERS_MAX]
        self.failure_class: FailureClass = failure_class
        self.retry_after_seconds = retry_after_seconds


class WorkStopped(Exception):
    """The attempt is no longer ours to work on; raised inside the work at its next report."""


def classified(error: BaseException) -> StepFailed:
    """Whatever the work raised, as a failure with a class.

    An I/O error may pass, so it is retryable. A defect is retryable too: it costs at most the attempts that the
    protocol allows, and a service that is replaced in the meantime may do better.
    """
    if isinstance(error, StepFailed):
        return error
    if isinstance(error, OSError):
        return StepFailed("IO_ERROR", error.strerror or type(error).__name__, "RETRYABLE")
    return StepFailed("SERVICE_DEFECT", f"{type(error).__name__}: {error}", "RETRYABLE")

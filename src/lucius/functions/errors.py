"""Errors that a function may raise to classify its failure, and errors of the worker itself."""

from __future__ import annotations

from lucius.kit.errors import ServiceUnusable

MESSAGE_CHARACTERS_MAX = 2_000


class Fail(Exception):
    """A failure with its own type, for the runbook's log: `Fail("no such mailbox", type="MailboxNotFound")`."""

    def __init__(self, message: str, type: str = "Fail") -> None:
        super().__init__(message)
        self.type = type


class RateLimited(Exception):
    """The system behind the function is throttling. The worker retries a few times itself; after that the orchestrator
    waits and sends the job again without using up a retry."""

    def __init__(self, message: str = "throttled", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


Throttled = RateLimited
"""Former name."""
WorkerUnusable = ServiceUnusable
"""Former name."""
THROTTLED_TYPE = "Throttled"
"""Its type in results; runbook logs have always used this name."""


class JobFault(Exception):
    """The job cannot be run: an unknown function, parameters that do not match, a result that is not JSON. The name of
    the subclass is the error's type."""


class FunctionUnknown(JobFault):
    pass


class ParametersInvalid(JobFault):
    pass


class ResultInvalid(JobFault):
    pass


class ResultRefused(JobFault):
    pass


def type_of(error: BaseException) -> str:
    if type(error) is RateLimited:
        return THROTTLED_TYPE
    return error.type if isinstance(error, Fail) else type(error).__name__


def message_of(error: BaseException) -> str:
    """The first line of the error's text, for the result, or the name of the error's type."""
    try:
        # Half a surrogate pair cannot be encoded.
        lines = str(error).encode("utf-8", "replace").decode().strip().splitlines()
    except Exception as second:
        return f"{type(error).__name__}, whose text cannot be read: {type(second).__name__}"
    return lines[0][:MESSAGE_CHARACTERS_MAX] if lines else type_of(error)


def place_of(error: BaseException) -> str:
    """Where it was raised. Logged instead of a traceback, whose text may contain a parameter's value."""
    traceback = error.__traceback__
    if traceback is None or isinstance(error, JobFault):
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f" at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"

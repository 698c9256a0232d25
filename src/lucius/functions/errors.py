"""What a function may raise to say how it failed, and what the worker says when it cannot be used."""

from __future__ import annotations

MESSAGE_CHARACTERS_MAX = 2_000


class WorkerUnusable(Exception):
    """A setting or a missing function: the worker does not start."""


class Fail(Exception):
    """A failure with a type of its own, for the runbook's log: `Fail("no such mailbox", type="MailboxNotFound")`."""

    def __init__(self, message: str, type: str = "Fail") -> None:
        super().__init__(message)
        self.type = type


class Throttled(Exception):
    """The system behind the function asks to be left alone for a while. The worker tries again by itself a few times;
    after that the orchestrator waits, and sends the job again without using a retry."""

    def __init__(self, message: str = "throttled", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class JobFault(Exception):
    """The job cannot be done as it stands: an unknown function, parameters that do not fit, a result that is no JSON.
    The subclass's name is the error's type."""


class FunctionUnknown(JobFault):
    pass


class ParametersInvalid(JobFault):
    pass


class ResultInvalid(JobFault):
    pass


class ResultRefused(JobFault):
    pass


def type_of(error: BaseException) -> str:
    return error.type if isinstance(error, Fail) else type(error).__name__


def message_of(error: BaseException) -> str:
    """The first line of what the error says, for the result; an error that says nothing is named."""
    try:
        # Half a surrogate pair cannot travel.
        lines = str(error).encode("utf-8", "replace").decode().strip().splitlines()
    except Exception as second:
        return f"{type(error).__name__}, whose text cannot be had: {type(second).__name__}"
    return lines[0][:MESSAGE_CHARACTERS_MAX] if lines else type_of(error)


def place_of(error: BaseException) -> str:
    """Where it was raised. The log has this instead of a traceback, whose text may hold a parameter's value."""
    traceback = error.__traceback__
    if traceback is None or isinstance(error, JobFault):
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f" at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"

"""Errors that a client raises.

Every error has a `code` (from docs/reference/errors.md or this module), a `message`, and the server's `correlation_id`
if the answer has one: the server's log contains that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucius.client.backoff import read_retry_after
from lucius.client.call import Json, Response


@dataclass(frozen=True, slots=True)
class Fault:
    """One error in a request. `pointer` is a JSON pointer into the body."""

    code: str
    pointer: str
    message: str


def read_faults(listed: Any) -> list[Fault]:
    found = [fault for fault in listed if isinstance(fault, dict)] if isinstance(listed, list) else []
    return [Fault(*(str(fault.get(name) or "") for name in ("code", "pointer", "detail"))) for fault in found]


class ClientError(Exception):
    """The base class of the client's errors."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        problem: Json | None = None,
        retry_after_seconds: float | None = None,
        may_have_arrived: bool = True,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status
        """The HTTP status; `None` if there was no answer."""
        self.problem: Json = problem or {}
        """The body of the answer."""
        self.retry_after_seconds = retry_after_seconds
        self.may_have_arrived = may_have_arrived
        """Whether the server may have processed the call."""

    @property
    def correlation_id(self) -> str | None:
        found = self.problem.get("correlation_id")
        return found if isinstance(found, str) else None

    @property
    def faults(self) -> Sequence[Fault]:
        """Every fault of a rejected body, with its location."""
        return read_faults(self.problem.get("errors"))


class Unreachable(ClientError):
    """There was no answer: the code is `UNREACHABLE`."""

    def __init__(self, message: str, may_have_arrived: bool) -> None:
        super().__init__("UNREACHABLE", message, may_have_arrived=may_have_arrived)


class Unavailable(ClientError):
    """The server cannot serve the call now (5xx)."""


class AnswerInvalid(ClientError):
    """The answer is not from LUCIUS: the code is `ANSWER_INVALID`."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__("ANSWER_INVALID", message, status=status)


class WaitTimedOut(ClientError):
    """The job or batch has not ended in time, and continues: the code is `WAIT_TIMED_OUT`."""

    def __init__(self, message: str, latest: Json) -> None:
        super().__init__("WAIT_TIMED_OUT", message)
        self.latest = latest
        """The job or batch as it was last seen, as JSON."""


class Refused(ClientError):
    """The server rejected the call (4xx)."""


class Unauthenticated(Refused):
    """The key is missing or wrong (401)."""


class Forbidden(Refused):
    """The key is not allowed to do this (403)."""


class NotFound(Refused):
    """It does not exist, or the key may not see it (404)."""


class Conflict(Refused):
    """The current state does not allow this (409)."""


class Invalid(Refused):
    """The request is invalid (400, 422); `faults` says why."""


class RateLimited(Refused):
    """A limit is reached (429): on the rate, on jobs in flight, or on calls that are held open."""


_REFUSALS: dict[int, type[Refused]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: RateLimited,
}


def error_of(response: Response) -> ClientError:
    """The error for an unsuccessful answer."""
    status, problem = response.status, response.json_object() or {}
    code, message = _text(problem, "code"), _text(problem, "detail") or _text(problem, "title")
    options: dict[str, Any] = {
        "status": status,
        "problem": problem,
        "retry_after_seconds": read_retry_after(response.headers.get("Retry-After", "")),
    }
    if 400 <= status < 500:
        kind = _REFUSALS.get(status, Refused)
        return kind(code or f"HTTP_{status}", message, may_have_arrived=False, **options)
    if status >= 500:
        # A code shows that LUCIUS itself answered, and UNAVAILABLE that nothing was written.
        return Unavailable(code or f"HTTP_{status}", message, may_have_arrived=code != "UNAVAILABLE", **options)
    return AnswerInvalid(f"LUCIUS does not answer with HTTP status {status}", status)


def content_of(response: Response) -> Json:
    """The JSON object of a successful answer; raises the error for any other answer."""
    if not response.is_success:
        raise error_of(response)
    content = response.json_object()
    if content is None:
        raise AnswerInvalid("the answer is not a JSON object; is it a LUCIUS server?", response.status)
    return content


def _text(problem: Json, name: str) -> str:
    value = problem.get(name)
    return str(value) if value else ""

"""Retries calls while that is safe and may help."""

from __future__ import annotations

import time
from typing import TypeVar

from lucius.client.backoff import backoff_seconds
from lucius.client.call import Call, Pause, Response, Script
from lucius.client.errors import ClientError, RateLimited, Unavailable, Unreachable, error_of

PATIENCE_SECONDS = 30.0
"""How long a server may be unavailable (for example during a restart) before a call fails."""
REQUEST_TIMEOUT = 408
"""The request took too long to arrive, and was not processed."""
WAITS_SATURATED = "WAITS_SATURATED"
"""The server holds the maximum number of calls open: it answers only calls that do not wait."""

T = TypeVar("T")


def with_retries(script: Script[T], patience_seconds: float) -> Script[T]:
    """The same script, where each call is retried until it succeeds or fails permanently."""
    try:
        action = next(script)
        while True:
            try:
                response = yield from _carried_out(action, patience_seconds)
            except ClientError as error:
                action = script.throw(error)
            else:
                action = script.send(response)
    except StopIteration as ended:
        result: T = ended.value
        return result


def may_pass(error: ClientError) -> bool:
    """Whether the error is transient: the same call may succeed a little later."""
    is_transient = isinstance(error, Unreachable | Unavailable | RateLimited) or error.status == REQUEST_TIMEOUT
    return is_transient and error.code != WAITS_SATURATED


def _carried_out(action: Call | Pause, patience_seconds: float) -> Script[Response]:
    if isinstance(action, Pause):
        return (yield action)
    return (yield from _answered(action, patience_seconds))


def _answered(call: Call, patience_seconds: float) -> Script[Response]:
    """The successful answer. A call that is not repeatable is retried only if the server cannot have processed it."""
    if call.patience_seconds is not None:
        patience_seconds = call.patience_seconds
    deadline = time.monotonic() + patience_seconds
    failures = 0
    while True:
        try:
            response = yield call
            if response.is_success:
                return response
            raise error_of(response)
        except ClientError as error:
            pause = backoff_seconds(failures, error.retry_after_seconds)
            is_safe = call.is_repeatable or not error.may_have_arrived
            if not is_safe or not may_pass(error) or time.monotonic() + pause >= deadline:
                raise
        failures += 1
        yield Pause(pause)

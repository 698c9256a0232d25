"""The orchestrator over HTTP, from a service's view: directives out, callbacks in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lucius.client.call import Call, Json
from lucius.client.calls import services
from lucius.client.errors import ClientError, Unreachable, content_of
from lucius.client.retrying import WAITS_SATURATED
from lucius.client.transport import TransportOptions
from lucius.kit import consumer as kit
from lucius.kit.identity import Identity
from lucius.platform.settings import PlatformSettings, key_now

if TYPE_CHECKING:
    from lucius.client.async_transport import AsyncTransport

TRY_AGAIN = frozenset({"UNREACHABLE", "UNAVAILABLE", "INTERNAL", "RATE_LIMITED", WAITS_SATURATED})
"""Codes after which the same call may be repeated: nothing was decided."""
REFUSED_WITHOUT_CODE = frozenset({400, 411, 413, 414, 415, 422, 431})
"""Statuses about the request itself, even if sent by a proxy."""
HINTS = {
    "UNREACHABLE": "; is the server up, and is LUCIUS_ORCHESTRATOR_URL its address?",
    "UNAUTHENTICATED": "; set LUCIUS_API_KEY, or start the service in the folder that `lucius up` was started in",
}
"""What an operator can do about a failed pull, appended to the log line."""
GIVE_UP = frozenset({"STALE_ATTEMPT", "JOB_TERMINAL"})
"""Codes after which the work must stop: the attempt is no longer current."""


class CallbackAnswer(NamedTuple):
    """The answer to one callback: an outcome such as `APPLIED`, or an error code."""

    code: str
    accepted: bool
    cancel_requested: bool = False
    detail: str = ""
    retry_after_seconds: float | None = None
    arrived: bool = True
    """Whether the call may have reached the orchestrator and been applied although its answer was lost."""
    tries: int = 1
    """How many attempts of the call may have."""


@dataclass(frozen=True)
class Callback:
    kind: str
    body: dict[str, Any]
    token: str = field(repr=False)
    traceparent: str | None = None
    lane: int = 0
    """The lane of its directive, for callbacks over the bus."""


class PullFailed(kit.PullFailed):
    """No directives could be pulled; the answer's code says why."""

    def __init__(self, answer: CallbackAnswer) -> None:
        super().__init__(f"{answer.code}: {answer.detail}" if answer.detail else answer.code)
        self.answer = answer
        self.retry_after_seconds = answer.retry_after_seconds
        self.is_refused = answer.code not in TRY_AGAIN
        self.is_reachable = answer.code == WAITS_SATURATED
        self.hint = HINTS.get(answer.code, "")


def open_transport(settings: PlatformSettings, identity: Identity | None = None) -> AsyncTransport:
    told = None if identity is None else identity.headers
    options = TransportOptions(refreshed_key=lambda: key_now(settings), told=told)
    # Imported when a service runs, not when its code is imported.
    from lucius.client.async_transport import AsyncTransport

    return AsyncTransport(settings.orchestrator_url, settings.api_key, options)


class Orchestrator:
    """Every method makes one call and raises no transport errors: those are returned as answers."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def pull(self, service: str, count_max: int, wait_seconds: float) -> list[Any]:
        """At most `count_max` directives for a service; the server holds the call open while there are none."""
        content = await self._ask(services.pull_directives(service, count_max, wait_seconds))
        if isinstance(content, CallbackAnswer):
            raise PullFailed(content)
        if not isinstance(content.get("directives"), list):
            raise PullFailed(
                CallbackAnswer("UNAVAILABLE", accepted=False, detail="the pull was not answered with directives")
            )
        return list(content["directives"])

    async def call_back(self, callback: Callback) -> CallbackAnswer:
        call = services.call_back(callback.kind, callback.body, callback.token, callback.traceparent)
        content = await self._ask(call)
        return content if isinstance(content, CallbackAnswer) else _item_answer(content)

    async def call_back_batch(self, callbacks: Sequence[Callback]) -> list[CallbackAnswer] | CallbackAnswer:
        """An answer for each callback in order, or one for the whole call if that was refused."""
        items = [{"type": one.kind, **one.body, "callback_token": one.token} for one in callbacks]
        content = await self._ask(services.call_back_batch(items))
        if isinstance(content, CallbackAnswer):
            return content
        outcomes = content.get("outcomes")
        if not isinstance(outcomes, list) or len(outcomes) != len(items):
            detail = "the batch was answered with a different number of outcomes"
            return CallbackAnswer("UNAVAILABLE", accepted=False, detail=detail)
        return [_item_answer(one if isinstance(one, dict) else {}) for one in outcomes]

    async def _ask(self, call: Call) -> Json | CallbackAnswer:
        """The content of a successful answer, or the refusal."""
        try:
            return content_of(await self._transport.send(call))
        except ClientError as error:
            return _refusal(error)


def _refusal(error: ClientError) -> CallbackAnswer:
    """The orchestrator's refusals have a code. One without a code comes from something in between (a load balancer,
    say) and decides nothing: it must not cause a RESULT to be lost."""
    code, detail, status = error.code, error.message, error.status
    if isinstance(error, Unreachable):
        return CallbackAnswer(code, accepted=False, detail=detail, arrived=error.may_have_arrived)
    if not error.problem.get("code"):
        elsewhere = "RATE_LIMITED" if status == 429 else "UNAVAILABLE"
        code = f"HTTP_{status}" if status in REFUSED_WITHOUT_CODE else elsewhere
        detail = detail or f"HTTP status {status} without a LUCIUS error code"
    if status is not None and (status == 429 or status >= 500):
        # Whatever an unknown code means, its status says that nothing was decided.
        code = code if code in TRY_AGAIN else "UNAVAILABLE"
    return CallbackAnswer(code, accepted=False, detail=detail, retry_after_seconds=error.retry_after_seconds)


def _item_answer(content: Json) -> CallbackAnswer:
    outcome = content.get("outcome")
    return CallbackAnswer(
        str(outcome or content.get("code") or "UNAVAILABLE"),
        accepted=bool(outcome),
        cancel_requested=content.get("cancel_requested") is True,
        detail=str(content.get("detail") or ""),
    )

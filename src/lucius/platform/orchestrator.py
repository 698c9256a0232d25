"""The orchestrator over HTTP, as a service sees it: directives come out, callbacks go in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from lucius.platform.settings import PlatformSettings, is_loopback

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 16
BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_SECONDS_MAX = 10.0
RETRY_AFTER_SECONDS_MAX = 60.0

TRY_AGAIN = frozenset({"UNREACHABLE", "UNAVAILABLE", "INTERNAL", "RATE_LIMITED"})
"""Answers after which the same call may be made again: nothing was decided."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures without a connection, before the first byte of a request."""
REFUSED_WITHOUT_CODE = frozenset({400, 411, 413, 414, 415, 422, 431})
"""Statuses that are about the request itself, whoever in between may have answered."""
GIVE_UP = frozenset({"STALE_ATTEMPT", "JOB_TERMINAL"})
"""Answers after which the work must stop: the attempt is not ours any more."""


@dataclass(frozen=True)
class Answer:
    """What came back for one callback: an outcome such as `APPLIED`, or the code of an error."""

    code: str
    accepted: bool
    cancel_requested: bool = False
    detail: str = ""
    retry_after_seconds: float | None = None
    arrived: bool = True
    """Whether the call may have reached the orchestrator, and so been applied without our hearing of it."""
    tries: int = 1
    """How many tries may have."""


@dataclass(frozen=True)
class Callback:
    kind: str
    body: dict[str, Any]
    token: str = field(repr=False)
    traceparent: str | None = None


class PullFailed(Exception):
    """No directives could be had; the answer's code says whether asking again soon makes sense."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.code}: {answer.detail}" if answer.detail else answer.code)
        self.answer = answer


def open_client(settings: PlatformSettings) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=settings.orchestrator_url,
        timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
        limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        # A proxy that the environment names is for the world outside, and cannot reach this machine's loopback.
        trust_env=not is_loopback(settings.orchestrator_url),
    )


def backoff_seconds(failures: int, retry_after_seconds: float | None = None) -> float:
    """Doubling, with jitter so that many services do not return at once; never sooner than the server asks."""
    ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 16))
    wait = random.uniform(ceiling / 2, ceiling)
    return max(wait, min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))


class Orchestrator:
    """Every method makes one call and raises nothing of the transport's: its failures are answers too."""

    def __init__(self, client: httpx.AsyncClient, api_key: str, key_now: Callable[[], str] | None = None) -> None:
        """`key_now` is asked for another key when this one is refused."""
        self._client = client
        self._api_key = api_key
        self._key_now = key_now

    async def pull(self, service: str, count_max: int, wait_seconds: float) -> list[Any]:
        """At most `count_max` directives for a service; the server holds the call open while there are none."""
        body = {"service": service, "max": count_max, "wait_seconds": wait_seconds}
        timeout = httpx.Timeout(wait_seconds + ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        try:
            response = await self._client.post(
                "/v1/directives:pull", json=body, headers=self._pull_headers(), timeout=timeout
            )
        except httpx.HTTPError as error:
            raise PullFailed(_unreachable(error)) from error
        content = _content(response)
        if response.status_code == 401 and self._has_another_key():
            return await self.pull(service, count_max, wait_seconds)
        if response.status_code != 200:
            raise PullFailed(_answer(response))
        if not isinstance(content.get("directives"), list):
            raise PullFailed(Answer("UNAVAILABLE", accepted=False, detail="the pull was not answered with directives"))
        return list(content["directives"])

    def _pull_headers(self) -> dict[str, str]:
        """Callbacks go without the key: their token is their only credential."""
        return {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    def _has_another_key(self) -> bool:
        key = self._key_now() if self._key_now else self._api_key
        self._api_key, before = key, self._api_key
        return key != before

    async def call_back(self, callback: Callback) -> Answer:
        headers = {"Lucius-Callback-Token": callback.token}
        if callback.traceparent:
            headers["traceparent"] = callback.traceparent
        try:
            response = await self._client.post(
                f"/v1/callbacks/{callback.kind.lower()}", json=callback.body, headers=headers
            )
        except httpx.HTTPError as error:
            return _unreachable(error)
        return _answer(response)

    async def call_back_batch(self, callbacks: Sequence[Callback]) -> list[Answer] | Answer:
        """An answer for each callback in order, or one for the call as a whole if that was refused."""
        items = [{"type": one.kind, **one.body, "callback_token": one.token} for one in callbacks]
        try:
            response = await self._client.post("/v1/callbacks:batch", json={"callbacks": items})
        except httpx.HTTPError as error:
            return _unreachable(error)
        if response.status_code != 200:
            return _answer(response)
        outcomes = _content(response).get("outcomes")
        if not isinstance(outcomes, list) or len(outcomes) != len(items):
            detail = "the batch was answered with another number of outcomes"
            return Answer("UNAVAILABLE", accepted=False, detail=detail)
        return [_item_answer(one if isinstance(one, dict) else {}) for one in outcomes]


def _unreachable(error: httpx.HTTPError) -> Answer:
    detail = f"{type(error).__name__}: {error}".rstrip(": ")
    return Answer("UNREACHABLE", accepted=False, detail=detail, arrived=not isinstance(error, NEVER_SENT))


def _content(response: httpx.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _answer(response: httpx.Response) -> Answer:
    """The orchestrator's refusals have a code. One without was made by something in between (a load balancer that knows
    no such route, say), which decides nothing: a RESULT must not be lost to it."""
    content, status = _content(response), response.status_code
    if status == 200:
        return _item_answer(content)
    code, detail = str(content.get("code") or ""), str(content.get("detail") or "")
    if not code:
        elsewhere = "RATE_LIMITED" if status == 429 else "UNAVAILABLE"
        code = f"HTTP_{status}" if status in REFUSED_WITHOUT_CODE else elsewhere
        detail = detail or f"HTTP status {status} without a code of LUCIUS"
    if status == 429 or status >= 500:
        # Whatever a code that this service does not know may mean, its status says that nothing was decided.
        code = code if code in TRY_AGAIN else "UNAVAILABLE"
    retry_after = response.headers.get("Retry-After", "")
    refused = Answer(code, accepted=False, detail=detail)
    if retry_after.isascii() and retry_after.isdigit():
        return replace(refused, retry_after_seconds=float(retry_after))
    return refused


def _item_answer(content: dict[str, Any]) -> Answer:
    outcome = content.get("outcome")
    return Answer(
        str(outcome or content.get("code") or "UNAVAILABLE"),
        accepted=bool(outcome),
        cancel_requested=content.get("cancel_requested") is True,
        detail=str(content.get("detail") or ""),
    )

"""HTTP as a load run needs it: answers as plain data, and one way to say that there was none.

Each wire is a client with a single connection. One client for all would cost the run most of its time: its pool looks
at every connection on every request, and with 50 of them a run was four times slower.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
PATIENCE_SECONDS = 30.0
"""How long a server may be away (it restarts, say) before a run that has begun gives up."""
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0


class NoAnswer(Exception):
    """The server was not reached, or broke off."""


class Refusal(Exception):
    """An answer that will not become another by asking again."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(f"{problem.get('code') or f'HTTP {status}'}: {problem.get('detail') or 'no reason given'}")


@dataclass(frozen=True)
class Answer:
    status: int
    content: dict[str, Any]
    retry_seconds: float = RETRY_SECONDS

    @property
    def is_busy(self) -> bool:
        """Asking again may help."""
        return self.status == 429 or self.status >= 500

    @property
    def code(self) -> str:
        return str(self.content.get("code") or f"HTTP_{self.status}")

    def expect_success(self) -> dict[str, Any]:
        if not 200 <= self.status < 300:
            raise Refusal(self.status, self.content)
        return self.content


class Wire:
    def __init__(
        self, url: str, api_key: str, reached: Reached, verify: ssl.SSLContext | bool, trust_env: bool
    ) -> None:
        self._reached = reached
        headers = {"Content-Type": "application/json"}
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=headers | ({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
            limits=httpx.Limits(max_connections=1),
            verify=verify,
            trust_env=trust_env,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: bytes, wait_seconds: float = 0.0) -> Answer:
        return await self._ask("POST", path, body, wait_seconds)

    async def get(self, path: str, wait_seconds: float = 0.0) -> Answer:
        return await self._ask("GET", path, None, wait_seconds)

    async def _ask(self, method: str, path: str, body: bytes | None, wait_seconds: float) -> Answer:
        timeout = httpx.Timeout(wait_seconds + ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        try:
            response = await self._http.request(method, path, content=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        self._reached.failing_since = None
        try:
            content = json.loads(response.content)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            if response.is_success:
                raise NoAnswer("it answered with something else than a JSON object; is it a LUCIUS server?")
            content = {}
        return Answer(response.status_code, content, _retry_seconds(response.headers.get("Retry-After", "")))


@dataclass
class Reached:
    """Whether the server answers anybody in this run; the first call that it does not answer starts the clock."""

    failing_since: float | None = None

    async def pause_or_give_up(self, error: NoAnswer) -> None:
        now = time.monotonic()
        if self.failing_since is None:
            self.failing_since = now
        elif now - self.failing_since > PATIENCE_SECONDS:
            raise NoAnswer(f"{error} (for {PATIENCE_SECONDS:g} s)") from error
        await asyncio.sleep(RETRY_SECONDS)


class Wires:
    """Makes wires to one server, and closes them all. They share what costs time to make."""

    def __init__(self, url: str, api_key: str, trust_env: bool) -> None:
        self.url = url.rstrip("/")
        self.reached = Reached()
        self._api_key = api_key
        self._trust_env = trust_env
        self._verify = httpx.create_ssl_context(trust_env=trust_env) if self.url.startswith("https:") else False
        self._made: list[Wire] = []
        self._free: list[Wire] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._made:
            await wire.close()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Wire]:
        """One that nobody else uses. The last one given back is taken first, so few are open where few are needed."""
        wire = self._free.pop() if self._free else self._make()
        try:
            yield wire
        finally:
            self._free.append(wire)

    def _make(self) -> Wire:
        wire = Wire(self.url, self._api_key, self.reached, self._verify, self._trust_env)
        self._made.append(wire)
        return wire


def _retry_seconds(header: str) -> float:
    return min(float(header), RETRY_SECONDS_MAX) if header.isdecimal() else RETRY_SECONDS

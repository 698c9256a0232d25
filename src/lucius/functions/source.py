"""Where jobs come from and results go: the seam, and LUCIUS over HTTP behind it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import httpx

from lucius.functions.job import Result
from lucius.functions.settings import WorkerSettings, is_loopback

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
RENEWAL_SECONDS_MAX = 10.0
BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_SECONDS_MAX = 10.0
RETRY_AFTER_SECONDS_MAX = 60.0
DENIED = (401, 403)
MAY_PASS = (408, 429)


class SourceFailed(Exception):
    """The call was not answered; the same call may be made again."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SourceRefused(SourceFailed):
    """The call was refused, and would be again. `denied`: it is the key, not what was sent."""

    def __init__(self, message: str, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class JobSource(Protocol):
    """Jobs of one worker id. A method that cannot do its part raises `SourceFailed` or `SourceRefused`. It may be
    cancelled at any await, and is called by one task at a time."""

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        """At most `count_max` jobs, each locked for 60 s. Waits up to `wait_seconds` while there are none."""
        ...

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        """Whether the lock of each, in order, lasts another 60 s from now."""
        ...

    async def answer(self, results: Sequence[Result], /) -> list[Any]:
        """One `{jobId, outcome}` each, or `{jobId, code, detail}` for one that was rejected. Settles the jobs. A result
        may be given twice, because its first answer was lost."""
        ...


def backoff_seconds(failures: int, retry_after_seconds: float | None = None) -> float:
    """Doubling, with jitter so that many workers do not return at once; never sooner than the server asks."""
    ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 16))
    return max(random.uniform(ceiling / 2, ceiling), min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))


class HttpSource:
    """LUCIUS over HTTP, for the life of an `async with`."""

    def __init__(self, worker_id: str, settings: WorkerSettings) -> None:
        self._worker_id = worker_id
        headers = {"Content-Type": "application/json"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS_MAX),  # Each call has a deadline as a whole.
            # A proxy that the environment names is for the world outside, and cannot reach this machine's loopback.
            trust_env=not is_loopback(settings.url),
        )

    async def __aenter__(self) -> HttpSource:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        body = {"workerId": self._worker_id, "max": count_max, "wait_seconds": wait_seconds}
        return await self._list("/v1/worker-jobs:pull", body, "jobs", wait_seconds + ANSWER_SECONDS_MAX)

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        return await self._list(
            "/v1/worker-jobs:renew",
            {"workerId": self._worker_id, "jobIds": list(job_ids)},
            "renewed",
            RENEWAL_SECONDS_MAX,
        )

    async def answer(self, results: Sequence[Result], /) -> list[Any]:
        return await self._list("/v1/worker-results", {"results": list(results)}, "outcomes", ANSWER_SECONDS_MAX)

    async def _list(self, path: str, body: Any, name: str, seconds_max: float) -> list[Any]:
        try:
            async with asyncio.timeout(seconds_max):
                response = await self._client.post(path, content=json.dumps(body))
        except TimeoutError as error:
            raise SourceFailed(f"{path} was not answered within {seconds_max:g} s") from error
        except httpx.HTTPError as error:
            raise SourceFailed(f"{path} was not answered: {type(error).__name__}: {error}".rstrip(": ")) from error
        content = _content(response)
        if response.status_code != 200:
            raise _error(path, response, content)
        found = content.get(name)
        if not isinstance(found, list):
            raise SourceFailed(f"{path} was answered without {name}: LUCIUS_URL may not be that of a LUCIUS server")
        return found


def _content(response: httpx.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _error(path: str, response: httpx.Response, content: dict[str, Any]) -> SourceFailed:
    status = response.status_code
    said = " ".join(str(content[name])[:500] for name in ("code", "detail") if content.get(name))
    message = f"{path} was answered with HTTP status {status} {said}".rstrip()
    if status in DENIED:
        return SourceRefused(f"{message}: the key in LUCIUS_API_KEY is missing, wrong or has no right to work", True)
    if 400 <= status < 500 and status not in MAY_PASS:
        return SourceRefused(message)
    retry_after = response.headers.get("Retry-After", "")
    asked = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return SourceFailed(message, asked)

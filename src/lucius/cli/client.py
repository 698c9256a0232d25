"""The API as the commands see it: plain dictionaries in and out, every failure a `CommandFailed`."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

from lucius.cli.failures import Refused, Unreachable, Unusable, problem_text

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
LONG_POLL_SECONDS_MAX = 20.0
RETRY_SECONDS = 0.5
PAGE_SIZE_MAX = 200

TERMINAL = frozenset({"SUCCEEDED", "FAILED_FINAL", "CANCELLED"})


class Client:
    """One connection to one server. `patience_seconds` is how long a read may go on trying a server that is away."""

    def __init__(self, url: str, api_key: str) -> None:
        import httpx

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Unusable(f"{url!r} is not the address of a server; it must be like http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
            trust_env=not is_loopback(self.url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def submit(self, envelope: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The accepted job, and whether the server knew the command already."""
        response = self._send("POST", "/v1/commands", body=dict(envelope))
        replayed = response.headers.get("Idempotency-Replayed", "").lower() == "true"
        return self._content(response), replayed

    def validate(self, envelope: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the command would be accepted, and every fault if not."""
        return self._content(self._send("POST", "/v1/commands:validate", body=dict(envelope)))

    def job(self, job_id: str, wait_seconds: float = 0.0, patience_seconds: float = 0.0) -> dict[str, Any]:
        params = {"wait_seconds": f"{wait_seconds:g}"} if wait_seconds > 0 else {}
        return self._read(job_path(job_id), params, wait_seconds, patience_seconds)

    def steps(self, job_id: str) -> dict[str, Any]:
        return self._read(job_path(job_id) + "/steps")

    def jobs(self, filters: Mapping[str, str], count_max: int, cursor: str = "") -> dict[str, Any]:
        """At most `count_max` jobs, over as many pages as that takes."""
        return self._pages("/v1/jobs", "items", dict(filters), count_max, cursor)

    def events(self, job_id: str, count_max: int, cursor: str = "") -> dict[str, Any]:
        return self._pages(job_path(job_id) + "/events", "events", {}, count_max, cursor)

    def operate(self, job_id: str, verb: str) -> dict[str, Any]:
        """`cancel`, `pause`, `resume` or `redrive`."""
        return self._content(self._send("POST", f"{job_path(job_id)}:{verb}", body={}))

    def protocols(self) -> dict[str, Any]:
        return self._read("/v1/protocols")

    def protocol(self, protocol_id: str) -> dict[str, Any]:
        """One protocol, by its id or a request type that it serves."""
        return self._read(f"/v1/protocols/{quote(protocol_id, safe='')}")

    def lanes(self) -> dict[str, Any]:
        return self._read("/v1/admin/lanes")

    def tenants(self) -> dict[str, Any]:
        return self._read("/v1/admin/tenants")

    def dead_letters(self, count_max: int, cursor: str = "") -> dict[str, Any]:
        """Jobs that failed for good, from `cursor` on, and messages that the bus gave up on; each at most so many."""
        return self._read("/v1/admin/dead-letters", {"limit": str(count_max), **({"cursor": cursor} if cursor else {})})

    def _pages(self, path: str, name: str, params: dict[str, str], count_max: int, cursor: str) -> dict[str, Any]:
        found: list[Any] = []
        following: str | None = cursor or None
        while True:
            page_params = {**params, "limit": str(min(PAGE_SIZE_MAX, count_max - len(found)))}
            if following:
                page_params["cursor"] = following
            page = self._read(path, page_params)
            items = page.get(name) or []
            found += items
            following = page.get("next")
            if not following or not items or len(found) >= count_max:
                return {name: found[:count_max], "next": following}

    def _read(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        patience_seconds: float = 0.0,
    ) -> dict[str, Any]:
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                return self._content(self._send("GET", path, params=params, wait_seconds=wait_seconds))
            except Unreachable:
                if time.monotonic() + RETRY_SECONDS >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
        wait_seconds: float = 0.0,
    ) -> httpx.Response:
        import httpx

        timeout = httpx.Timeout(wait_seconds + ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        try:
            response = self._http.request(method, path, params=params, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(
                f"{self.url} is out of reach: {reason}\nStart a server with `lucius up`, or name one with --url."
            ) from error
        if response.is_success:
            return response
        problem = _object(response) or {}
        if 400 <= response.status_code < 500:
            raise Refused(response.status_code, problem, response.headers.get("Retry-After", ""))
        raise Unreachable(f"{self.url} cannot serve now: {problem_text(response.status_code, problem)}")

    def _content(self, response: httpx.Response) -> dict[str, Any]:
        content = _object(response)
        if content is None:
            raise Unreachable(f"{self.url} answered with something else than a JSON object; is it a LUCIUS server?")
        return content


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        content = response.json()
    except ValueError:
        return None
    return content if isinstance(content, dict) else None

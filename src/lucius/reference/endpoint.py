"""An OpenAI-compatible endpoint: its settings, and calls with limits on time and size.

Its key is in no error and no log line. Of an error response, only the status and a short code are reported: the rest
may repeat what was sent.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from lucius.platform import NonRetryable, RateLimited, Retryable, ServiceUnusable
from lucius.platform.settings import is_loopback

CONNECT_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
ERROR_BYTES_MAX = 16 * 1024
RETRY_AFTER_SECONDS = 30.0
RETRY_AFTER_SECONDS_MAX = 86_400.0
KEY_CHARACTERS_MAX = 4_096
MODEL_CHARACTERS_MAX = 128
STATUS_TIMED_OUT = 408

_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Endpoint:
    """`prefix` is that of its settings, such as `LUCIUS_SIS`, so that an error can say what to change."""

    prefix: str
    url: str
    model: str
    api_key: str = field(default="", repr=False)

    def post(self, path: str, body: Mapping[str, Any], seconds_max: float) -> Any:
        """The JSON of its response. Raises `RateLimited`, `Retryable` or `NonRetryable`."""
        deadline = time.monotonic() + seconds_max
        # Decompressed data could be a thousand times larger than on the wire, so compression is not accepted.
        headers = {"Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        timeout = httpx.Timeout(seconds_max, connect=min(CONNECT_SECONDS_MAX, seconds_max))
        # A proxy from the environment is for external hosts and cannot reach this machine's loopback.
        proxied = not is_loopback(self.url)
        try:
            with (
                httpx.Client(timeout=timeout, follow_redirects=False, trust_env=proxied) as client,
                client.stream("POST", f"{self.url}{path}", json=body, headers=headers) as response,
            ):
                bytes_max = ANSWER_BYTES_MAX if response.status_code == 200 else ERROR_BYTES_MAX
                content = self._content(response, bytes_max, deadline)
        except httpx.TimeoutException as error:
            raise self._too_slow(seconds_max) from error
        except httpx.HTTPError as error:
            raise self._unavailable(f"cannot be reached ({type(error).__name__})") from error
        if response.status_code != 200:
            raise self._refusal(response, content or b"")
        if content is None:
            raise self._unavailable(f"answered more than {ANSWER_BYTES_MAX} bytes, or not within {seconds_max:g} s")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self.invalid("is not JSON") from error

    def invalid(self, what: str) -> Retryable:
        """It responded, but with something else; that may come from a proxy in between, so it may pass."""
        return Retryable("ENDPOINT_ANSWER_INVALID", f"the answer of {self._name} {what}")

    @property
    def _name(self) -> str:
        return f"the endpoint of {self.prefix}_URL ({urlsplit(self.url).netloc})"

    def _content(self, response: httpx.Response, bytes_max: int, deadline: float) -> bytes | None:
        """The content, or `None` if it is too large or too late: a server that drips must not block an attempt."""
        content = bytearray()
        for part in response.iter_raw():
            content += part
            if len(content) > bytes_max or time.monotonic() > deadline:
                return None
        return bytes(content)

    def _unavailable(self, what: str) -> Retryable:
        return Retryable("ENDPOINT_UNAVAILABLE", f"{self._name} {what}")

    def _too_slow(self, seconds_max: float) -> Retryable:
        return self._unavailable(f"did not answer within {seconds_max:g} s")

    def _refusal(self, response: httpx.Response, content: bytes) -> RateLimited | Retryable | NonRetryable:
        status = response.status_code
        status_text = f"answered {status}{_error_code(content)}"
        if status == 429:
            seconds = retry_after_seconds(response.headers.get("Retry-After", ""))
            return RateLimited("ENDPOINT_RATE_LIMITED", f"{self._name} {status_text}", seconds)
        if status >= 500 or status == STATUS_TIMED_OUT:
            return self._unavailable(status_text)
        if status < 400:
            advice = f"only 200 is an answer, and redirects are not followed: correct {self.prefix}_URL"
        elif status in (401, 403):
            advice = f"check {self.prefix}_API_KEY"
        else:
            advice = f"check {self.prefix}_URL and {self.prefix}_MODEL"
        return NonRetryable("ENDPOINT_REFUSED", f"{self._name} {status_text}; {advice}")


def read_endpoint(prefix: str, environment: Mapping[str, str] | None = None) -> Endpoint | None:
    """The endpoint of `<prefix>_URL`, `_API_KEY` and `_MODEL`, or none. Raises `ServiceUnusable`."""
    environment = os.environ if environment is None else environment
    url, key, model = (environment.get(f"{prefix}_{name}", "").strip() for name in ("URL", "API_KEY", "MODEL"))
    if not url:
        if key or model:
            raise ServiceUnusable(f"{prefix}_API_KEY and {prefix}_MODEL have no effect without {prefix}_URL: set it")
        return None
    _check_url(f"{prefix}_URL", url)
    if not model or len(model) > MODEL_CHARACTERS_MAX:
        raise ServiceUnusable(
            f"{prefix}_URL needs {prefix}_MODEL: the model's name, of at most {MODEL_CHARACTERS_MAX} characters"
        )
    if len(key) > KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        raise ServiceUnusable(f"{prefix}_API_KEY must be at most {KEY_CHARACTERS_MAX} printable ASCII characters")
    return Endpoint(prefix, url.rstrip("/"), model, key)


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, usable = None, False
    if parts is None or not usable:
        raise ServiceUnusable(f"{name} is not an address such as https://127.0.0.1:8080/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ServiceUnusable(f"{name} must not contain a user, password, query or fragment")


def retry_after_seconds(header: str) -> float:
    """Seconds or a date, as in HTTP; half a minute if neither is given."""
    header = header.strip()
    if header.isascii() and header.isdigit() and len(header) < 10:
        seconds = float(header)
    else:
        try:
            at = parsedate_to_datetime(header)
        except ValueError:
            return RETRY_AFTER_SECONDS
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        seconds = (at - datetime.now(UTC)).total_seconds()
    return min(RETRY_AFTER_SECONDS_MAX, max(1.0, seconds))


def _error_code(content: bytes) -> str:
    """The code in an error's body, such as `model_not_found`, if it clearly is a code."""
    try:
        error = json.loads(content)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return f" {code}" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""

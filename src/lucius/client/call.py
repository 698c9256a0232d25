"""HTTP without the I/O: calls, responses, and scripts that decide what to send next.

A script is a generator. It yields a `Call` and receives its successful `Response` (errors are raised at the `yield`),
or yields a `Pause`; its return value is the result. It holds no connection and awaits nothing, so `Session` and
`AsyncSession` run the same scripts.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    is_repeatable: bool = False
    """Whether making it twice has the same effect as making it once."""
    wait_seconds: float = 0.0
    """How long the server may hold the call open before it answers."""
    answer_seconds_max: float = ANSWER_SECONDS_MAX
    """How long the answer may take beyond that."""
    sends_key: bool = True
    patience_seconds: float | None = None
    """For how long transient failures are retried; `None` means the session's value."""

    @property
    def seconds_max(self) -> float:
        return self.wait_seconds + self.answer_seconds_max


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Case-insensitive."""
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json_object(self) -> Json | None:
        """The body, if it is a JSON object."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
Script: TypeAlias = Generator[Call | Pause, Response, T]


def get(path: str, query: Mapping[str, str] | None = None, **options: Any) -> Call:
    return Call("GET", path, query, is_repeatable=True, **options)


def post(path: str, body: Any, **options: Any) -> Call:
    """Raises `ValueError` for a body that is not JSON."""
    return Call("POST", path, body=encode(body), **options)


def encode(body: Any) -> bytes:
    return _ENCODER.encode(body).encode()

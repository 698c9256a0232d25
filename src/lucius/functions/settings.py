"""A worker's settings, from the environment or as arguments."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lucius.functions.errors import WorkerUnusable

KEY_FILE = "api-key"
KEY_CHARACTERS_MAX = 4_096
_KEY = re.compile(r"[!-~]*")


def _limits(low: float, high: float, name: str = "") -> dict[str, Any]:
    return {"min": low, "max": high, "name": name}


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Those without a variable are for tests and for those who embed the worker."""

    url: str = field(default="http://127.0.0.1:8000", metadata={"name": "LUCIUS_URL"})
    api_key: str = field(default="", repr=False, metadata={"name": "LUCIUS_API_KEY"})
    """Beside a server on this machine: the key in its data folder."""
    data: str = field(default=".lucius", metadata={"name": "LUCIUS_DATA"})
    concurrency: int = field(default=16, metadata=_limits(1, 1_000, "LUCIUS_WORKER_CONCURRENCY"))
    """How many functions run at once. A worker with quick functions only is bounded by `pull_max` instead."""
    drain_seconds: float = field(default=20.0, metadata=_limits(0, 86_400, "LUCIUS_WORKER_DRAIN_SECONDS"))
    """How long functions may go on after SIGTERM before their jobs are left to another worker."""
    pull_max: int = field(default=256, metadata=_limits(1, 256, "LUCIUS_WORKER_PULL_MAX"))
    """How many jobs are taken in one call."""
    wait_seconds: float = field(default=20.0, metadata=_limits(0, 60))
    """How long the server may hold a pull open while there is nothing to do."""
    renew_seconds: float = field(default=20.0, metadata=_limits(0.01, 30))
    """How often the locks of jobs are extended; a lock lasts 60 s."""
    throttle_tries: int = field(default=3, metadata=_limits(1, 20))
    throttle_base_seconds: float = field(default=1.0, metadata=_limits(0, 20))
    results_max: int = field(default=500, metadata=_limits(1, 500))
    """How many results travel in one call."""
    unsent_max: int = field(default=2_000, metadata=_limits(1, 100_000))
    """While so many results are unsent, no more jobs are taken."""

    def __post_init__(self) -> None:
        _check_address(self.url)
        if not _KEY.fullmatch(self.api_key):
            raise WorkerUnusable("LUCIUS_API_KEY has characters that a key cannot have: spaces, or beyond ASCII")
        for one in fields(self):
            low, high, value = one.metadata.get("min"), one.metadata.get("max"), getattr(self, one.name)
            if low is None or high is None:
                continue
            is_number = isinstance(value, int) or (isinstance(value, float) and isinstance(one.default, float))
            if not is_number or not low <= value <= high:
                kind = "a number" if isinstance(one.default, float) else "a whole number"
                raise WorkerUnusable(f"{_shown(one.name)}={value!r} must be {kind} between {low:g} and {high:g}")


def read_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> WorkerSettings:
    """Settings as the environment has them; arguments go before it. Raises `WorkerUnusable` for one that is no use."""
    environment = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for one in fields(WorkerSettings):
        name = str(one.metadata.get("name") or "")
        text = environment.get(name, "").strip() if name else ""
        if text and one.name not in overrides:
            found[one.name] = _parsed(name, text, type(one.default))
    unknown = overrides.keys() - {one.name for one in fields(WorkerSettings)}
    if unknown:
        raise WorkerUnusable(f"there is no setting {', '.join(sorted(unknown))}")
    settings = WorkerSettings(**found, **overrides)
    if not settings.api_key and is_loopback(settings.url):
        return replace(settings, api_key=_key_of_this_machine(settings.data))
    return settings


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key_of_this_machine(data: str) -> str:
    """The key that `lucius up` left in its data folder, or none. It is shown to servers on this machine only."""
    try:
        return (Path(data) / KEY_FILE).read_text("utf-8")[:KEY_CHARACTERS_MAX].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _shown(setting: str) -> str:
    return next(one.metadata.get("name") or setting for one in fields(WorkerSettings) if one.name == setting)


def _parsed(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise WorkerUnusable(f"{name}={text!r} is not a {'whole ' if kind is int else ''}number") from error


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, or half an IPv6 address.
        usable = False
    if not usable:
        raise WorkerUnusable(f"LUCIUS_URL={url!r} is not an address such as http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise WorkerUnusable("LUCIUS_URL has a user or a password in it, and is logged; use LUCIUS_API_KEY")

"""A service's settings, from the environment. Each has a default that works beside `lucius up` on one machine."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lucius.platform.errors import ServiceUnusable

KEY_FILE = "api-key"
KEY_CHARACTERS_MAX = 4_096
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_KEY = re.compile(r"[!-~]*")


@dataclass(frozen=True, kw_only=True)
class PlatformSettings:
    orchestrator_url: str = field(default="http://127.0.0.1:8000", metadata={"name": "LUCIUS_ORCHESTRATOR_URL"})
    """Where directives come from and callbacks go."""
    api_key: str = field(default="", repr=False, metadata={"name": "LUCIUS_API_KEY"})
    """A key with the role `work`. Beside a server on this machine: the key in its data folder."""
    concurrency: int = field(default=4, metadata={"min": 1, "max": 1_000})
    """How many attempts are in work at once. No more directives are taken than that."""
    state: str = ".lucius-platform"
    """A folder for what must survive a restart, one subfolder a service. Each replica needs its own."""
    store: str = field(default="sqlite", metadata={"choices": ("sqlite", "workspace", "memory")})
    """Where attempts are remembered: `sqlite` or `workspace` survive a restart, `memory` does not."""
    health_port: int = field(default=0, metadata={"min": 0, "max": 65_535})
    """Where `/healthz`, `/readyz` and `/metrics` are served; 0 is nowhere."""
    health_host: str = "127.0.0.1"
    """The address that the health port listens on."""
    batch_max: int = field(default=50, metadata={"min": 1, "max": 500})
    """How many callbacks may travel in one call."""
    drain_seconds: float = field(default=25.0, metadata={"min": 0, "max": 86_400})
    """How long work under way may go on after SIGTERM before it is given back."""
    work_seconds_max: float = field(default=21_600.0, metadata={"min": 1, "max": 604_800})
    """How long one attempt may take before it is reported as failed."""
    file_roots: str = ""
    """Folders, comma-separated, that `file://` refs must lie in; empty is anywhere but what belongs to LUCIUS."""
    data: str = field(default=".lucius", metadata={"name": "LUCIUS_DATA"})
    """The data folder of a server on this machine: its key is found there, and no ref may reach its secrets."""
    otlp_endpoint: str = field(default="", metadata={"name": "LUCIUS_OTLP_ENDPOINT"})
    """Where spans are sent (OTLP over HTTP); needs the extra `otel`. Empty: nowhere."""
    rehearsing: bool = field(default=False, metadata={"name": "LUCIUS_CONTRACT_TEST"})
    """Set by the contract kit: directives may draw their work out."""

    def __post_init__(self) -> None:
        _check_address(self.orchestrator_url)
        if not _KEY.fullmatch(self.api_key):
            raise ServiceUnusable(
                f"{name_of('api_key')} has characters that a key cannot have: spaces, or beyond ASCII"
            )
        for one in fields(self):
            _check(one.name, getattr(self, one.name), one.metadata)


def name_of(setting: str) -> str:
    """The environment variable of a setting."""
    of = {one.name: one.metadata.get("name", f"LUCIUS_PLATFORM_{one.name.upper()}") for one in fields(PlatformSettings)}
    return str(of[setting])


def read_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> PlatformSettings:
    """Settings as the environment has them. Raises `ServiceUnusable` for one that cannot be used."""
    environment = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for one in fields(PlatformSettings):
        text = environment.get(name_of(one.name), "").strip()
        if text:
            found[one.name] = _parsed(one.name, text, type(one.default))
    settings = PlatformSettings(**{**found, **overrides})
    if not settings.api_key and is_loopback(settings.orchestrator_url):
        return replace(settings, api_key=_key_of_this_machine(settings))
    return settings


def key_now(settings: PlatformSettings, environment: Mapping[str, str] | None = None) -> str:
    """The key to use once the one in the settings was refused: `lucius up` may have made its own since the start."""
    environment = os.environ if environment is None else environment
    is_given = bool(environment.get(name_of("api_key"), "").strip())
    if is_given or not is_loopback(settings.orchestrator_url):
        return settings.api_key
    found = _key_of_this_machine(settings)
    return found if found and _KEY.fullmatch(found) else settings.api_key


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key_of_this_machine(settings: PlatformSettings) -> str:
    """The key that `lucius up` left in its data folder, or none. It is shown to servers on this machine only."""
    try:
        path = Path(settings.data) / KEY_FILE
        return path.read_text("utf-8")[:KEY_CHARACTERS_MAX].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in (*TRUE, *FALSE):
            raise ServiceUnusable(f"{name_of(name)}={text!r} must be one of {', '.join((*TRUE, *FALSE))}")
        return text.lower() in TRUE
    try:
        return kind(text)
    except ValueError as error:
        raise ServiceUnusable(f"{name_of(name)}={text!r} is not a number") from error


def _check_address(url: str) -> None:
    name = name_of("orchestrator_url")
    try:
        parts = urlsplit(url)
        usable = bool(parts.scheme and parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, or half an IPv6 address.
        usable = False
    if not usable:
        raise ServiceUnusable(f"{name}={url!r} is not an address such as http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        # It is logged, and shown wherever settings are.
        raise ServiceUnusable(f"{name} has a user or a password in it; use {name_of('api_key')}")


def _check(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    choices = limits.get("choices")
    if choices and value not in choices:
        raise ServiceUnusable(f"{name_of(name)}={value!r} must be one of {', '.join(choices)}")
    low, high = limits.get("min"), limits.get("max")
    if low is not None and high is not None and not low <= value <= high:
        raise ServiceUnusable(f"{name_of(name)}={value:g} must lie between {low:g} and {high:g}")

"""Settings are frozen dataclasses. The metadata of a field has its environment variable and its limits:

`name`: the variable; without one the field is set only by arguments. `alias`: another variable, used if the first is
empty. `min` and `max`: the limits of a number. `choices`: the allowed values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from lucius.client.addresses import (
    URL_ALIAS,
    URL_DEFAULT,
    URL_VARIABLE,
    AddressInvalid,
    check_address,
    has_credentials,
)
from lucius.client.keys import KEY_VARIABLE, is_key, key_on_this_machine
from lucius.kit.errors import ServiceUnusable

URL_NAMES = f"{URL_VARIABLE} (or {URL_ALIAS})"
CONCURRENCY_DEFAULT = 16
"""How many attempts or functions run at once. Most of them spend most of their time waiting."""
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

S = TypeVar("S")


def number(default: float, low: float, high: float, name: str = "") -> Any:
    return field(default=default, metadata={"min": low, "max": high, "name": name})


def variable(default: str | bool, name: str, **limits: Any) -> Any:
    return field(default=default, metadata={"name": name, **limits})


def url_field() -> Any:
    return variable(URL_DEFAULT, URL_VARIABLE, alias=URL_ALIAS)


def key_field() -> Any:
    return field(default="", repr=False, metadata={"name": KEY_VARIABLE})


def variable_of(kind: type, setting: str) -> str:
    """The variable of a setting; its own name if it has none."""
    (found,) = (one for one in _fields(kind) if one.name == setting)
    return str(found.metadata.get("name") or setting)


def read(kind: type[S], environment: Mapping[str, str] | None, overrides: Mapping[str, Any]) -> S:
    """Settings from the environment; `overrides` take precedence. Raises `ServiceUnusable`."""
    environment = os.environ if environment is None else environment
    known = _fields(kind)
    if unknown := overrides.keys() - {one.name for one in known}:
        raise ServiceUnusable(f"unknown setting {', '.join(sorted(unknown))}")
    found = {one.name: _read_one(one, environment) for one in known if one.name not in overrides}
    return kind(**{name: value for name, value in found.items() if value is not None}, **overrides)


def check(settings: Any, url: str, api_key: str) -> None:
    """Raises `ServiceUnusable` for an invalid setting. Its text contains no secret."""
    try:
        check_address(url)
    except AddressInvalid as error:
        raise ServiceUnusable(f"{URL_NAMES}: {error}") from error
    if has_credentials(url):
        raise ServiceUnusable(f"{URL_NAMES} contains a user or a password, and is logged; use {KEY_VARIABLE}")
    if not is_key(api_key):
        raise ServiceUnusable(f"{KEY_VARIABLE} contains characters that a key cannot have: spaces or non-ASCII")
    for one in _fields(type(settings)):
        _check_one(one, getattr(settings, one.name))


def key_now(url: str, data_folder: str, api_key: str, environment: Mapping[str, str] | None = None) -> str:
    """The key to use after `api_key` was refused: `lucius up` may have created one since the start."""
    environment = os.environ if environment is None else environment
    if environment.get(KEY_VARIABLE, "").strip():
        return api_key
    found = key_on_this_machine(url, data_folder)
    return found if found and is_key(found) else api_key


def _fields(kind: type) -> tuple[Field[Any], ...]:
    return fields(kind)


def _read_one(one: Field[Any], environment: Mapping[str, str]) -> Any:
    for key in ("name", "alias"):
        name = one.metadata.get(key)
        text = environment.get(name, "").strip() if name else ""
        if text:
            return _parsed(str(name), text, type(one.default))
    return None


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in (*TRUE, *FALSE):
            raise ServiceUnusable(f"{name}={text!r} must be one of {', '.join((*TRUE, *FALSE))}")
        return text.lower() in TRUE
    try:
        return kind(text)
    except ValueError as error:
        raise ServiceUnusable(f"{name}={text!r} is not a {'whole ' if kind is int else ''}number") from error


def _check_one(one: Field[Any], value: Any) -> None:
    name, choices = one.metadata.get("name") or one.name, one.metadata.get("choices")
    if choices and value not in choices:
        raise ServiceUnusable(f"{name}={value!r} must be one of {', '.join(choices)}")
    low, high = one.metadata.get("min"), one.metadata.get("max")
    if low is None or high is None:
        return
    is_number = isinstance(value, int) or (isinstance(value, float) and isinstance(one.default, float))
    if not is_number or not low <= value <= high:
        kind = "a number" if isinstance(one.default, float) else "a whole number"
        raise ServiceUnusable(f"{name}={value!r} must be {kind} between {low:g} and {high:g}")

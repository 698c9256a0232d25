"""A command given by flags: from nothing, or as changes to a file or to the command of another job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from lucius.cli.failures import Unusable

FORMATS = ("text", "json", "yaml")


def read_parameters(given: Iterable[str]) -> dict[tuple[str, ...], Any]:
    """Values by their place in the payload. `a.b=1` and `/a/b=1` mean the same; a value is JSON if it can be read as
    such, and text if not; one that is given several times becomes a list."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for one in given:
        name, sign, text = one.partition("=")
        path = _path(name)
        if not sign or not path:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE, such as sis.prompt_set=default", param_hint="-p")
        found.setdefault(path, []).append(_value(text))
    return {path: values[0] if len(values) == 1 else values for path, values in found.items()}


def _path(name: str) -> tuple[str, ...]:
    if name.startswith("/"):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in name[1:].split("/")]
    else:
        parts = name.strip().split(".")
    return tuple(parts) if all(parts) else ()


def _value(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def with_parameters(payload: Mapping[str, Any], parameters: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The payload with these values in it; objects on the way to them are made."""
    changed: dict[str, Any] = json.loads(json.dumps(payload))
    for path, value in parameters.items():
        place = changed
        for depth, name in enumerate(path[:-1], start=1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise Unusable(f"-p {'.'.join(path)}: {'.'.join(path[:depth])} is not an object, so nothing goes in it")
        place[path[-1]] = value
    return changed


def with_flags(envelope: Mapping[str, Any], flags: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """The command with what the flags say instead."""
    payload = envelope.get("payload")
    if payload is not None and not isinstance(payload, dict):
        return {**envelope, **flags}  # The server says what is wrong with it.
    changed = {**envelope, **{name: value for name, value in flags.items() if value is not None}}
    return {**changed, "payload": with_parameters(payload or {}, read_parameters(parameters))}

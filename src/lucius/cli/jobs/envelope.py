"""Reads a command file into an envelope.

The server validates the envelope; this module only rejects what parsing would lose (duplicate keys, NaN), and makes
refs that are plain paths absolute, so that a command file can be kept and moved together with its documents.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from lucius.cli.failures import Unusable

FILE_BYTES_MAX = 4 * 1024 * 1024
REF_FIELDS = ("input_ref", "output_ref")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def read_envelope_file(file: Path) -> dict[str, Any]:
    """The command in a file, or on standard input if its name is `-`."""
    return read_envelope(_read_file(file), file.parent, str(file))


def read_payload_file(file: Path) -> dict[str, Any]:
    """The payload in a file, or on standard input if its name is `-`."""
    return _read_object(_read_file(file), str(file), "a payload")


def _read_file(file: Path) -> bytes:
    try:
        with click.open_file(str(file), "rb") as opened:
            return bytes(opened.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}") from error


def read_envelope(content: bytes, folder: Path, name: str) -> dict[str, Any]:
    return with_absolute_refs(_read_object(content, name, "a command"), folder)


def _read_object(content: bytes, name: str, what: str) -> dict[str, Any]:
    if len(content) > FILE_BYTES_MAX:
        raise Unusable(f"{name} has more than {FILE_BYTES_MAX} bytes")
    try:
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant)
        # A number such as 1e999 is parsed as infinity, which JSON cannot represent: reject it before it is sent.
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{name} is not a JSON document: {error}") from error
    if not isinstance(found, dict):
        raise Unusable(f"{name} must contain a JSON object, {what}")
    return found


def with_absolute_refs(envelope: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`input_ref` and `output_ref` without a scheme are paths relative to `folder`."""
    changed = dict(envelope)
    for field in REF_FIELDS:
        ref = envelope.get(field)
        if isinstance(ref, str):
            changed[field] = _absolute(ref, folder)
        elif isinstance(ref, dict) and isinstance(ref.get("uri"), str):
            changed[field] = {**ref, "uri": _absolute(ref["uri"], folder)}
    return changed


def _absolute(ref: str, folder: Path) -> str:
    if not ref or _SCHEME.match(ref):
        return ref
    return (folder / ref).resolve().as_uri()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {duplicate!r}")
    return unique


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")

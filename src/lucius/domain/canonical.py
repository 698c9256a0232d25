"""Canonical JSON, and the idempotency hashes made from it.

Two documents with the same meaning have the same canonical form: keys sorted, arrays in order, null members left
out (nulls in arrays stay), numbers without trailing zeros, UTF-8.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

_encode_sorted = msgspec.json.Encoder(order="sorted").encode

# The encoder's output is canonical already unless it contains a null member or a number with a point or an exponent.
# A string that only looks like one costs a slower pass and changes nothing.
_INEXACT_NUMBER = re.compile(rb"[:,\[]-?[0-9]+[.eE]")

_EXACT_INTEGER_MAX = 2**64
"""No larger integer is accepted, so a larger float cannot equal an integer."""


def canonical_json(value: object) -> bytes:
    text = _encode_sorted(value)
    if b":null" in text or _INEXACT_NUMBER.search(text) or isinstance(value, float):
        text = _encode_sorted(_rewritten(value))
    return text


def idempotency_hash(
    tenant_norm: str, request_type: str, input_ref: object, output_ref: object, payload: object, schema_version: str
) -> str:
    """The hash of a command's content, in hex. `tenant_norm` is the tenant's normal form."""
    command = {
        "tenant_id": tenant_norm,
        "request_type": request_type,
        "input_ref": input_ref,
        "output_ref": output_ref,
        "payload": payload,
        "schema_version": schema_version,
    }
    return sha256(canonical_json(command)).hexdigest()


def idempotency_scope_key(tenant_norm: str, key: str | None, hash_: str) -> bytes:
    """The 32 bytes that a command and its repetition share: by key if there is one, else by hash. A key that looks like
    a hash is still a different claim."""
    claim = ("hash", hash_) if key is None else ("key", key)
    return sha256(_encode_sorted((tenant_norm, *claim))).digest()


def _rewritten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rewritten(member) for key, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [_rewritten(member) for member in value]
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _EXACT_INTEGER_MAX:
            return int(value)
        # Python's repr is the shortest text that reads back as the same number, on every platform and version.
        return msgspec.Raw(repr(value).encode())
    return value

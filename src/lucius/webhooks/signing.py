"""Signatures according to Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

The variable may contain several secrets, separated by spaces. Each signs, so a receiver can switch to a new secret
without missing a call.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

SECRETS_MAX = 4
_PREFIX = "whsec_"


class SecretUnusable(Exception):
    """A secret that cannot sign; the message does not repeat it."""


def read_secrets(text: str) -> tuple[bytes, ...]:
    """The secrets in a variable's value: `whsec_` and base64, or plain text. Raises `SecretUnusable`."""
    parts = text.split()
    if not 1 <= len(parts) <= SECRETS_MAX:
        raise SecretUnusable(f"it must contain 1 to {SECRETS_MAX} secrets, separated by spaces")
    return tuple(map(_read_secret, parts))


def _read_secret(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        return text.encode()
    try:
        secret = b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise SecretUnusable("what follows whsec_ is not base64") from None
    if not secret:
        raise SecretUnusable("nothing follows whsec_")
    return secret


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret."""
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(secret, content, "sha256") for secret in secrets)
    return " ".join(f"v1,{b64encode(digest).decode()}" for digest in digests)

"""Callback tokens: the only credential of a callback, bound to one attempt of one step of one job.

A token is `v1.<key id>.<expiry>.<signature>`. It names nothing but its key and its end: tenant, job, step, attempt and
lease come from the callback's body, so a token that was made for other ids does not verify.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from msgspec import Struct

from lucius.domain.time import Instant, after

TOKEN_GRACE_SECONDS = 7 * 86_400
GENUINE_MAX = 20_000
"""Tokens remembered as genuine, with what they were made for: an attempt's ACK and RESULT carry the same one."""


class CallbackKey(Struct, frozen=True):
    id: str
    secret: bytes


class CallbackIds(Struct, frozen=True):
    """What a callback is about, and what its token is bound to."""

    tenant_id: str
    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str


class TokenSigner:
    """Mints with the first key and verifies with all of them, so that keys can rotate."""

    def __init__(self, keys: tuple[CallbackKey, ...]) -> None:
        if not keys:
            raise ValueError("at least one callback key is needed")
        self._current = keys[0]
        self._keys = {key.id: key for key in keys}
        self._genuine: dict[str, tuple[CallbackIds, int]] = {}

    def mint(self, ids: CallbackIds, now: Instant, max_step_seconds: float) -> str:
        expiry = after(now, max_step_seconds + TOKEN_GRACE_SECONDS) // 1000
        key = self._current
        token = f"v1.{key.id}.{expiry}.{_signature(key, ids, expiry)}"
        self._remember(token, ids, expiry)
        return token

    def verifies(self, token: str | None, ids: CallbackIds, now: Instant) -> bool:
        """Whether the token is genuine, unexpired and made for exactly these ids. Says no more than that."""
        if not token or len(token) > 200 or not token.isascii():
            return False
        genuine = self._genuine.get(token)
        if genuine is not None:
            return genuine[0] == ids and genuine[1] * 1000 > now
        version, _, rest = token.partition(".")
        key_id, _, rest = rest.partition(".")
        expiry_text, _, signature = rest.partition(".")
        key = self._keys.get(key_id)
        if version != "v1" or key is None or not expiry_text.isdigit():
            return False
        expiry = int(expiry_text)
        if not hmac.compare_digest(signature, _signature(key, ids, expiry)):
            return False
        self._remember(token, ids, expiry)
        return expiry * 1000 > now

    def _remember(self, token: str, ids: CallbackIds, expiry: int) -> None:
        if len(self._genuine) >= GENUINE_MAX:
            self._genuine.clear()
        self._genuine[token] = (ids, expiry)


def _signature(key: CallbackKey, ids: CallbackIds, expiry: int) -> str:
    # A newline can stand in none of these ids, so no two sets of ids give the same text.
    text = f"{ids.tenant_id}\n{ids.job_id}\n{ids.step_id}\n{ids.attempt_no}\n{ids.lease_id}\n{expiry}"
    digest = hmac.digest(key.secret, text.encode("utf-8", "surrogatepass"), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()

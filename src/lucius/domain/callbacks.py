"""Callback tokens: the only credential of a callback, bound to one attempt of one step of one job.

A token is `v1.<key id>.<expiry>.<signature>`. It contains only its key and expiry: tenant, job, step, attempt and
lease come from the callback's body, so a token made for other ids does not verify.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from functools import lru_cache

from msgspec import Struct

from lucius.domain.time import Instant, after

TOKEN_GRACE_SECONDS = 7 * 86_400
TOKEN_PARTS = 4
GENUINE_MAX = 20_000
"""Size of the cache of verified tokens: an attempt's ACK and RESULT carry the same token."""


class CallbackKey(Struct, frozen=True):
    id: str
    secret: bytes


class CallbackIds(Struct, frozen=True):
    """The ids that a callback is about and that its token is bound to."""

    tenant_id: str
    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str


class TokenSigner:
    """Mints with the first key and verifies with all of them, so that keys can rotate."""

    def __init__(self, keys: tuple[CallbackKey, ...]) -> None:
        self._genuine: dict[str, tuple[CallbackIds, int]] = {}
        self.use(keys)

    def use(self, keys: tuple[CallbackKey, ...]) -> None:
        """From now on, these keys instead."""
        if not keys:
            raise ValueError("at least one callback key is needed")
        self._current = keys[0]
        self._keys = {key.id: key for key in keys}
        self._genuine.clear()

    def mint(self, ids: CallbackIds, now: Instant, max_step_seconds: float) -> str:
        expiry = after(now, max_step_seconds + TOKEN_GRACE_SECONDS) // 1000
        key = self._current
        token = _written(key, ids, expiry)
        self._remember(token, ids, expiry)
        return token

    def verifies(self, token: str | None, ids: CallbackIds, now: Instant) -> bool:
        """Whether the token is genuine, unexpired and made for exactly these ids. Gives no reason."""
        if not token or len(token) > 200 or not token.isascii():
            return False
        genuine = self._genuine.get(token)
        if genuine is not None:
            return genuine[0] == ids and genuine[1] * 1000 > now
        parts = token.split(".")
        key = self._keys.get(parts[1]) if len(parts) == TOKEN_PARTS else None
        if key is None or not parts[2].isdigit():
            return False
        expiry = int(parts[2])
        # Compare the whole text: a different spelling of the same numbers, such as 0123 for 123, is not the same token.
        if not hmac.compare_digest(token, _written(key, ids, expiry)):
            return False
        self._remember(token, ids, expiry)
        return expiry * 1000 > now

    def _remember(self, token: str, ids: CallbackIds, expiry: int) -> None:
        if len(self._genuine) >= GENUINE_MAX:
            self._genuine.clear()
        self._genuine[token] = (ids, expiry)


def _written(key: CallbackKey, ids: CallbackIds, expiry: int) -> str:
    return f"v1.{key.id}.{expiry}.{_signature(key, ids, expiry)}"


def _signature(key: CallbackKey, ids: CallbackIds, expiry: int) -> str:
    # None of these ids can contain a newline, so no two sets of ids give the same text.
    return signed(key, f"{ids.tenant_id}\n{ids.job_id}\n{ids.step_id}\n{ids.attempt_no}\n{ids.lease_id}\n{expiry}")


def signed(key: CallbackKey, text: str) -> str:
    mac = _keyed(key.secret).copy()
    mac.update(text.encode("utf-8", "surrogatepass"))
    return urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()


@lru_cache(maxsize=64)
def _keyed(secret: bytes) -> hmac.HMAC:
    """A signature that has taken in its key and nothing else, to be copied: that is half of the work."""
    return hmac.new(secret, digestmod="sha256")

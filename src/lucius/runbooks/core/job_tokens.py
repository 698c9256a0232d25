"""Job tokens prove that a result comes from a worker that received the job. Job ids can be guessed.

A token is `j1.<key id>.<signature>` and travels in the job's `correlationData`, which the worker sends back. It is
derived from the job, its worker and its batch, so nothing is stored to check it. It has no expiry: it becomes useless
when its job is no longer the step's newest.
"""

from __future__ import annotations

import hmac

from lucius.domain.callbacks import CallbackKey, signed

TOKEN_CHARS_MAX = 200
MINTED_MAX = 20_000
"""Tokens that are remembered: whoever sends a job mostly gets its result, and need not sign twice."""


class JobTokens:
    """Mints with the first key and verifies with all of them, so that keys can rotate."""

    def __init__(self, keys: tuple[CallbackKey, ...]) -> None:
        self.use(keys)

    def use(self, keys: tuple[CallbackKey, ...]) -> None:
        """From now on, these keys instead."""
        if not keys:
            raise ValueError("at least one key is needed")
        self.current = keys[0]
        self._keys = {key.id: key for key in keys}
        self._minted: dict[str, tuple[str, str, int]] = {}

    def mint(self, job_id: str, worker_id: str, batch_id: int) -> str:
        token = f"j1.{self.current.id}.{_signature(self.current, job_id, worker_id, batch_id)}"
        if len(self._minted) >= MINTED_MAX:
            self._minted.clear()
        self._minted[token] = (job_id, worker_id, batch_id)
        return token

    def verifies(self, token: str, job_id: str, worker_id: str, batch_id: int) -> bool:
        """Whether the token was minted for exactly this job."""
        if len(token) > TOKEN_CHARS_MAX or not token.isascii():
            return False
        minted = self._minted.get(token)
        if minted is not None:
            return minted == (job_id, worker_id, batch_id)
        version, _, rest = token.partition(".")
        key_id, _, signature = rest.partition(".")
        key = self._keys.get(key_id)
        if version != "j1" or key is None:
            return False
        return hmac.compare_digest(signature, _signature(key, job_id, worker_id, batch_id))


def _signature(key: CallbackKey, job_id: str, worker_id: str, batch_id: int) -> str:
    # The first line separates these from callback tokens, which the same keys sign.
    return signed(key, f"runbook job\n{job_id}\n{worker_id}\n{batch_id}")

"""The sentinel: the one key that readers poll, written last. It says what the other keys must add up to.

App Configuration has no transactions. A push first marks the sentinel, which keeps other pushes away and tells readers
to wait, then writes the keys, and at last writes a sentinel with the digest of all of them. Whoever reads keys that do
not match the digest has not read one state, and keeps the previous one. A sentinel that somebody sets by hand, to any
other text, has no digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

import msgspec
from msgspec import Struct

SENTINEL_TYPE = "application/json"
PUSH_SECONDS_MAX = 120.0
"""A push that takes longer has probably ended halfway."""


class SentinelText(Struct, frozen=True, omit_defaults=True):
    """What a push writes."""

    digest: str = ""
    """Of the keys when no push is under way."""
    push_id: str = ""
    pushed_at: str = ""
    pushed_by: str = ""
    summary: str = ""
    pushing_since: str = ""
    """Only while a push is under way, or after one that ended halfway."""
    halted: str = ""
    """Why a push ended halfway, if it could still say so."""

    @property
    def is_pushing(self) -> bool:
        return bool(self.pushing_since)

    def is_late(self, now: datetime) -> bool:
        """Whether the push that is under way has probably ended halfway."""
        try:
            seconds = (now - datetime.fromisoformat(self.pushing_since)).total_seconds()
        except (ValueError, TypeError):
            return True
        return seconds >= PUSH_SECONDS_MAX

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


class Sentinel(Struct, frozen=True):
    etag: str
    """Empty if there is no sentinel."""
    text: SentinelText


def read_sentinel(value: str | None) -> SentinelText:
    try:
        return msgspec.json.decode(value or "", type=SentinelText)
    except (msgspec.MsgspecError, ValueError):
        return SentinelText()


def digest_of(values: Mapping[str, str]) -> str:
    """Of all values by key."""
    return sha256(msgspec.json.encode(sorted(values.items()))).hexdigest()

"""Redaction: removes credentials from every line before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable

REDACTED = "[redacted]"
SECRET_CHARS_MIN = 8
"""Shorter values are not treated as secrets; removing them would garble the log."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Callback tokens: v1.<key id>.<expiry>.<signature>.
    (re.compile(r"\bv1\.[^\s.\"']{1,128}\.[0-9]{1,20}\.[A-Za-z0-9_-]+"), f"v1.{REDACTED}"),
    # Tokens of runbook jobs: j1.<key id>.<signature>.
    (re.compile(r"\bj1\.[^\s.\"']{1,128}\.[A-Za-z0-9_-]{16,}"), f"j1.{REDACTED}"),
    # The value of an Authorization header, as text, as JSON, as a mapping or as pairs of bytes.
    (
        re.compile(
            r"(authorization[\"']?\s{0,4}[:=,]\s{0,4}(?:b?[\"'])?)(?:(?:bearer|basic|digest)\s+)?[^\s\"',;)}\]]+",
            re.IGNORECASE,
        ),
        rf"\g<1>{REDACTED}",
    ),
    (re.compile(r"\b(bearer)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\g<1> {REDACTED}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), REDACTED),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), f"whsec_{REDACTED}"),
    # The user name and password in an address, such as that of a database.
    (re.compile(r"://[^\s/@:?#]{0,256}:[^\s/@]{1,256}@"), f"://{REDACTED}@"),
)


class Redactor:
    """Removes whatever looks like a credential, and the given secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        self._secrets.update(secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN)
        known = sorted(self._secrets, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

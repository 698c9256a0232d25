"""Who may call: HMAC signatures with an access key, as App Configuration checks them, or a bearer token."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from lucius.testing.appconfig.key_values import Refusal
from lucius.testing.http_server import Request

SKEW_SECONDS_MAX = 900.0
SIGNED_HEADERS = ("x-ms-date", "host", "x-ms-content-sha256")
KEY_ID_DEFAULT = "lucius"
SECRET_DEFAULT = base64.b64encode(b"for tests on this machine only").decode()
_DATE_FORMS = ("%b, %d %Y %H:%M:%S.%f GMT", "%a, %d %b %Y %H:%M:%S GMT")


@dataclass(frozen=True, slots=True)
class AccessKey:
    id: str = KEY_ID_DEFAULT
    secret: str = SECRET_DEFAULT
    """Base64."""


class SignatureChecker:
    def __init__(self, access_key: AccessKey, clock: Callable[[], float], accepts_tokens: bool) -> None:
        self.access_key = access_key
        self._clock = clock
        self._accepts_tokens = accepts_tokens

    def check(self, request: Request) -> None:
        """Raises `Refusal` with 401."""
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        if scheme == "Bearer" and self._accepts_tokens and rest:
            return
        if scheme != "HMAC-SHA256":
            raise _refused("a signature with an access key is needed")
        parts = dict(part.partition("=")[::2] for part in rest.split("&"))
        if parts.get("Credential") != self.access_key.id:
            raise _refused("Invalid Credential")
        if parts.get("SignedHeaders", "").lower().split(";") != list(SIGNED_HEADERS):
            raise _refused(f"SignedHeaders must be {';'.join(SIGNED_HEADERS)}")
        self._check_date(request.headers.get("x-ms-date", ""))
        digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
        if request.headers.get("x-ms-content-sha256") != digest:
            raise _refused("Invalid content hash")
        if not any(hmac.compare_digest(parts.get("Signature", ""), one) for one in self._signatures(request)):
            raise _refused("Invalid Signature")

    def _signatures(self, request: Request) -> list[str]:
        """Of the target as it was sent, and as it reads decoded: clients differ in which of them they sign."""
        values = ";".join(request.headers.get(name, "") for name in SIGNED_HEADERS)
        secret = base64.b64decode(self.access_key.secret)
        found = []
        for target in (request.target, unquote(request.target)):
            text = f"{request.method}\n{target}\n{values}".encode()
            found.append(base64.b64encode(hmac.new(secret, text, hashlib.sha256).digest()).decode())
        return found

    def _check_date(self, text: str) -> None:
        for form in _DATE_FORMS:
            try:
                sent_at = datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue
            if abs(sent_at - self._clock()) > SKEW_SECONDS_MAX:
                raise _refused("The access token has expired")
            return
        raise _refused("Invalid Date")


def _refused(why: str) -> Refusal:
    return Refusal(401, "Unauthorized", why)

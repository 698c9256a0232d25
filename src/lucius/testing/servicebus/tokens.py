"""Claims-based security: who may attach. Tokens are put on `$cbs`; SASL PLAIN with the key does instead."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from lucius.testing.servicebus.faults import Faults
from lucius.testing.servicebus.namespace import path_of
from lucius.testing.servicebus.refusals import unauthorized

SIGNATURE = "SharedAccessSignature "
BEARER = "Bearer "
KEY_NAME_DEFAULT = "RootManageSharedAccessKey"
KEY_TEXT_DEFAULT = "SAS_KEY_VALUE"


@dataclass(frozen=True, slots=True)
class SharedKey:
    name: str
    key: str


class TokenChecker:
    def __init__(self, shared_key: SharedKey | None, clock: Callable[[], float], faults: Faults) -> None:
        self.shared_key = shared_key
        """None: any key is accepted."""
        self.is_issued: Callable[[str], bool] | None = None
        """Whether a token that is no signature, such as one of Microsoft Entra ID, was issued for this namespace. None:
        any such token is accepted if any key is, and none otherwise."""
        self._clock = clock
        self._faults = faults

    def check(self, token: str) -> None:
        """Raises a refusal unless the token holds. Its text tells its kind: the SDK calls signatures `jwt` too."""
        self._faults.check_token()
        if not token.startswith(SIGNATURE):
            self._check_issued(token.removeprefix(BEARER))
            return
        fields = {name: values[0] for name, values in parse_qs(token.partition(" ")[2]).items()}
        if not {"sr", "sig", "se", "skn"} <= fields.keys() or not fields["se"].isdigit():
            raise unauthorized("MalformedToken: the token is no shared access signature.")
        if int(fields["se"]) <= self._clock():
            raise unauthorized("ExpiredToken: the token has expired.")
        if self.shared_key is not None and not self._is_signed(token, fields):
            raise unauthorized("InvalidSignature: the token has an invalid signature.")

    def _check_issued(self, token: str) -> None:
        if self.is_issued is not None:
            if not self.is_issued(token):
                raise unauthorized("InvalidIssuer: the token was not issued for this namespace.")
        elif self.shared_key is not None or not token:
            raise unauthorized("InvalidToken: only shared access signatures are accepted.")

    def accepts_plain(self, response: bytes | None) -> bool:
        """SASL PLAIN: an authorization id, the key's name and the key, parted by NUL."""
        parts = (response or b"").split(b"\x00")
        if len(parts) != 3:
            return False
        shared = self.shared_key
        return shared is None or (parts[1] == shared.name.encode() and parts[2] == shared.key.encode())

    def _is_signed(self, token: str, fields: dict[str, str]) -> bool:
        shared = self.shared_key
        if shared is None or fields["skn"] != shared.name:
            return False
        # The resource is signed as the client encoded it, and clients differ in what they encode.
        raw = dict(part.partition("=")[::2] for part in token.partition(" ")[2].split("&"))["sr"]
        signatures = (_signature(shared.key, f"{sr}\n{fields['se']}") for sr in {raw, quote(unquote(raw), safe="")})
        return any(hmac.compare_digest(signature, fields["sig"]) for signature in signatures)


def _signature(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


class Authorization:
    """What one connection may do."""

    AUDIENCES_MAX = 1_000

    def __init__(self) -> None:
        self._everything = False
        self._audiences: set[str] = set()

    def allow_everything(self) -> None:
        self._everything = True

    def allow(self, audience: str) -> None:
        if len(self._audiences) >= self.AUDIENCES_MAX:
            raise unauthorized(f"A connection holds at most {self.AUDIENCES_MAX} tokens.")
        self._audiences.add(path_of(audience))

    def forget(self) -> None:
        self._everything = False
        self._audiences.clear()

    def check(self, path: str) -> None:
        """A token for an entity holds for everything below it."""
        wanted = path_of(path)
        if self._everything or any(
            not held or wanted == held or wanted.startswith(held + "/") for held in self._audiences
        ):
            return
        raise unauthorized(f"Unauthorized access: no token was put for '{path}'. Put one on $cbs first.")

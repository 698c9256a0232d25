"""Every kind of credential that a caller may try: keys by role and tenant, limited keys, tokens good and bad."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ROLES = ("submit", "read", "work", "operate", "admin")
ISSUER, AUDIENCE = "https://issuer.example/", "lucius"
OWN, RIVAL = "acme", "rival"


class Credential(NamedTuple):
    name: str
    header: str | None
    roles: frozenset[str] | None = None
    """None: it authenticates nobody."""
    tenants: frozenset[str] | None = None
    """None: all of them."""
    services: frozenset[str] | None = None
    worker_ids: frozenset[str] | None = None

    def may(self, role: str) -> bool:
        return self.roles is not None and (role in self.roles or "admin" in self.roles)

    def is_limited(self) -> bool:
        return self.services is not None or self.worker_ids is not None


class Issuer:
    """A token issuer, with a key that its key set names and one that it does not."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._other_key = ec.generate_private_key(ec.SECP256R1())

    def key_set(self) -> str:
        jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return json.dumps({"keys": [jwk | {"kid": "1", "use": "sig", "alg": "ES256"}]})

    def claims(self, **changes: Any) -> dict[str, Any]:
        base = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3_600, "sub": "ann"}
        return {name: value for name, value in (base | changes).items() if value is not None}

    def token(self, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        return jwt.encode(self.claims(**changes), self._key, "ES256", {"kid": "1"} | (headers or {}))

    def bad_tokens(self) -> dict[str, str]:
        everything: dict[str, Any] = {"tenants": ["*"], "roles": list(ROLES)}
        good = self.token(**everything)
        head, body, signature = good.split(".")
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return {
            "expired": self.token(exp=int(time.time()) - 3_600, **everything),
            "not yet valid": self.token(nbf=int(time.time()) + 3_600, **everything),
            "for another audience": self.token(aud="other", **everything),
            "from another issuer": self.token(iss="https://other.example/", **everything),
            "without an end": self.token(exp=None, **everything),
            "of an unknown key": jwt.encode(self.claims(**everything), self._other_key, "ES256", {"kid": "2"}),
            "of another key under this name": jwt.encode(
                self.claims(**everything), self._other_key, "ES256", {"kid": "1"}
            ),
            "unsigned": jwt.encode(self.claims(**everything), None, "none", {"kid": "1"}),
            "signed with the public key": _hmac_token(self.claims(**everything), public),
            "cut": f"{head}.{body}.{signature[:-4]}",
            "with other claims": f"{head}.{_encoded({**self.claims(**everything), 'sub': 'eve'})}.{signature}",
            "with an empty signature": f"{head}.{body}.",
        }


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _hmac_token(claims: dict[str, Any], secret: bytes) -> str:
    """The algorithm-confusion attack; the library refuses to make such a token, so it is made by hand."""
    import hmac

    text = f"{_encoded({'alg': 'HS256', 'kid': '1', 'typ': 'JWT'})}.{_encoded(claims)}"
    digest = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _key(name: str) -> str:
    return f"lk_{name.replace(' ', '_')}_0123456789"


def write_credentials(folder: Path) -> tuple[dict[str, str], list[Credential]]:
    """The settings that know these credentials, and the credentials."""
    found: list[Credential] = []
    entries: list[dict[str, Any]] = []

    def add_key(name: str, tenants: str | list[str], roles: list[str], **limits: list[str]) -> None:
        digest = hashlib.sha256(_key(name).encode()).hexdigest()
        entries.append({"name": name, "sha256": digest, "tenants": tenants, "roles": roles, **limits})
        found.append(
            Credential(
                f"key {name}", f"Bearer {_key(name)}", frozenset(roles),
                None if tenants == "*" else frozenset(tenants),
                **{field: frozenset(values) for field, values in limits.items()},
            )
        )  # fmt: skip

    for role in ROLES:
        add_key(f"{role} everywhere", "*", [role])
        add_key(f"{role} at {OWN}", [OWN], [role])
        add_key(f"{role} at {RIVAL}", [RIVAL], [role])
    add_key("all roles at two", [OWN, "third"], list(ROLES))
    add_key("work for ocr only", "*", ["work"], services=["ocr"])
    add_key("work for sis only", "*", ["work"], services=["sis"])
    add_key("work for exchange only", "*", ["work"], worker_ids=["exchange"])
    add_key("work for another worker only", "*", ["work"], worker_ids=["other"])

    issuer = Issuer()
    for role in ROLES:
        for tenants in (["*"], [OWN], [RIVAL]):
            found.append(
                Credential(
                    f"token {role} at {tenants[0]}", f"Bearer {issuer.token(tenants=tenants, roles=[role])}",
                    frozenset([role]), None if tenants == ["*"] else frozenset(tenants),
                )
            )  # fmt: skip
    found.append(
        Credential("token without claims", f"Bearer {issuer.token()}", frozenset(), frozenset()),
    )
    found += [Credential(f"token {name}", f"Bearer {text}") for name, text in issuer.bad_tokens().items()]
    known = _key("admin everywhere")
    found += [
        Credential("nothing", None),
        Credential("an empty header", ""),
        Credential("an unknown key", "Bearer lk_unknown"),
        Credential("a key in other letters", f"Bearer {known.upper()}"),
        Credential("a key with more behind it", f"Bearer {known} x"),
        Credential("a key as a password", "Basic " + base64.b64encode(f"lucius:{known}".encode()).decode()),
        Credential("a key without its scheme", known),
        Credential("half a key", f"Bearer {known[:-1]}"),
    ]
    (folder / "keys.yaml").write_text(json.dumps(entries))  # JSON is YAML.
    (folder / "jwks.json").write_text(issuer.key_set())
    settings = {
        "LUCIUS_API_KEYS_FILE": str(folder / "keys.yaml"),
        "LUCIUS_JWT_ISSUER": ISSUER,
        "LUCIUS_JWT_AUDIENCE": AUDIENCE,
        "LUCIUS_JWKS_URL": str(folder / "jwks.json"),
    }
    return settings, found

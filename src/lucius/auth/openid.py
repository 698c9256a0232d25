"""Signing people in with OpenID Connect: the authorization code flow with PKCE.

A person's roles and tenants are read from the ID token, from the claims that tokens of the API have, and the ID token
is verified as those are. Nothing else of the issuer's answer is used or kept.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from lucius.auth.issuer_http import FETCH_ERRORS, fetch
from lucius.auth.jwks import Jwks
from lucius.auth.jwt import NAME_CHARS_MAX, TokenVerifier, principal_of, token_rules, unauthenticated
from lucius.auth.openid_discovery import Discovery, Endpoints
from lucius.auth.principal import Principal
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.settings import Settings, SettingsError

CODE_CHARS_MAX = 4_096
CLIENT_CHARS_MAX = 512
EXCHANGES_MAX = 8
"""Codes that are exchanged at the same time; whoever comes then is asked to try again."""
RETRY_AFTER_SECONDS = 2.0
OPENID_SCOPE = "openid"

_SCOPE = re.compile(r"[!#-\[\]-~]{1,128}")
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
_NAMES = ("preferred_username", "email", "name")

log = logging.getLogger("lucius.auth")


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt to sign in, which the browser keeps until it comes back from the issuer."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Attempt:
        return cls(state=secrets.token_urlsafe(32), nonce=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(48))


class Person(Struct, frozen=True, kw_only=True):
    """Whom the issuer signed in."""

    principal: Principal
    identity: str
    """Names the person forever: the SHA-256, in hex, of issuer, client and subject."""
    label: str
    """For the person's own eyes; not a name to rely on."""
    expires_at: int
    """In seconds since 1970."""


class OpenIdConnect:
    """Raises `SettingsError`."""

    def __init__(
        self,
        settings: Settings,
        redirect_uri: str,
        client_secret: Callable[[], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client_secret` returns the newest one; empty for a public client."""
        if not 0 < len(settings.oidc_client_id) <= CLIENT_CHARS_MAX or not settings.oidc_client_id.isprintable():
            raise SettingsError(
                f"LUCIUS_OIDC_CLIENT_ID must have 1 to {CLIENT_CHARS_MAX} printable characters: it is the id that"
                " LUCIUS is registered with at the issuer"
            )
        if not all(map(_SCOPE.fullmatch, settings.oidc_scopes)):
            raise SettingsError("LUCIUS_OIDC_SCOPES must be scopes with commas between them, such as openid,profile")
        self.issuer = settings.oidc_issuer
        self.redirect_uri = redirect_uri
        self.client_id = settings.oidc_client_id
        self._client_secret = client_secret
        self._scopes = " ".join(dict.fromkeys((OPENID_SCOPE, *settings.oidc_scopes)))
        self._rules = token_rules(settings, self.issuer, self.client_id)
        self._monotonic = monotonic
        self._discovery = Discovery(self.issuer, monotonic)
        self._verifier: tuple[str, TokenVerifier] | None = None
        self._exchanges = 0

    async def address(self, attempt: Attempt) -> str:
        """Where the browser goes to sign in. Raises `InfrastructureError`."""
        endpoints = await self._discovery.endpoints()
        challenge = hashlib.sha256(attempt.verifier.encode()).digest()
        return _with_query(
            endpoints.authorization,
            response_type="code", client_id=self.client_id, redirect_uri=self.redirect_uri, scope=self._scopes,
            state=attempt.state, nonce=attempt.nonce, code_challenge_method="S256",
            code_challenge=base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
        )  # fmt: skip

    async def sign_out_address(self, return_to: str) -> str | None:
        """Where people sign out of the issuer too; None if it has no such page, or does not answer."""
        try:
            endpoints = await self._discovery.endpoints()
        except InfrastructureError:
            return None
        if endpoints.end_session is None:
            return None
        return _with_query(endpoints.end_session, client_id=self.client_id, post_logout_redirect_uri=return_to)

    async def sign_in(self, attempt: Attempt, answer: dict[str, str]) -> Person:
        """Whom the issuer's answer, the query of the redirect address, is about. Raises `CallerError`, whose detail is
        for that person, or `InfrastructureError`."""
        sent = answer.get("state", "")
        if not hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), attempt.state.encode()):
            raise unauthenticated("this answer belongs to another attempt to sign in; sign in again")
        endpoints = await self._discovery.endpoints()
        if answer.get("iss", None if endpoints.names_itself else self.issuer) != self.issuer:
            raise unauthenticated("this answer is not from the issuer that is configured; sign in again")
        if "error" in answer:
            raise unauthenticated(f"the issuer did not sign you in: {_code(answer['error'])}")
        code = answer.get("code", "")
        if not 0 < len(code) <= CODE_CHARS_MAX:
            raise unauthenticated("the issuer's answer contains no code; sign in again")
        return self._person(await self._claims(endpoints, await self._exchange(endpoints, code, attempt)), attempt)

    async def _exchange(self, endpoints: Endpoints, code: str, attempt: Attempt) -> str:
        """The ID token for a code."""
        if self._exchanges >= EXCHANGES_MAX:
            detail = "too many people sign in at this moment; sign in again"
            raise CallerError.of("RATE_LIMITED", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier, "client_id": self.client_id,
        }  # fmt: skip
        headers = {}
        secret = self._client_secret()
        if secret and endpoints.uses_basic:
            pair = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif secret:
            form["client_secret"] = secret
        self._exchanges += 1
        try:
            status, content = await fetch(endpoints.token, form, headers)
        except FETCH_ERRORS as error:
            log.warning("the OpenID Connect issuer gave no token: %s: %s", type(error).__name__, error)
            raise InfrastructureError.unavailable("the issuer does not answer; sign in again in a moment") from None
        finally:
            self._exchanges -= 1
        return self._id_token(status, content)

    def _id_token(self, status: int, content: bytes) -> str:
        try:
            answer: Any = msgspec.json.decode(content)
        except msgspec.DecodeError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        if status >= 500:
            raise InfrastructureError.unavailable(f"the issuer answered {status}; sign in again in a moment")
        if status != 200:
            reason = _code(answer.get("error"))
            log.warning("the OpenID Connect issuer refused a code: %s %s", status, reason)
            raise unauthenticated(f"the issuer refused this sign-in ({reason}); sign in again")
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise unauthenticated("the issuer gave no ID token; LUCIUS must be registered there for OpenID Connect")
        return token

    async def _claims(self, endpoints: Endpoints, token: str) -> dict[str, Any]:
        if self._verifier is None or self._verifier[0] != endpoints.jwks:
            jwks = Jwks(endpoints.jwks, self._monotonic, "LUCIUS_OIDC_ISSUER")
            self._verifier = endpoints.jwks, TokenVerifier(self._rules, jwks)
        return await self._verifier[1].claims(token)

    def _person(self, claims: dict[str, Any], attempt: Attempt) -> Person:
        nonce, subject, audience = claims.get("nonce"), claims.get("sub"), claims["aud"]
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), attempt.nonce.encode()):
            raise unauthenticated("the ID token belongs to another attempt to sign in; sign in again")
        if not isinstance(subject, str) or not subject:
            raise unauthenticated("the ID token does not say who you are: it lacks the claim sub")
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self.client_id:
            raise unauthenticated("the ID token is for another audience; sign in again")
        principal = principal_of(claims, self._rules, "oidc")
        label = next((claims[name] for name in _NAMES if isinstance(claims.get(name), str) and claims[name]), subject)
        self._check_rights(principal, label)
        identity = hashlib.sha256("\n".join(("oidc", self.issuer, self.client_id, subject)).encode()).hexdigest()
        shown = "".join(character for character in label if character.isprintable())[:NAME_CHARS_MAX]
        return Person(principal=principal, identity=identity, label=shown, expires_at=int(claims["exp"]))

    def _check_rights(self, principal: Principal, label: str) -> None:
        rules = self._rules
        if not principal.may("read"):
            raise CallerError.of(
                "FORBIDDEN",
                f"you are signed in at the issuer as {label[:NAME_CHARS_MAX]}, but without a role in LUCIUS: the claim"
                f" {rules.roles_claim} of your ID token must list read. Ask whoever manages access to LUCIUS",
            )
        if principal.tenants is not None and not principal.tenants:
            raise CallerError.of(
                "FORBIDDEN",
                f"you are signed in at the issuer as {label[:NAME_CHARS_MAX]}, but without a tenant: the claim"
                f" {rules.tenants_claim} of your ID token must list them, or *. Ask whoever manages access to LUCIUS",
            )


def _with_query(url: str, **parameters: str) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in (parts.query, urlencode(parameters)) if part)
    return urlunsplit(parts._replace(query=query))


def _code(value: Any) -> str:
    """An error code of OAuth; what an issuer or an attacker says beyond that is not repeated."""
    return value if isinstance(value, str) and _ERROR_CODE.fullmatch(value) else "no reason given"

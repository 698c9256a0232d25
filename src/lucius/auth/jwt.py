"""Bearer tokens of an OpenID Connect issuer such as Entra ID, verified against the issuer's published keys."""

from __future__ import annotations

from typing import Any

import jwt
from msgspec import Struct

from lucius.auth.jwks import ALGORITHMS, Jwks
from lucius.auth.principal import ROLES, Principal
from lucius.domain.errors import CallerError
from lucius.domain.routing import normal_form
from lucius.settings import Settings

LEEWAY_SECONDS = 30
TOKEN_CHARS_MAX = 16_384
NAME_CHARS_MAX = 128
CLAIM_ITEMS_MAX = 1_000

_NAMES = ("sub", "client_id", "azp", "appid")
_TOKEN_FAULTS = (
    jwt.PyJWTError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Any of these errors while parsing a token means that the token is invalid."""


class TokenRules(Struct, frozen=True, kw_only=True):
    """What a token must contain, and which of its claims are read."""

    issuer: str
    audience: str
    tenants_claim: str
    roles_claim: str
    services_claim: str
    worker_ids_claim: str
    """Either may be empty; if both are, tokens are not limited to services and workers."""


def token_rules(settings: Settings, issuer: str, audience: str) -> TokenRules:
    return TokenRules(
        issuer=issuer,
        audience=audience,
        tenants_claim=settings.jwt_tenants_claim,
        roles_claim=settings.jwt_roles_claim,
        services_claim=settings.jwt_services_claim,
        worker_ids_claim=settings.jwt_worker_ids_claim,
    )


def unauthenticated(detail: str) -> CallerError:
    return CallerError.of("UNAUTHENTICATED", detail)


class TokenVerifier:
    def __init__(self, rules: TokenRules, jwks: Jwks) -> None:
        self._rules = rules
        self._jwks = jwks

    @property
    def problem(self) -> str | None:
        return self._jwks.problem

    async def fetch_keys(self) -> None:
        """Raises `InfrastructureError`."""
        await self._jwks.key(None)

    async def verify(self, token: str) -> Principal:
        """The token's principal. Raises `CallerError`, or `InfrastructureError` if the keys cannot be fetched."""
        return principal_of(await self.claims(token), self._rules)

    async def claims(self, token: str) -> dict[str, Any]:
        """What a valid token says. Raises as `verify` does."""
        if len(token) > TOKEN_CHARS_MAX:
            raise unauthenticated(
                f"the token has more than {TOKEN_CHARS_MAX} characters; request one with fewer claims"
            )
        algorithm, kid = _header(token)
        key = await self._jwks.key(kid)
        if key is None:
            raise unauthenticated("the token is signed with a key that its issuer does not publish; get a new token")
        verifying = key.by_algorithm.get(algorithm)
        if verifying is None:
            raise unauthenticated("the token's key may not be used with the token's alg; get a new token")
        return self._decoded(token, algorithm, verifying)

    def _decoded(self, token: str, algorithm: str, key: jwt.PyJWK) -> dict[str, Any]:
        rules = self._rules
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=rules.audience,
                issuer=rules.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise unauthenticated("the token has expired; get a new one") from None
        except jwt.ImmatureSignatureError:
            raise unauthenticated("the token is not valid yet; check the clocks of its issuer and of LUCIUS") from None
        except jwt.InvalidAudienceError:
            raise unauthenticated("the token is for another audience; request one for this API") from None
        except jwt.InvalidIssuerError:
            raise unauthenticated("the token is from an issuer that is not trusted here") from None
        except jwt.MissingRequiredClaimError as error:
            raise unauthenticated(f"the token lacks the claim {error.claim}") from None
        except _TOKEN_FAULTS:
            raise unauthenticated("the token's signature or form is not valid; get a new one") from None


def _header(token: str) -> tuple[str, str | None]:
    try:
        header = jwt.get_unverified_header(token)
    except _TOKEN_FAULTS:
        raise unauthenticated("the token is not a signed JSON Web Token") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise unauthenticated(f"the token's alg is not accepted; use {', '.join(ALGORITHMS)}")
    if kid is not None and not isinstance(kid, str):
        raise unauthenticated("the token's kid is not a string")
    return algorithm, kid


def principal_of(claims: dict[str, Any], rules: TokenRules, kind: str = "jwt") -> Principal:
    """`kind`: the prefix of the principal's name."""
    # A tenant id may contain spaces, so a string is one tenant; a role cannot, so a string may list several.
    tenants = _strings(claims.get(rules.tenants_claim))
    roles = [role for text in _strings(claims.get(rules.roles_claim)) for role in text.split()]
    name = next((claims[claim] for claim in _NAMES if isinstance(claims.get(claim), str) and claims[claim]), "token")
    printable = "".join(character for character in name if character.isprintable())
    return Principal(
        f"{kind}:{printable[:NAME_CHARS_MAX] or 'token'}",
        None if "*" in tenants else frozenset(map(normal_form, tenants)),
        ROLES.intersection(roles),
        _limit(claims, rules.services_claim, rules),
        _limit(claims, rules.worker_ids_claim, rules),
    )


def _limit(claims: dict[str, Any], claim: str, rules: TokenRules) -> frozenset[str] | None:
    if not rules.services_claim and not rules.worker_ids_claim:
        return None
    named = {name for text in _strings(claims.get(claim)) for name in text.split()} if claim else set()
    return None if "*" in named else frozenset(named)


def _strings(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return [claim]
    if not isinstance(claim, list):
        return []
    if len(claim) > CLAIM_ITEMS_MAX:
        raise unauthenticated(f"a claim of the token lists more than {CLAIM_ITEMS_MAX} items")
    return [item for item in claim if isinstance(item, str)]

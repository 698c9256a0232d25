"""Bearer tokens, against a real HTTP server that publishes the issuer's keys."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from lucius.auth import Authenticator, Principal
from lucius.auth.jwks import FRESH_SECONDS, REFETCH_SECONDS, STALE_SECONDS_MAX, Jwks, read_jwks
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.settings import Settings, SettingsError

ISSUER, AUDIENCE = "https://issuer.example/", "api://lucius"
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
OTHER_RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def jwk_of(key: Any, kid: str | None, **fields: Any) -> dict[str, Any]:
    kind: Any = OKPAlgorithm
    if isinstance(key, rsa.RSAPrivateKey):
        kind = RSAAlgorithm
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        kind = ECAlgorithm
    document: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    document.pop("key_ops", None)
    return {**document, **({"kid": kid} if kid else {}), **fields}


def token(key: Any = RSA_KEY, alg: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": now + 300,
        "nbf": now - 5,
        "sub": "client-7",
        "tenants": ["Acme"],
        "roles": ["submit", "read"],
        **changes,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, alg, headers={"kid": kid} if kid else None)


class Issuer:
    """A server of a key set, with a count of how often it was asked."""

    def __init__(self) -> None:
        self.keys = [jwk_of(RSA_KEY, "rsa"), jwk_of(EC_KEY, "ec"), jwk_of(ED_KEY, "ed")]
        self.asked = 0
        self.status = 200
        self.body: bytes | None = None
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        body = self.body if self.body is not None else json.dumps({"keys": self.keys}).encode()
        return web.Response(status=self.status, body=body, headers={"Location": "/elsewhere"})


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/keys", issuer.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    yield issuer
    await runner.cleanup()


@pytest.fixture
def authenticator(issuer: Issuer) -> Authenticator:
    return Authenticator(settings_for(issuer.url))


def settings_for(url: str, **changes: Any) -> Settings:
    return Settings(jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwks_url=url, **changes)


async def refusal(authenticator: Authenticator, credential: str) -> CallerError:
    with pytest.raises(CallerError) as caught:
        await authenticator.authenticate(f"Bearer {credential}")
    assert caught.value.code == "UNAUTHENTICATED"
    assert credential not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("key", "alg", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (RSA_KEY, "PS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
)
async def test_a_good_token_is_accepted(authenticator: Authenticator, key: Any, alg: str, kid: str) -> None:
    header = f"Bearer {token(key, alg, kid)}"
    assert authenticator.known(header) is None, "tokens end, so the fast path leaves them alone"
    principal = await authenticator.authenticate(header)
    assert principal == Principal("jwt:client-7", frozenset({"acme"}), frozenset({"submit", "read"}))


@pytest.mark.parametrize(
    ("claims", "tenants", "roles"),
    [
        ({"roles": "read submit unknown"}, {"acme"}, {"read", "submit"}),
        ({"tenants": "*"}, None, {"read", "submit"}),
        ({"tenants": ["x", "*"]}, None, {"read", "submit"}),
        ({"tenants": "Two Words"}, {"two words"}, {"read", "submit"}),
        ({"tenants": None, "roles": None}, set(), set()),
        ({"tenants": {"a": 1}, "roles": 7}, set(), set()),
        ({"tenants": [1, None, "a"], "roles": [["admin"], "read"]}, {"a"}, {"read"}),
    ],
)
async def test_claims_are_read_leniently_and_never_widened(
    authenticator: Authenticator, claims: dict[str, Any], tenants: set[str] | None, roles: set[str]
) -> None:
    principal = await authenticator.authenticate(f"Bearer {token(**claims)}")
    assert principal.tenants == tenants
    assert principal.roles == roles


async def test_claims_are_found_under_the_names_of_the_settings(issuer: Issuer) -> None:
    settings = settings_for(issuer.url, jwt_tenants_claim="https://x.example/t", jwt_roles_claim="scp")
    claims: dict[str, Any] = {"https://x.example/t": ["globex"], "scp": "operate", "sub": None, "azp": "app-1"}
    credential = token(**claims)
    principal = await Authenticator(settings).authenticate(f"Bearer {credential}")
    assert principal == Principal("jwt:app-1", frozenset({"globex"}), frozenset({"operate"}))


@pytest.mark.parametrize(
    ("settings", "claims", "services", "worker_ids"),
    [
        ({}, {"svc": "ocr"}, None, None),
        ({"jwt_services_claim": "svc", "jwt_worker_ids_claim": "wrk"}, {}, set(), set()),
        ({"jwt_services_claim": "svc"}, {"svc": ["ocr", "sis"], "wrk": "exchange"}, {"ocr", "sis"}, set()),
        ({"jwt_worker_ids_claim": "wrk"}, {"svc": ["ocr"], "wrk": "exchange teams"}, set(), {"exchange", "teams"}),
        ({"jwt_services_claim": "svc", "jwt_worker_ids_claim": "wrk"}, {"svc": "*", "wrk": [7]}, None, set()),
    ],
)
async def test_tokens_may_be_limited_to_services_and_workers(
    issuer: Issuer, settings: dict[str, str], claims: dict[str, Any], services: Any, worker_ids: Any
) -> None:
    authenticator = Authenticator(settings_for(issuer.url, **settings))
    principal = await authenticator.authenticate(f"Bearer {token(**claims)}")
    assert (principal.services, principal.worker_ids) == (services, worker_ids)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"nbf": int(time.time()) + 3_600}, "not valid yet"),
        ({"aud": "api://other"}, "audience"),
        ({"aud": ["a", "b"]}, "audience"),
        ({"iss": "https://evil.example/"}, "issuer"),
        ({"iss": ISSUER.rstrip("/")}, "issuer"),
        ({"exp": None}, "lacks the claim exp"),
        ({"iss": None}, "lacks the claim iss"),
        ({"aud": None}, "lacks the claim aud"),
        ({"exp": "soon"}, "not valid"),
        ({"tenants": ["t"] * 2_000}, "lists more than"),
    ],
)
async def test_a_token_with_wrong_claims_is_refused(
    authenticator: Authenticator, changes: dict[str, Any], says: str
) -> None:
    assert says in (await refusal(authenticator, token(**changes))).detail


async def test_clocks_may_differ_by_half_a_minute(authenticator: Authenticator) -> None:
    now = int(time.time())
    await authenticator.authenticate(f"Bearer {token(exp=now - 20, nbf=now - 500)}")
    await authenticator.authenticate(f"Bearer {token(nbf=now + 20)}")


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def forged(header: dict[str, Any], claims: dict[str, Any] | None = None, signature: bytes = b"") -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300, "roles": ["admin"], **(claims or {})}
    encoded = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    return f"{part(header)}.{part(claims)}.{encoded}"


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 7])
async def test_an_unsigned_token_is_refused(authenticator: Authenticator, alg: Any) -> None:
    await refusal(authenticator, forged({"alg": alg, "kid": "rsa", "typ": "JWT"}))


@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
async def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_refused(
    authenticator: Authenticator, form: str
) -> None:
    public = RSA_KEY.public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(jwk_of(RSA_KEY, "rsa")).encode(),
    }[form]
    unsigned = forged({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(secret, unsigned.encode(), "sha256")).rstrip(b"=").decode()
    await refusal(authenticator, f"{unsigned}.{signature}")


async def test_a_key_verifies_only_its_own_algorithms(issuer: Issuer, authenticator: Authenticator) -> None:
    await refusal(authenticator, token(EC_KEY, "ES256", "rsa"))
    await refusal(authenticator, token(RSA_KEY, "RS256", "ec"))
    await refusal(authenticator, token(RSA_KEY, "RS512", "rsa"))
    issuer.keys = [jwk_of(RSA_KEY, "pinned", alg="PS256")]
    fresh = Authenticator(settings_for(issuer.url))
    await fresh.authenticate(f"Bearer {token(RSA_KEY, 'PS256', 'pinned')}")
    await refusal(fresh, token(RSA_KEY, "RS256", "pinned"))


@pytest.mark.parametrize(
    "credential",
    [
        "a.b.c",
        "..",
        "e30.e30.e30",
        forged({"alg": "RS256", "kid": 7}),
        forged({"alg": "RS256", "kid": "rsa"}, {}, b"x" * 256),
    ],
)
async def test_nonsense_is_refused(authenticator: Authenticator, credential: str) -> None:
    await refusal(authenticator, credential)


async def test_deep_and_huge_tokens_are_refused(authenticator: Authenticator) -> None:
    nested = base64.urlsafe_b64encode(b"[" * 9_000).decode()
    await refusal(authenticator, f"{nested}.e30.e30")
    await refusal(authenticator, f"{part({'alg': 'RS256', 'kid': 'rsa'})}.{nested[:9_000]}.e30")
    assert "more than" in (await refusal(authenticator, token(filler="x" * 13_000))).detail


async def test_a_tampered_token_is_refused(authenticator: Authenticator) -> None:
    header, _, signature = token().split(".")
    claims = part({"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300, "roles": ["admin"], "tenants": "*"})
    await refusal(authenticator, f"{header}.{claims}.{signature}")
    await refusal(authenticator, token(OTHER_RSA_KEY))


async def test_a_key_in_the_token_itself_is_never_used(authenticator: Authenticator) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    headers = {"kid": "rsa", "jwk": jwk_of(OTHER_RSA_KEY, "rsa"), "jku": "https://evil.example/keys"}
    await refusal(authenticator, jwt.encode(claims, OTHER_RSA_KEY, "RS256", headers=headers))


async def test_a_token_without_kid_needs_a_set_with_one_key(issuer: Issuer, authenticator: Authenticator) -> None:
    await refusal(authenticator, token(kid=None))
    issuer.keys = [jwk_of(RSA_KEY, None)]
    await Authenticator(settings_for(issuer.url)).authenticate(f"Bearer {token(kid=None)}")


class Ticks:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_keys_are_kept_and_unknown_ones_asked_for_rarely(issuer: Issuer) -> None:
    ticks = Ticks()
    jwks = Jwks(issuer.url, ticks)
    for _ in range(5):
        assert await jwks.key("rsa") is not None
    assert issuer.asked == 1
    for _ in range(5):
        assert await jwks.key("made-up") is None
    assert issuer.asked == 1, "asked less than ten seconds ago"
    ticks.now += REFETCH_SECONDS
    for _ in range(5):
        assert await jwks.key("made-up") is None
    assert issuer.asked == 2


async def test_a_rotated_key_is_found_and_the_old_one_forgotten(issuer: Issuer) -> None:
    ticks = Ticks()
    jwks = Jwks(issuer.url, ticks)
    assert await jwks.key("rsa") is not None
    issuer.keys = [jwk_of(OTHER_RSA_KEY, "rsa-2")]
    ticks.now += REFETCH_SECONDS
    assert await jwks.key("rsa-2") is not None
    assert await jwks.key("rsa") is None
    assert issuer.asked == 2


async def test_rotation_reaches_a_caller(issuer: Issuer) -> None:
    ticks = Ticks()
    authenticator = Authenticator(settings_for(issuer.url), ticks)
    await authenticator.authenticate(f"Bearer {token()}")
    issuer.keys = [jwk_of(OTHER_RSA_KEY, "next")]
    ticks.now += REFETCH_SECONDS
    await authenticator.authenticate(f"Bearer {token(OTHER_RSA_KEY, kid='next')}")
    await refusal(authenticator, token())


async def test_an_issuer_out_of_reach_is_not_the_callers_fault(authenticator: Authenticator, issuer: Issuer) -> None:
    issuer.status = 500
    with pytest.raises(InfrastructureError) as caught:
        await authenticator.authenticate(f"Bearer {token()}")
    assert caught.value.code == "UNAVAILABLE"
    assert issuer.asked == 1
    with pytest.raises(InfrastructureError):
        await authenticator.authenticate(f"Bearer {token()}")
    assert issuer.asked == 1, "a failed fetch is not repeated at once"


async def test_known_keys_outlive_an_outage_for_a_while(issuer: Issuer) -> None:
    ticks = Ticks()
    jwks = Jwks(issuer.url, ticks)
    assert await jwks.key("rsa") is not None
    issuer.status = 503
    ticks.now += FRESH_SECONDS + 1
    assert await jwks.key("rsa") is not None
    assert issuer.asked == 2
    with pytest.raises(InfrastructureError):
        await jwks.key("unknown while out of reach")
    ticks.now += STALE_SECONDS_MAX
    with pytest.raises(InfrastructureError):
        await jwks.key("rsa")
    issuer.status = 200
    ticks.now += REFETCH_SECONDS
    assert await jwks.key("rsa") is not None


@pytest.mark.parametrize(
    ("status", "body"),
    [(302, b""), (200, b"<html>"), (200, b"[]"), (200, b'{"keys": 1}'), (200, b'{"keys": []}'), (200, b"x" * 600_000)],
)
async def test_an_answer_that_is_no_key_set_counts_as_none(issuer: Issuer, status: int, body: bytes) -> None:
    issuer.status, issuer.body = status, body
    with pytest.raises(InfrastructureError):
        await Jwks(issuer.url).key("rsa")


def test_only_signing_keys_of_sound_kinds_are_used() -> None:
    weak = rsa.generate_private_key(65_537, 1_024)
    unusable = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        jwk_of(weak, "weak"),
        jwk_of(RSA_KEY, "encryption", use="enc"),
        jwk_of(RSA_KEY, "signer", key_ops=["sign"]),
        jwk_of(RSA_KEY, "other", alg="RS512"),
        jwk_of(ec.generate_private_key(ec.SECP384R1()), "p384"),
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": ["RSA"], "kid": "odd"},
        "text",
    ]
    keys = read_jwks(json.dumps({"keys": [*unusable, jwk_of(RSA_KEY, "good")]}).encode())
    assert [key.kid for key in keys] == ["good"]
    with pytest.raises(ValueError, match="are usable"):
        read_jwks(json.dumps({"keys": unusable}).encode())


async def test_keys_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk_of(EC_KEY, "ec")]}))
    for location in (str(path), path.as_uri()):
        await Authenticator(settings_for(location)).authenticate(f"Bearer {token(EC_KEY, 'ES256', 'ec')}")


def test_half_a_configuration_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="missing: LUCIUS_JWT_AUDIENCE, LUCIUS_JWKS_URL"):
        Authenticator(Settings(jwt_issuer=ISSUER))
    with pytest.raises(SettingsError, match="LUCIUS_JWKS_URL"):
        Authenticator(settings_for("ftp://issuer.example/keys"))


async def test_api_keys_and_tokens_go_side_by_side(issuer: Issuer) -> None:
    authenticator = Authenticator(settings_for(issuer.url, api_key="dotted.key.of-the-test"))
    assert (await authenticator.authenticate("Bearer dotted.key.of-the-test")).name == "key:api-key"
    assert (await authenticator.authenticate(f"Bearer {token()}")).name == "jwt:client-7"

"""OpenID Connect against a local HTTP server that plays an issuer that is wrong, slow or elsewhere. A real issuer signs
people in in `tests/console/test_console_openid.py`."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web

from lucius.auth import issuer_http
from lucius.auth.openid import EXCHANGES_MAX, Attempt, OpenIdConnect
from lucius.auth.openid_discovery import REFETCH_SECONDS, Discovery
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.settings import Settings, SettingsError, read_settings

RETURN = "http://127.0.0.1:1/console/sign-in/openid/return"
CODE = "the code"


class PlayedIssuer:
    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self.changes: dict[str, Any] = {}
        self.status = 200
        self.body: bytes | None = None
        self.token_status, self.token_body = 400, b'{"error": "invalid_grant"}'
        self.forms: list[dict[str, list[str]]] = []
        self.authorizations: list[str | None] = []

    async def discovery(self, request: web.Request) -> web.Response:
        self.asked += 1
        document = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/auth?kept=1",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            **self.changes,
        }
        kept = {name: value for name, value in document.items() if value is not None}
        body = json.dumps(kept).encode() if self.body is None else self.body
        return web.Response(status=self.status, body=body, headers={"Location": "/elsewhere"})

    async def token(self, request: web.Request) -> web.Response:
        self.forms.append(parse_qs(await request.text()))
        self.authorizations.append(request.headers.get("Authorization"))
        return web.Response(status=self.token_status, body=self.token_body)


@pytest.fixture
async def issuer() -> AsyncIterator[PlayedIssuer]:
    issuer = PlayedIssuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.discovery)
    app.router.add_post("/token", issuer.token)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield issuer
    await runner.cleanup()


def openid(issuer: PlayedIssuer, secret: str = "", **settings: Any) -> OpenIdConnect:
    known = Settings(**{"oidc_issuer": issuer.url, "oidc_client_id": "a b", **settings})
    return OpenIdConnect(known, RETURN, lambda: secret)


async def refusal(connect: OpenIdConnect, **answer: str) -> CallerError:
    attempt = Attempt.new()
    with pytest.raises(CallerError) as caught:
        await connect.sign_in(attempt, {"state": attempt.state, "code": CODE, **answer})
    return caught.value


async def test_address_keeps_the_issuers_own_query_and_names_scopes_once(issuer: PlayedIssuer) -> None:
    connect = openid(issuer, oidc_scopes=("profile", "openid"))
    query = parse_qs(urlsplit(await connect.address(Attempt.new())).query)
    assert (query["kept"], query["scope"], query["client_id"]) == (["1"], ["openid profile"], ["a b"])
    assert await connect.sign_out_address("http://127.0.0.1:1/") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://evil.example"}, {"issuer": None}, {"token_endpoint": None}, {"token_endpoint": 7},
        {"token_endpoint": "https://127.0.0.1/token"}, {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": "http://169.254.169.254/token"}, {"jwks_uri": "http://intranet.example/keys"},
        {"jwks_uri": "/keys"}, {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://user:word@127.0.0.1/"},
        {"token_endpoint": "http://127.0.0.1/" + "x" * 3_000},
        {"end_session_endpoint": "javascript:alert(1)"},
    ],
)  # fmt: skip
async def test_discovery_that_leads_astray_is_not_used(issuer: PlayedIssuer, changes: dict[str, Any]) -> None:
    issuer.changes = changes
    with pytest.raises(InfrastructureError, match="does not answer as it should"):
        await openid(issuer).address(Attempt.new())


@pytest.mark.parametrize(
    ("status", "body"), [(500, b""), (302, b""), (200, b"[]"), (200, b"{"), (200, b" " * (issuer_http.BYTES_MAX + 1))]
)
async def test_discovery_that_is_no_answer_is_not_used(issuer: PlayedIssuer, status: int, body: bytes) -> None:
    issuer.status, issuer.body = status, body
    with pytest.raises(InfrastructureError):
        await openid(issuer).address(Attempt.new())


async def test_issuer_is_not_flooded_while_it_fails_and_is_asked_again_later(issuer: PlayedIssuer) -> None:
    now = 1_000.0
    discovery = Discovery(issuer.url, lambda: now)
    issuer.status = 500
    for _ in range(3):
        with pytest.raises(InfrastructureError):
            await discovery.endpoints()
    assert issuer.asked == 1
    issuer.status, now = 200, now + REFETCH_SECONDS + 1
    assert (await discovery.endpoints()).token == f"{issuer.url}/token"
    issuer.status, now = 500, now + 3_600
    assert (await discovery.endpoints()).token == f"{issuer.url}/token", "what was known stays in force"
    assert issuer.asked == 3


async def test_secret_goes_where_the_issuer_takes_it(issuer: PlayedIssuer) -> None:
    assert "invalid_grant" in (await refusal(openid(issuer))).detail
    assert (issuer.forms[-1]["client_id"], issuer.authorizations[-1]) == (["a b"], None)
    assert issuer.forms[-1].keys() == {"grant_type", "code", "redirect_uri", "code_verifier", "client_id"}
    await refusal(openid(issuer, "x:y z"))
    sent = base64.b64decode((issuer.authorizations[-1] or "").removeprefix("Basic ")).decode()
    assert (sent, "client_secret" in issuer.forms[-1]) == ("a%20b:x%3Ay%20z", False)
    issuer.changes = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    await refusal(openid(issuer, "x:y z"))
    assert (issuer.forms[-1]["client_secret"], issuer.authorizations[-1]) == (["x:y z"], None)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b"<b>no</b>", "no reason given"),
        (400, b'{"error": "<script>"}', "no reason given"),
        (302, b"{}", "refused"),
        (200, b"[]", "no ID token"),
        (200, b'{"id_token": 7}', "no ID token"),
        (200, b'{"id_token": "a.b.c"}', "not a signed JSON Web Token"),
    ],
)
async def test_answers_without_a_usable_token_are_refused(
    issuer: PlayedIssuer, status: int, body: bytes, words: str
) -> None:
    issuer.token_status, issuer.token_body = status, body
    assert words in (await refusal(openid(issuer))).detail


async def test_issuer_that_fails_while_a_code_is_exchanged_is_named(issuer: PlayedIssuer) -> None:
    issuer.token_status = 503
    attempt = Attempt.new()
    with pytest.raises(InfrastructureError, match="answered 503"):
        await openid(issuer).sign_in(attempt, {"state": attempt.state, "code": CODE})
    issuer.token_status, issuer.token_body = 200, b" " * (issuer_http.BYTES_MAX + 1)
    with pytest.raises(InfrastructureError, match="does not answer"):
        await openid(issuer).sign_in(attempt, {"state": attempt.state, "code": CODE})
    busy = openid(issuer)
    busy._exchanges = EXCHANGES_MAX
    assert (await refusal(busy)).code == "RATE_LIMITED"


async def test_answer_must_name_the_issuer_if_that_one_says_so(issuer: PlayedIssuer) -> None:
    assert "not from the issuer" in (await refusal(openid(issuer), iss="https://evil.example")).detail
    issuer.changes = {"authorization_response_iss_parameter_supported": True}
    assert "not from the issuer" in (await refusal(openid(issuer))).detail
    assert "no reason given" in (await refusal(openid(issuer), iss=issuer.url, error="<b>")).detail
    assert issuer.forms == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"oidc_issuer": "http://login.example.org"}, "LUCIUS_OIDC_ISSUER"),
        ({"oidc_issuer": "https://login.example.org?x=1"}, "LUCIUS_OIDC_ISSUER"),
        ({"oidc_issuer": "login.example.org"}, "LUCIUS_OIDC_ISSUER"),
        ({"oidc_client_id": ""}, "LUCIUS_OIDC_CLIENT_ID"),
        ({"oidc_scopes": ("open id",)}, "LUCIUS_OIDC_SCOPES"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], named: str) -> None:
    known: dict[str, Any] = {"oidc_issuer": "https://login.example.org", "oidc_client_id": "lucius", **settings}
    with pytest.raises(SettingsError, match=named):
        OpenIdConnect(Settings(**known), RETURN, str)


def test_scopes_are_a_list_and_the_secret_may_be_a_reference() -> None:
    reference = "keyvault://vault.vault.azure.net/console"
    read = read_settings({"LUCIUS_OIDC_SCOPES": "openid, email", "LUCIUS_OIDC_CLIENT_SECRET": reference})
    assert (read.oidc_scopes, read.oidc_client_secret) == (("openid", "email"), reference)

"""Loopback stand-ins of what Azure's SDKs talk to: managed identity, Microsoft Entra ID, Key Vault.

The SDKs themselves are real. Key Vault's stand-in challenges like the real one and takes only tokens that the other two
have issued for it; it tells nothing to anybody else.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex

import jwt
from aiohttp import web

HOST = "127.0.0.1"
TENANT = "11111111-1111-1111-1111-111111111111"
IDENTITY_HEADER = "only-the-platform-knows"


@dataclass
class Issuer:
    """Managed identity as App Service and Container Apps offer it, IMDS, and the token endpoint of Entra ID."""

    port: int = 0
    tokens: dict[str, str] = field(default_factory=dict)
    """What was issued, with the resource or scope that it is for."""
    asked: list[str] = field(default_factory=list)
    assertions: list[str] = field(default_factory=list)

    @property
    def app_service(self) -> dict[str, str]:
        return {"IDENTITY_ENDPOINT": f"http://{HOST}:{self.port}/msi/token", "IDENTITY_HEADER": IDENTITY_HEADER}

    @property
    def imds(self) -> dict[str, str]:
        return {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://{HOST}:{self.port}"}

    def issue(self, audience: str) -> str:
        token = token_hex(16)
        self.tokens[token] = audience.removesuffix("/.default")
        return token

    def issue_jwt(self, audience: str) -> str:
        """One that Azurite takes, which does not look at the signature."""
        now, audience = int(time.time()), audience.removesuffix("/.default")
        claims = {"aud": audience, "iss": f"https://sts.windows.net/{TENANT}/", "jti": token_hex(16)}
        token = jwt.encode({**claims, "iat": now, "nbf": now - 60, "exp": now + 3_600}, "k" * 32)
        self.tokens[token] = audience
        return token

    async def managed(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.headers.get("X-IDENTITY-HEADER") != IDENTITY_HEADER and request.headers.get("Metadata") != "true":
            return web.json_response({"error": "no"}, status=401)
        token = self.issue(request.query["resource"])
        until = str(int(time.time()) + 3_600)
        return web.json_response(
            {"access_token": token, "expires_on": until, "expires_in": "3600", "resource": "", "token_type": "Bearer"}
        )

    async def federated(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.assertions.append(str(form["client_assertion"]))
        token = self.issue_jwt(str(form["scope"]))
        return web.json_response({"access_token": token, "expires_in": 3_600, "token_type": "Bearer"})


@dataclass
class Vault:
    issuer: Issuer
    port: int = 0
    secrets: dict[str, str] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    is_down: bool = False
    served: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"{HOST}:{self.port}"

    def reference(self, name: str) -> str:
        return f"keyvault://{self.host}/{name}"

    @property
    def resource(self) -> str:
        """What the SDK accepts as the domain above this vault."""
        return f"https://{self.host.partition('.')[2]}"

    async def get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if self.is_down:
            return web.json_response({"error": {"code": "ServerError", "message": "down"}}, status=500)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.issuer.tokens.get(token) != self.resource:
            challenge = f'Bearer authorization="https://login.example/{TENANT}", resource="{self.resource}"'
            return web.json_response({}, status=401, headers={"WWW-Authenticate": challenge})
        self.served.append(name)
        if name in self.forbidden:
            return web.json_response({"error": {"code": "Forbidden", "message": "not you"}}, status=403)
        if name not in self.secrets:
            return web.json_response({"error": {"code": "SecretNotFound", "message": "no"}}, status=404)
        body = {"value": self.secrets[name], "id": f"https://{self.host}/secrets/{name}/1", "attributes": {}}
        return web.json_response(body)


@asynccontextmanager
async def serve_issuer(issuer: Issuer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    routes = [
        web.get("/msi/token", issuer.managed),
        web.get("/metadata/identity/oauth2/token", issuer.managed),
        web.post(f"/{TENANT}/oauth2/v2.0/token", issuer.federated),
    ]
    async with _serve(routes, tls) as issuer.port:
        yield issuer


@asynccontextmanager
async def serve_vault(vault: Vault, tls: ssl.SSLContext) -> AsyncIterator[Vault]:
    routes = [web.get("/secrets/{name}/", vault.get), web.get("/secrets/{name}/{version}", vault.get)]
    async with _serve(routes, tls) as vault.port:
        yield vault


@asynccontextmanager
async def _serve(routes: list[web.RouteDef], tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0, ssl_context=tls)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()

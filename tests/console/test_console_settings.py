"""The console as it is set: behind TLS, off, wrong. Without a browser: see `conftest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request
from tests.console.console_server import ADMIN

from lucius.api.app import create_front
from lucius.auth import Principal
from lucius.bootstrap import open_app
from lucius.console import console_routes
from lucius.console.visitor import SessionPerson, SignedOut, find_visitor
from lucius.domain.time import after
from lucius.profiles.ports import free_port
from lucius.settings import Settings, SettingsError

CALLBACK_KEYS = ("k1:0123456789abcdef0123456789abcdef",)


async def test_cookie_is_secure_behind_tls_and_off_leaves_nothing(tmp_path: Path) -> None:
    known = {
        "ledger": "memory",
        "bus": "memory",
        "api_key": ADMIN,
        "callback_keys": CALLBACK_KEYS,
        "data": str(tmp_path),
    }
    async with open_app(Settings(**known, console_url="https://ops.example.com/lucius/")) as context:
        transport = httpx.ASGITransport(app=create_front(context, console_routes(context)))
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test") as client:
            answer = await client.post("/console/sign-in", data={"key": ADMIN})
            assert answer.headers["location"] == "/lucius/console/"
            cookie = answer.headers["set-cookie"]
            for part in ("HttpOnly", "SameSite=strict", "Secure", "Path=/lucius/console", "Max-Age=43200"):
                assert part in cookie
    async with open_app(Settings(**known, console="off")) as context:
        assert console_routes(context) == []
        transport = httpx.ASGITransport(app=create_front(context, console_routes(context)))
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test", headers=headers) as client:
            assert (await client.get("/console/")).status_code == 404
            assert (await client.post("/v1/console-links")).status_code == 404


def test_wrong_settings_are_named() -> None:
    with pytest.raises(SettingsError, match="LUCIUS_CONSOLE='maybe'"):
        _ = Settings(console="maybe").has_console


async def test_issuer_that_is_away_or_not_set_is_told_in_plain_words(tmp_path: Path) -> None:
    known: dict[str, Any] = {
        "ledger": "memory", "bus": "memory", "api_key": ADMIN, "callback_keys": CALLBACK_KEYS, "data": str(tmp_path),
        "console_url": "https://ops.example.com/lucius",
    }  # fmt: skip
    away = {"oidc_issuer": f"http://localhost:{free_port()}", "oidc_client_id": "lucius"}
    async with open_app(Settings(**known, **away)) as context:
        transport = httpx.ASGITransport(app=create_front(context, console_routes(context)))
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test") as client:
            for path in ("/sign-in/openid", "/sign-in/openid/return?state=s&code=c"):
                headers = {"Cookie": "lucius_console_sign_in=s.n.v.Lw"}
                answer = await client.get(f"/console{path}", headers=headers)
                assert answer.status_code == 503, path
                assert "issuer does not answer as it should" in answer.text
                assert "API key" in answer.text, "the other way in is shown"
            assert (await client.get("/console/signed-out")).status_code == 200
        # A session of another issuer, or of another registration, ends when the settings change.
        for issuer, client_id, is_known in (
            (away["oidc_issuer"], "lucius", True), ("https://other.example", "lucius", False),
            (away["oidc_issuer"], "other", False),
        ):  # fmt: skip
            principal = Principal("oidc:ann", None, frozenset({"read"}))
            kept = SessionPerson(issuer=issuer, client_id=client_id, label="Ann", principal=principal)
            text = msgspec.json.encode(kept).decode()
            session = await context.console_sessions.new_person_session("ab" * 32, text, after(context.clock.now(), 60))
            request = Request({"type": "http", "headers": [(b"cookie", f"lucius_console={session.token}".encode())]})
            if is_known:
                visitor = await find_visitor(request, context)
                assert (visitor.principal, visitor.label, visitor.is_person) == (principal, "Ann", True)
            else:
                with pytest.raises(SignedOut):
                    await find_visitor(request, context)
    async with open_app(Settings(**known)) as context:
        transport = httpx.ASGITransport(app=create_front(context, console_routes(context)))
        async with httpx.AsyncClient(transport=transport, base_url="http://lucius.test") as client:
            for path in ("/sign-in/openid", "/sign-in/openid/return", "/signed-out"):
                assert "LUCIUS_OIDC_ISSUER is not set" in (await client.get(f"/console{path}")).text
            assert "Sign in with" not in (await client.get("/console/sign-in")).text
    with pytest.raises(SettingsError, match="need LUCIUS_OIDC_ISSUER"):
        async with open_app(Settings(**known, oidc_client_id="lucius")):
            pass

"""The console as it is set: behind TLS, off, wrong. Without a browser: see `conftest`."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.console.console_server import ADMIN

from lucius.api.app import create_front
from lucius.bootstrap import open_app
from lucius.console import console_routes
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

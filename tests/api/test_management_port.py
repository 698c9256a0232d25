"""The management port: which dependency is down, by name, and where the port is."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from tests.api.conftest import KEY, clean_environment
from tests.crash.processes import free_port

from lucius.api.management import PORT_DEFAULT, listen_for_management, managed
from lucius.settings import Settings, SettingsError

LUCIUS = (sys.executable, "-m", "lucius.cli.main")
IN_ONE_PROCESS = {
    "ledger", "bus", "outbox", "dispatcher", "registry", "api_keys", "runbooks", "scheduler", "clock", "notifications",
}  # fmt: skip


async def found_wrong(api: Any) -> set[str]:
    return {name for name, one in (await api.readiness())[2].items() if not one["ok"]}


async def until_wrong(api: Any, names: set[str]) -> None:
    async with asyncio.timeout(60):
        while not names <= await found_wrong(api):
            await asyncio.sleep(0.05)


async def until_well(api: Any) -> None:
    async with asyncio.timeout(60):
        while await found_wrong(api):
            await asyncio.sleep(0.05)


# --- The truth about each dependency ---------------------------------------------------------------------------------


async def test_every_dependency_is_named(any_api: Any) -> None:
    code, status, checks = await any_api.readiness()
    woken = {"wakeups"} if any_api.context.settings.ledger.startswith("postgresql") else set()
    assert (code, status, set(checks)) == (200, "ok", IN_ONE_PROCESS | woken)
    assert all(one["ok"] and one["detail"] and set(one) == {"ok", "vital", "detail"} for one in checks.values())
    assert (await any_api.look("/healthz")).json() == {"status": "ok"}
    metrics = await any_api.look("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "lucius_jobs_accepted_total 0.0" in metrics.text
    assert (await any_api.look("/v1/jobs")).status_code == 404


async def test_database_that_goes_away_is_named_and_so_is_the_bus_in_it(
    open_api: Any, postgres_url: str, postgres_server: str
) -> None:
    api = await open_api(ledger=postgres_url)
    name = urlsplit(postgres_url).path.lstrip("/")
    admin = await asyncpg.connect(postgres_server)
    try:
        await admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        await until_wrong(api, {"ledger", "bus", "scheduler", "runbooks"})
        code, status, checks = await api.readiness()
        assert (code, status) == (503, "unavailable")
        assert "PostgreSQL" in checks["ledger"]["detail"]
        assert checks["registry"]["ok"]
        ready = await api.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "unavailable"})
    finally:
        await admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        await admin.close()
    await until_well(api)


async def test_key_file_and_token_keys_that_cannot_be_read_are_named(open_api: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("[]")
    nowhere = f"http://127.0.0.1:{free_port()}/keys"
    tokens = {"jwt_issuer": "https://issuer.example", "jwt_audience": "lucius", "jwks_url": nowhere}
    api = await open_api(api_keys_file=str(keys), **tokens)
    assert await found_wrong(api) == set()
    keys.write_text("- name: x\n")
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.e30.c2ln"
    async with asyncio.timeout(30):
        while await found_wrong(api) != {"api_keys", "token_keys"}:
            assert (await api.with_key(token).client.get("/v1/jobs")).status_code == 503
            await asyncio.sleep(0.2)
    code, status, checks = await api.readiness()
    assert (code, status) == (200, "degraded")
    assert "keys.yaml:1" in checks["api_keys"]["detail"]
    assert nowhere not in checks["token_keys"]["detail"]


# --- The port --------------------------------------------------------------------------------------------------------


def test_default_port_gives_way_where_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.api.management.PORT_DEFAULT", free_port())
    first, second = listen_for_management(Settings()), listen_for_management(Settings())
    assert first is not None
    assert second is not None
    with first, second:
        assert first.getsockname()[1] != second.getsockname()[1] > 0
    assert PORT_DEFAULT == 8_001


def test_port_that_was_asked_for_and_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SettingsError, match=f"127.0.0.1:{port} for management.*LUCIUS_MANAGEMENT_PORT"):
            listen_for_management(Settings(management_port=port))


@pytest.mark.parametrize("port", ["8001x", "-1", "65536", ""])
def test_port_that_is_none_is_refused_by_name(port: str) -> None:
    with pytest.raises(SettingsError, match=r"LUCIUS_MANAGEMENT_PORT=.*auto, off or a port"):
        listen_for_management(Settings(management_port=port))


async def test_port_can_be_turned_off(api: Any) -> None:
    listener = listen_for_management(Settings(management_port="off"))
    assert listener is None
    async with managed(api.context.management, listener) as address:
        assert address == "off"


def test_up_serves_it_and_says_where(serve: Any) -> None:
    server = serve("--no-services")
    management = server.wait_for(r"  management  (http://127\.0\.0\.1:\d+)\n")
    assert httpx.get(f"{management}/healthz").json() == {"status": "ok"}
    assert set(httpx.get(f"{management}/readyz").json()["checks"]) == IN_ONE_PROCESS
    assert "lucius_waits_held" in httpx.get(f"{management}/metrics").text
    assert httpx.get(f"{server.url}/readyz").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/metrics").status_code == 404
    second = subprocess.run(
        [*LUCIUS, "up", "--port", "0", "--data", str(server.data.parent / "other"), "--no-services"],
        env=clean_environment(LUCIUS_API_KEY=KEY, LUCIUS_MANAGEMENT_PORT=management.rpartition(":")[2]),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (second.returncode, "for management" in second.stderr) == (2, True), second.stderr
    assert server.stop() == 0, server.said
    assert "Traceback" not in server.said

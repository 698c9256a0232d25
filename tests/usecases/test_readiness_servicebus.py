"""An application on Service Bus: what its readiness says, and what a user with wrong settings reads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ServerThread, close_broken_sockets

from lucius.bootstrap import bus_subscriptions, open_app
from lucius.buses.servicebus import ServiceBus
from lucius.settings import Settings, SettingsError
from lucius.usecases.readiness import Readiness, Report


def settings_of(folder: Path, **given: object) -> Settings:
    return Settings(data=str(folder), **given)  # type: ignore[arg-type]


async def until_bus(readiness: Readiness, words: str) -> Report:
    """On a slow machine it may be said first that the server has not answered yet."""
    async with asyncio.timeout(60):
        while words not in (report := await readiness.look()).checks["bus"].detail:
            await asyncio.sleep(0.05)
    return report


@SDK_LEAVES_SOCKETS
async def test_readiness_says_what_is_missing_until_it_is_provisioned(
    servicebus_server: ServerThread, tmp_path: Path
) -> None:
    """Serving creates nothing."""
    settings = settings_of(tmp_path, bus="servicebus", servicebus_connection=servicebus_server.server.connection_string)
    async with open_app(settings) as context:
        assert isinstance(context.bus, ServiceBus)
        report = await until_bus(context.management.readiness, "is missing on Service Bus")
        assert (report.status, report.checks["bus"].ok) == ("degraded", False)
        assert "lucius bus provision" in report.checks["bus"].detail
        assert servicebus_server.depths() == []
        await asyncio.to_thread(servicebus_server.declare, await bus_subscriptions(settings), 600.0, None)
        async with asyncio.timeout(60):
            while not (report := await context.management.readiness.look()).checks["bus"].ok:
                await asyncio.sleep(0.05)
        assert report.checks["bus"].detail == f"Service Bus at 127.0.0.1:{servicebus_server.server.port}"
    await close_broken_sockets(servicebus_server.server.port)
    await asyncio.to_thread(servicebus_server.forget)


CONNECTION = "Endpoint=sb://one;SharedAccessKeyName=a;SharedAccessKey=b"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs either LUCIUS_SERVICEBUS_CONNECTION or LUCIUS_SERVICEBUS_NAMESPACE"),
        ({"servicebus_connection": CONNECTION, "servicebus_namespace": "one"}, "needs either"),
        ({"servicebus_connection": "sb://one"}, "must be a connection string"),
        ({"servicebus_namespace": "one", "azure_credential": "default"}, "managed, workload, cli, environment"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(tmp_path: Path, given: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        async with open_app(settings_of(tmp_path, bus="servicebus", **given)):
            pass


def test_missing_extra_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; sys.modules['azure'] = None\n"
        "from lucius.bootstrap import open_app\nfrom lucius.settings import Settings\n"
        "async def main():\n"
        f"    settings = Settings(data={str(tmp_path)!r}, bus='servicebus', servicebus_namespace='one')\n"
        "    async with open_app(settings): pass\n"
        "asyncio.run(main())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "needs the extra `servicebus`" in ended.stderr

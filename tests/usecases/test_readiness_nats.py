"""An application on NATS: what opens it, what its readiness says, and what a user without the extra reads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nats_server import NatsServer

from lucius.bootstrap import open_app
from lucius.buses.nats import NatsBus, NatsOptions
from lucius.ports.bus import BusUnavailable
from lucius.settings import Settings, SettingsError
from lucius.usecases.readiness import Readiness, Report


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    server = NatsServer('authorization { token: "t0ken" }')
    server.start()
    yield server
    server.stop()


def settings_of(folder: Path, **given: object) -> Settings:
    return Settings(data=str(folder), **given)  # type: ignore[arg-type]


async def until_bus(readiness: Readiness, is_ok: bool) -> Report:
    async with asyncio.timeout(30):
        while (report := await readiness.look()).checks["bus"].ok is not is_ok:
            await asyncio.sleep(0.05)
    return report


async def test_readiness_says_that_the_broker_is_away_and_back(own_server: NatsServer, tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, bus=own_server.url, nats_token="t0ken", nats_monitor_urls=(own_server.monitor_url,)
    )
    async with open_app(settings) as context:
        assert isinstance(context.bus, NatsBus)
        readiness = context.management.readiness
        report = await until_bus(readiness, is_ok=True)
        assert report.checks["bus"].detail == f"NATS at {own_server.url}"
        own_server.kill()
        report = await until_bus(readiness, is_ok=False)
        assert report.status == "degraded"
        assert own_server.url in report.checks["bus"].detail
        assert "out of reach" in report.checks["bus"].detail
        own_server.start()
        await until_bus(readiness, is_ok=True)
        [stream] = [name for name in await context.bus.jetstream.stream_names("lucius.>") if "p3" in name][:1]
        await context.bus.jetstream.call(f"STREAM.DELETE.{stream}")
        assert stream in (await readiness.look()).checks["bus"].detail
        await until_bus(readiness, is_ok=True)


async def test_application_does_not_start_with_wrong_credentials(own_server: NatsServer, tmp_path: Path) -> None:
    with pytest.raises(BusUnavailable, match="LUCIUS_NATS_CREDENTIALS_FILE"):
        async with open_app(settings_of(tmp_path, bus=own_server.url, nats_token="wrong")):
            pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bus": "nats://"}, "must name a host"),
        ({"bus": "amqp://one"}, "must be sql, memory, nats"),
        ({"bus": "nats://one", "nats_credentials_file": "/nowhere"}, "LUCIUS_NATS_CREDENTIALS_FILE=/nowhere"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(tmp_path: Path, given: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        async with open_app(settings_of(tmp_path, **given)):
            pass


def test_missing_extra_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; sys.modules['nats'] = None\n"
        "from lucius.bootstrap import open_app\nfrom lucius.settings import Settings\n"
        f"async def main():\n    async with open_app(Settings(data={str(tmp_path)!r}, bus='nats://one')): pass\n"
        "asyncio.run(main())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "needs the extra `nats`" in ended.stderr


def test_every_nats_option_is_a_setting() -> None:
    names = set(NatsOptions.__struct_fields__) - {"servers"}
    assert names == {name.removeprefix("nats_") for name in Settings.__struct_fields__ if name.startswith("nats_")}

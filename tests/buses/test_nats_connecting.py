"""Who LUCIUS is to a NATS server, and what it says when that does not work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.buses.nats_identities import identities, user_key, written
from tests.nats_server import NatsServer, free_port
from tests.temporal.tls_proxy import Authority

from lucius.buses.nats import NatsBus, NatsOptions, connection
from lucius.buses.nats.options import read_servers
from lucius.clocks import SystemClock
from lucius.ports.bus import BusUnavailable

StartServer = Callable[..., NatsServer]
SECONDS_MAX = 30


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    servers: list[NatsServer] = []

    def start(extra: str = "", **wishes: str) -> NatsServer:
        servers.append(NatsServer(extra, **wishes))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


async def opened(**options: object) -> str:
    """The health of a bus that these options open."""
    async with NatsBus(NatsOptions(**options), SystemClock()) as bus:  # type: ignore[arg-type]
        return await bus.health()


async def refusal(**options: object) -> str:
    with pytest.raises(BusUnavailable) as refused:
        await opened(**options)
    return str(refused.value)


async def test_token_user_and_nkey_are_accepted_and_wrong_ones_refused(
    start_server: StartServer, tmp_path: Path
) -> None:
    key, other = user_key(), user_key()
    by_token = start_server('authorization { token: "s3cret" }')
    assert await opened(servers=(by_token.url,), token="s3cret")
    wrong = await refusal(servers=(by_token.url,), token="guess")
    assert "authorization" in wrong.lower()
    assert "LUCIUS_NATS_CREDENTIALS_FILE" in wrong
    assert "guess" not in wrong
    by_name = start_server(
        f'authorization {{ users: [ {{ user: "lucius", password: "pw" }}, {{ nkey: "{key.public}" }} ] }}'
    )
    assert await opened(servers=(by_name.url,), user="lucius", password="pw")
    location = await opened(servers=(f"nats://lucius:pw@127.0.0.1:{by_name.port}",))
    assert "pw" not in location
    assert await opened(servers=(by_name.url,), nkey_seed_file=written(tmp_path, "seed", key.seed))
    assert (
        "authorization"
        in (await refusal(servers=(by_name.url,), nkey_seed_file=written(tmp_path, "other", other.seed))).lower()
    )


async def test_credentials_file_is_accepted(start_server: StartServer, tmp_path: Path) -> None:
    identity = identities()
    server = start_server(identity.server_config)
    assert await opened(servers=(server.url,), credentials_file=written(tmp_path, "lucius.creds", identity.credentials))
    assert "authorization" in (await refusal(servers=(server.url,))).lower()


async def test_tls_with_certificates_on_both_sides(start_server: StartServer, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, client = ours.issue("localhost"), ours.issue("lucius")
    files_of_server = f'cert_file: "{certificate.cert}", key_file: "{certificate.key}", ca_file: "{ours.cert}"'
    server = start_server(f"tls {{ {files_of_server}, verify: true }}")
    address = f"tls://localhost:{server.port}"
    files = {"tls_cert_file": client.cert, "tls_key_file": client.key}
    assert await opened(servers=(address,), tls_ca_file=ours.cert, **files)
    assert "certificate verify failed" in await refusal(servers=(address,), tls_ca_file=theirs.cert, **files)


async def test_one_server_of_a_cluster_is_enough(nats_server: NatsServer, nats_options: NatsOptions) -> None:
    away = f"nats://127.0.0.1:{free_port()}"
    assert await opened(servers=(away, nats_server.url), prefix=nats_options.prefix)


async def test_connection_that_breaks_while_something_is_sent_is_made_again(
    nats_options: NatsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library flushes once more while it closes; if that fails too, it calls nobody back."""
    made: list[connection.Client] = []

    class RecordedClient(connection.Client):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    async def drain() -> None:
        made[0]._pending.append(b"PING\r\n")
        made[0]._pending_data_size += len(made[0]._pending[-1])
        raise ConnectionResetError("Connection lost")

    monkeypatch.setattr(connection, "Client", RecordedClient)
    async with NatsBus(nats_options, SystemClock()) as bus:
        assert await bus.health()
        monkeypatch.setattr(made[0]._transport, "drain", drain)
        with pytest.raises(BusUnavailable, match="out of reach"):
            await bus.health()
        async with asyncio.timeout(SECONDS_MAX):
            while not made[-1].is_connected:
                await asyncio.sleep(0.01)
            assert await bus.health()
    made[0]._transport.close()


async def test_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OPEN_SECONDS", 0.5)
    port = free_port()
    assert f"nats://127.0.0.1:{port}" in await refusal(servers=(f"nats://127.0.0.1:{port}",))


async def test_server_that_does_not_sync_every_write_is_refused_if_it_tells(
    start_server: StartServer, nats_server: NatsServer, nats_options: NatsOptions, caplog: pytest.LogCaptureFixture
) -> None:
    lazy = start_server(sync="2m")
    said = await refusal(servers=(lazy.url,), monitor_urls=(lazy.monitor_url,))
    assert "sync_interval: always" in said
    assert await opened(servers=(nats_server.url,), prefix=nats_options.prefix, monitor_urls=(nats_server.monitor_url,))
    away = f"http://127.0.0.1:{free_port()}"
    assert away in await refusal(servers=(nats_server.url,), monitor_urls=(away,))
    with caplog.at_level(logging.INFO, "lucius.bus"):
        await opened(servers=(nats_server.url,), prefix=nats_options.prefix)
    assert "is not checked" in caplog.text


async def test_server_with_small_messages_is_refused(start_server: StartServer) -> None:
    server = start_server("max_payload: 65536")
    assert "max_payload" in await refusal(servers=(server.url,))


def test_addresses_name_one_server_or_several() -> None:
    assert read_servers("nats://one:4222,two:4223") == ("nats://one:4222", "nats://two:4223")
    assert read_servers("tls://one") == ("tls://one",)
    for wrong in ("nats://", "nats://one,,two", "nats://one:port", "http://one"):
        with pytest.raises(ValueError):
            read_servers(wrong)

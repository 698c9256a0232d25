"""`lucius servicebus-emulator` as its user sees it: a process, a connection string, an end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from click.testing import CliRunner

from lucius.cli.main import cli
from lucius.cli.serve.server import SERVER_PACKAGES

SECONDS = 30.0


def config(tmp_path: Path, **properties: object) -> Path:
    path = tmp_path / "Config.json"
    queues = [{"Name": "queue.1", "Properties": properties}]
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": queues, "Topics": []}]}}))
    return path


@asynccontextmanager
async def emulator(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "lucius.cli.main", "servicebus-emulator", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        async with asyncio.timeout(SECONDS):
            yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.readline()).decode().strip()


async def test_it_prints_a_connection_string_that_works_and_ends_on_a_signal(tmp_path: Path) -> None:
    async with emulator("--config", str(config(tmp_path)), "--administration-port", "0") as running:
        connection = await line_of(running.stdout)
        assert connection.startswith("Endpoint=sb://127.0.0.1:")
        assert connection.endswith(";UseDevelopmentEmulator=true;")
        assert "queues: 1, topics: 0, subscriptions: 0. Messages are in memory only." in await line_of(running.stderr)
        told = await line_of(running.stderr)
        assert told.startswith("Administration API on https://127.0.0.1:")
        port, ca = told.split(",")[0].rpartition(":")[2], told.rpartition(" ")[2]
        address = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=any"
        async with ServiceBusAdministrationClient.from_connection_string(address, connection_verify=ca) as client:
            assert [queue.name async for queue in client.list_queues()] == ["queue.1"]
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_sender("queue.1") as sender,
            client.get_queue_receiver("queue.1") as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("hello"), timeout=5)
            (got,) = await receiver.receive_messages(max_wait_time=5)
            assert str(got) == "hello"
            await receiver.complete_message(got)
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 0


async def test_a_port_in_use_is_said() -> None:
    async with emulator() as running:
        connection = await line_of(running.stdout)
        assert "Set up entities with --config" in await line_of(running.stderr)
        port = connection.partition(";")[0].rpartition(":")[2]
        async with emulator("--port", port) as second:
            assert f"127.0.0.1:{port} cannot be listened on" in await line_of(second.stderr)
            assert await second.wait() == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines: set a key with --key"),
        (["--ca-folder", "."], "--ca-folder is for --administration-port"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--config", "missing.json"], "does not exist"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(cli, ["servicebus-emulator", *arguments])
    assert ran.exit_code == 2
    assert said in ran.output


def test_every_fault_of_a_config_is_listed(tmp_path: Path) -> None:
    path = config(tmp_path, LockDuration="soon", MaxDeliveryCount=0)
    ran = CliRunner().invoke(cli, ["servicebus-emulator", "--config", str(path)])
    assert ran.exit_code == 2
    place = f"{path}: /UserConfig/Namespaces/0/Queues/0/Properties"
    assert f"{place}/LockDuration: 'soon' is no duration" in ran.output
    assert f"{place}/MaxDeliveryCount: must be a whole number from 1" in ran.output


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
from lucius.cli.main import main
main()
"""


async def test_the_base_install_serves_and_names_the_extra_that_administration_needs() -> None:
    code = WITHOUT.format(missing=set(SERVER_PACKAGES) | {"azure", "aiohttp"})
    arguments = ("servicebus-emulator", "--port", "0", "--administration-port", "0")
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        told, errors = await running.communicate()
    assert told.startswith(b"Endpoint=sb://127.0.0.1:"), errors
    assert b"pip install '.[server]' in a clone of LUCIUS (cryptography is not installed)" in errors
    assert b"Traceback" not in errors
    assert running.returncode == 2


async def test_an_outage_drops_connections_and_keeps_messages(tmp_path: Path) -> None:
    async with emulator("--config", str(config(tmp_path))) as running:
        connection = await line_of(running.stdout)
        await line_of(running.stderr)
        port = int(connection.partition(";")[0].rpartition(":")[2])
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_sender("queue.1") as sender,
        ):
            await sender.send_messages(ServiceBusMessage("kept"), timeout=5)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        running.send_signal(signal.SIGUSR1)
        assert "An outage" in await line_of(running.stderr)
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read(1) == b"", "it is dropped"
        writer.close()
        for _ in range(2):
            running.send_signal(signal.SIGUSR2)
            assert await line_of(running.stderr) == "The outage is over."
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_receiver("queue.1") as receiver,
        ):
            (got,) = await receiver.receive_messages(max_wait_time=5)
            assert str(got) == "kept"

"""`lucius servicebus-emulator`: the Service Bus test server as a process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lucius.cli.failures import Unusable
from lucius.cli.tools.outage_signals import OutageSignals
from lucius.client.addresses import is_loopback

if TYPE_CHECKING:
    from lucius.testing.servicebus.server import ServiceBusServer

PORT_DEFAULT = 5672
port_type = click.IntRange(0, 65_535)


@click.command("servicebus-emulator")
@click.option("--port", type=port_type, default=PORT_DEFAULT, show_default=True, help="For AMQP; 0 chooses a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another than this machine's own needs --key.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Queues, topics, subscriptions and rules: the Config.json of Microsoft's emulator.",
)
@click.option(
    "--key",
    metavar="KEY",
    envvar="SERVICEBUS_EMULATOR_KEY",
    help="Accept this SharedAccessKey alone. [SERVICEBUS_EMULATOR_KEY; any key is accepted]",
)
@click.option("--key-name", default="RootManageSharedAccessKey", show_default=True, help="The name of --key.")
@click.option(
    "--administration-port",
    type=port_type,
    metavar="P",
    help="Serve the administration API too, over TLS with a CA made for this run; 0 chooses a free port. "
    "Needs the extra `server`.",
)
@click.option(
    "--ca-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to write that CA's certificate, servicebus-test-ca.pem. [a temporary folder]",
)
def servicebus_emulator(
    port: int,
    host: str,
    config: Path | None,
    key: str | None,
    key_name: str,
    administration_port: int | None,
    ca_folder: Path | None,
) -> None:
    """Run a Service Bus for tests and development, without Docker.

    Prints its connection string on standard output and runs until Ctrl-C or SIGTERM. Messages are kept in memory and
    gone when it ends. Not for production; docs/reference/servicebus-emulator.md states what it does and does not do.

    SIGUSR1 plays an outage: every connection is dropped and none is taken, until SIGUSR2. Messages are kept.
    """
    from lucius.testing.servicebus.config import ConfigError, read_config
    from lucius.testing.servicebus.server import ServiceBusServer
    from lucius.testing.servicebus.tokens import SharedKey

    if not is_loopback(f"sb://{host}") and key is None:
        raise click.UsageError(f"--host {host} can be reached from other machines: set a key with --key.")
    if ca_folder is not None and administration_port is None:
        raise click.UsageError("--ca-folder is for --administration-port; give that too.")
    try:
        settings = read_config(config) if config else None
    except ConfigError as error:
        raise Unusable("\n".join(f"{config}: {fault}" for fault in error.faults)) from error
    except OSError as error:
        raise Unusable(f"{config} cannot be read: {error.strerror}") from error
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    shared_key = SharedKey(key_name, key) if key is not None else None
    server = ServiceBusServer(settings, host=host, port=port, shared_key=shared_key)
    try:
        asyncio.run(_run(server, administration_port, ca_folder))
    except OSError as error:
        raise Unusable(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error


async def _run(server: ServiceBusServer, administration_port: int | None, ca_folder: Path | None) -> None:
    signals = OutageSignals()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        click.echo(server.connection_string)
        click.echo(_summary(server), err=True)
        if administration_port is not None:
            folder = ca_folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lucius-servicebus-")))
            await _administer(stack, server, folder, administration_port)
        await signals.until_stopped(server, "Messages")


async def _administer(
    stack: contextlib.AsyncExitStack, server: ServiceBusServer, folder: Path, administration_port: int
) -> None:
    try:
        from lucius.testing.servicebus.https import AdministrationServer

        administration = await stack.enter_async_context(AdministrationServer(server, folder, administration_port))
    except ModuleNotFoundError as error:
        raise Unusable(
            "--administration-port needs a package of the server to make certificates: pip install '.[server]' in a"
            f" clone of LUCIUS ({error.name} is not installed)"
        ) from error
    address = f"https://{server.host}:{administration.port}"
    click.echo(f"Administration API on {address}, certificate by {administration.ca_file}", err=True)


def _summary(server: ServiceBusServer) -> str:
    from lucius.testing.servicebus.namespace import Topic

    entities = server.namespace.entities.values()
    topics = [entity for entity in entities if isinstance(entity, Topic)]
    subscriptions = sum(len(topic.subscriptions) for topic in topics)
    found = f"queues: {len(entities) - len(topics)}, topics: {len(topics)}, subscriptions: {subscriptions}"
    hint = "" if entities else " Set up entities with --config, or create them with --administration-port."
    return f"Service Bus test server on {server.host}:{server.port}. {found}. Messages are in memory only.{hint}"


COMMANDS = (servicebus_emulator,)

"""`lucius appconfig-emulator`: the stand-in for Azure App Configuration as a process."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lucius.cli.failures import Unusable
from lucius.cli.tools.outage_signals import OutageSignals
from lucius.client.addresses import is_loopback

if TYPE_CHECKING:
    from lucius.testing.appconfig.server import AppConfigServer

PORT_DEFAULT = 8483
FIELDS = frozenset({"key", "value", "label", "content_type"})


@click.command("appconfig-emulator")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT_DEFAULT, show_default=True, help="0 chooses a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Another than this machine's own needs --secret.")
@click.option("--key-id", default="lucius", show_default=True, help="The name of the access key.")
@click.option(
    "--secret",
    metavar="BASE64",
    envvar="APPCONFIG_EMULATOR_SECRET",
    help="The access key's secret. [APPCONFIG_EMULATOR_SECRET; a public one]",
)
@click.option(
    "--key-values",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Key-values to begin with: a JSON list of {"key", "value"}, each with "label" and "content_type" if need be.',
)
def appconfig_emulator(port: int, host: str, key_id: str, secret: str | None, file: Path | None) -> None:
    """Run an App Configuration for tests and development.

    Prints its connection string, for LUCIUS_APPCONFIG_CONNECTION, on standard output and runs until Ctrl-C or SIGTERM.
    Key-values are kept in memory and gone when it ends. Not for production; docs/reference/appconfig-emulator.md states
    what it does and does not do.

    SIGUSR1 plays an outage: every connection is dropped and none is taken, until SIGUSR2. Key-values are kept.
    """
    from lucius.testing.appconfig.server import AppConfigServer
    from lucius.testing.appconfig.signatures import SECRET_DEFAULT, AccessKey

    if not is_loopback(f"http://{host}") and secret is None:
        raise click.UsageError(f"--host {host} can be reached from other machines: set a secret with --secret.")
    try:
        base64.b64decode(secret or "", validate=True)
    except binascii.Error as error:
        raise click.UsageError("--secret must be Base64.") from error
    server = AppConfigServer(host=host, port=port, access_key=AccessKey(key_id, secret or SECRET_DEFAULT))
    for one in _read_key_values(file) if file is not None else ():
        server.put(one["key"], one["value"], one.get("label"), one.get("content_type", ""))
    try:
        asyncio.run(_run(server))
    except OSError as error:
        raise Unusable(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error


def _read_key_values(file: Path) -> list[dict[str, str]]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{file} cannot be read: {error}") from error
    is_list = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    if not is_list or not all(
        set(one) <= FIELDS and {"key", "value"} <= set(one) and all(isinstance(text, str) for text in one.values())
        for one in found
    ):
        raise Unusable(f'{file}: must be a JSON list of {{"key", "value", "label", "content_type"}}, all of them texts')
    return list(found)


async def _run(server: AppConfigServer) -> None:
    signals = OutageSignals()
    async with server:
        click.echo(server.connection_string)
        click.echo(f"App Configuration stand-in on {server.endpoint}. Key-values are in memory only.", err=True)
        await signals.until_stopped(server, "Key-values")


COMMANDS = (appconfig_emulator,)

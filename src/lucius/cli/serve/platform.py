"""`lucius platform`: the reference services in a separate process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import Unusable

if TYPE_CHECKING:
    from lucius.cli.connection import Connection


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_obj
def platform(connection: Connection, names: tuple[str, ...]) -> None:
    """Run reference services: ocr, embedding, sis.

    In a separate process, until SIGTERM. Their settings are those of any platform service: LUCIUS_ORCHESTRATOR_URL
    (without it, --url), LUCIUS_PLATFORM_STATE, LUCIUS_PLATFORM_HEALTH_PORT and so on.
    """
    from lucius.platform import ServiceUnusable, read_settings
    from lucius.reference.serving import serve_until_signal

    overrides: dict[str, Any] = {"api_key": connection.api_key} if connection.api_key else {}
    if not os.environ.get("LUCIUS_ORCHESTRATOR_URL", "").strip():
        overrides["orchestrator_url"] = connection.url
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(serve_until_signal(names, read_settings(**overrides)))
    except ServiceUnusable as error:
        raise Unusable(str(error)) from error


COMMANDS = (platform,)

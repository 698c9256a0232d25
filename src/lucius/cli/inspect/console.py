"""`lucius console`: how people get into the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lucius.cli.output.formatting import text_of
from lucius.cli.output.printing import output_option, show_json
from lucius.client.calls import admin as admin_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection


@click.group()
def console() -> None:
    """Sign in to the console."""


@console.command()
@output_option
@click.pass_obj
def link(connection: Connection, output: str) -> None:
    """Print a link that signs in to the console.

    The link is good for one use and one minute, and signs in as the API key of this command.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.console_link())
    if output == "json":
        show_json(answer)
    else:
        click.echo(text_of(answer.get("url")))


COMMANDS = (console,)

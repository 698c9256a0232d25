"""`lucius version`."""

from __future__ import annotations

import json
import platform

import click

from lucius import __version__
from lucius.build_info import commit, extras


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Text for people, or JSON.",
)  # fmt: skip
def version(output: str) -> None:
    """Show the version, its commit, and the extras that are installed."""
    installed = extras()
    if output == "json":
        told = {"version": __version__, "commit": commit(), "python": platform.python_version(), "extras": installed}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"lucius {__version__}")
    click.echo(f"  commit   {commit()}")
    click.echo(f"  Python   {platform.python_version()}")
    click.echo(f"  extras   {', '.join(name for name, is_there in installed.items() if is_there) or 'none'}")
    missing = [name for name, is_there in installed.items() if not is_there]
    if missing:
        click.echo(f"  without  {', '.join(missing)}")


COMMANDS = (version,)

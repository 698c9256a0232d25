"""`lucius new`: the command line of `lucius.scaffold`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from lucius.cli.failures import Unusable
from lucius.cli.output.program import as_typed


@click.group()
def new() -> None:
    """Create a new project."""


@new.command("service")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), metavar="DIR", help="The folder to create. [./NAME]")
@click.option("--step-type", metavar="TYPE", help="The type of its step. [NAME in capitals]")
def new_service(name: str, folder: Path | None, step_type: str | None) -> None:
    """Create a project for a service called NAME, ready to run.

    With a small step to replace, the protocol that requests it, a command to submit, and tests.
    """
    from lucius import scaffold

    folder = folder or Path(name)
    try:
        scaffold.new_service(name, folder, step_type)
    except scaffold.ScaffoldRefused as error:
        raise Unusable(str(error)) from error
    click.echo("\n".join(next_steps(name, folder)))


def next_steps(name: str, folder: Path) -> list[str]:
    enter = f"cd {shlex.quote(str(folder))}"
    return [
        f"Created the service {name} in {folder}. To run it, in three terminals:",
        f"  {enter} && LUCIUS_REGISTRY=registry {as_typed('lucius up')} --no-services",
        f"  {enter} && python service.py",
        f"  {enter} && {as_typed('lucius submit')} command.json --watch",
        f"Then change {folder / 'service.py'}; {folder / 'README.md'} describes the files.",
    ]


COMMANDS = (new,)

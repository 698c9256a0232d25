"""`lucius new`: the command line of `lucius.scaffold`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from lucius.cli.failures import Unusable
from lucius.cli.output.program import NAME, program


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
    # Typed in another folder: a path from here would lead nowhere.
    is_found = program() == NAME
    lucius = NAME if is_found else shlex.quote(os.path.abspath(sys.argv[0]))
    python = "python" if is_found else shlex.quote(sys.executable)
    return [
        f"Created the service {name} in {folder}. To run it, in three terminals:",
        f"  {enter} && LUCIUS_REGISTRY=registry {lucius} up --no-services",
        f"  {enter} && {python} service.py",
        f"  {enter} && {lucius} submit command.json --watch",
        f"Then change {folder / 'service.py'}; {folder / 'README.md'} describes the files.",
    ]


COMMANDS = (new,)

"""A question before something that cannot be taken back."""

from __future__ import annotations

import sys

import click

from lucius.cli.failures import EXIT_FOUND, Unusable

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask; for scripts.")


def confirm(question: str, yes: bool) -> None:
    """Goes on only if the answer is yes. Without a terminal there is nobody to ask."""
    if yes:
        return
    if not is_asking_possible():
        raise Unusable("this asks before it changes anything, and there is no terminal to ask on: pass --yes")
    if not click.confirm(question, default=False, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(EXIT_FOUND)


def is_asking_possible() -> bool:
    return sys.stdin.isatty()

"""Ctrl-C during a wait: what was waited for continues, and the last lines say so."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lucius.cli.failures import EXIT_INTERRUPTED
from lucius.cli.output.printing import show_line
from lucius.cli.output.program import as_typed


def left_alone(what: str, commands: Mapping[str, str]) -> click.exceptions.Exit:
    """Says that it continues, and which commands do what with it; returns the exit to raise."""
    click.echo(err=True)  # The terminal has written ^C on this line.
    show_line(f"Interrupted. {what} continues:", err=True)
    width = max(len(as_typed(command)) for command in commands)
    for command, use in commands.items():
        show_line(f"  {as_typed(command):<{width}}  {use}", err=True)
    return click.exceptions.Exit(EXIT_INTERRUPTED)

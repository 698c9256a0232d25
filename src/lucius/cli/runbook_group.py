"""What the groups `runbook` and `batch` share: the order of their commands, and the words for a single answer."""

from __future__ import annotations

from typing import Any

import click

from lucius.cli.output import show_json


class OrderedGroup(click.Group):
    """Lists its commands in the order that they were added in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def say(answer: dict[str, Any], output: str, sentence: str) -> None:
    """The answer of an act, as the server's JSON or as a sentence."""
    if output == "json":
        show_json(answer)
    else:
        click.echo(sentence)


limit_option = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
cursor_option = click.option("--cursor", default="", help="Go on where an earlier list ended.")

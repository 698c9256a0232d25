"""Shared by the groups `runbook` and `batch`: command order, options, and output of answers and event pages."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from lucius.cli.output.printing import say_more, show_json, show_line


class OrderedGroup(click.Group):
    """Lists its commands in the order they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def say(answer: dict[str, Any], output: str, sentence: str) -> None:
    """Print the answer of an operation, as the server's JSON or as a sentence."""
    if output == "json":
        show_json(answer)
    else:
        show_line(sentence)


def show_event_page(page: Mapping[str, Any], cursor: str, output: str, with_batch: bool) -> None:
    """A page of an audit trail."""
    if output == "json":
        show_json(page)
        return
    from lucius.cli.runbooks.render import event_table, show_painted

    if page["items"]:
        show_painted(event_table(page["items"], with_batch, is_brief=sys.stdout.isatty()))
    else:
        click.echo("No events." if not cursor else "No more events.", err=True)
    say_more(page["next"])


limit_option = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
cursor_option = click.option("--cursor", default="", help="Continue an earlier list.")

"""Where output goes: JSON for programs, tables for people, with colour on a terminal only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from lucius.cli.tables import Table

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, or JSON.",
    )(command)


def open_console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def show_table(table: Table, note_lines_max: int | None = None) -> None:
    """`note_lines_max` cuts long notes on a terminal only: a program is given everything."""
    from lucius.cli.tables import NOTE_INDENT, table_lines, table_view

    if sys.stdout.isatty():
        console = open_console()
        chars_max = None if note_lines_max is None else note_lines_max * max(1, console.width - NOTE_INDENT)
        console.print(table_view(table, console.width, note_chars_max=chars_max))
    else:
        show_lines(table_lines(table))


def show_sentences(sentences: Sequence[str]) -> None:
    """One to a line; on a terminal they are broken between words."""
    if sys.stdout.isatty():
        from rich.text import Text

        console = open_console()
        for sentence in sentences:
            console.print(Text(sentence))
    else:
        show_lines(sentences)


def show_lines(lines: Sequence[str]) -> None:
    click.echo("\n".join(lines))


def show_json(content: Any) -> None:
    click.echo(json.dumps(content, ensure_ascii=False, indent=2))


def say_more(cursor: Any) -> None:
    """That a list goes on, and how to see the rest."""
    if cursor:
        click.echo(f"There are more: --cursor {cursor}", err=True)

"""Prints output: JSON for programs, tables for people, with colour on a terminal only."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.failures import printable
from lucius.cli.output.wrapping import for_terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from lucius.cli.output.tables import Table

_UNPRINTABLE = re.compile("[\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]")

_AS_YAML = "lucius.cli.output.yaml"

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["text", "json", "yaml"]),
        default="text",
        show_default=True,
        callback=_output,
        help="Text for people, or JSON, or the same as YAML.",
    )(command)


def _output(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """To commands YAML is JSON; `show_json` writes it differently."""
    note_output(value, context)
    return "json" if value == "yaml" else value


def note_output(value: str, context: click.Context | None = None) -> None:
    (context or click.get_current_context()).meta[_AS_YAML] = value == "yaml"


def open_console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def show_table(
    table: Table, note_lines_max: int | None = None, paint: Callable[[Table], dict[str, list[Text]]] | None = None
) -> None:
    """`note_lines_max` truncates long notes, on a terminal only. `paint` returns the columns whose cells have their own
    colours."""
    from lucius.cli.output.tables import NOTE_INDENT, table_lines, table_view

    if sys.stdout.isatty():
        console = open_console()
        chars_max = None if note_lines_max is None else note_lines_max * max(1, console.width - NOTE_INDENT)
        console.print(table_view(table, console.width, paint(table) if paint else None, chars_max))
    else:
        show_lines(table_lines(table))


def show_sentences(sentences: Sequence[str]) -> None:
    """One per line; wrapped between words on a terminal."""
    for sentence in sentences:
        show_sentence(sentence)


def show_lines(lines: Sequence[str]) -> None:
    click.echo("\n".join(printable(line) for line in lines))


def show_line(line: str, err: bool = False) -> None:
    """For a line that contains text from a server."""
    click.echo(printable(line), err=err)


def show_sentence(sentence: str, err: bool = False) -> None:
    """The same, wrapped between words on a terminal."""
    click.echo(for_terminal(printable(sentence), sys.stderr if err else sys.stdout), err=err)


def show_document(text: str) -> None:
    """Prints a text unchanged, except for control characters on a terminal."""
    if sys.stdout.isatty():
        text = "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))
    click.echo(text, nl=False)


def is_yaml() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_AS_YAML))


def show_json(content: Any, in_one_line: bool = False) -> None:
    """`in_one_line`: one of many documents, a line each; in YAML, each after `---`."""
    if is_yaml():
        from lucius.cli.output.yaml_lines import yaml_lines

        text = "\n".join([*(["---"] if in_one_line else []), *yaml_lines(content)])
    else:
        text = json.dumps(content, ensure_ascii=False, indent=None if in_one_line else 2)
    # Valid JSON may contain raw C1 and text-direction controls; escaping them does not change the value.
    click.echo(_UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def say_more(cursor: Any) -> None:
    """Say that a list continues, and how to see the rest."""
    if cursor:
        show_line(f"There are more: --cursor {cursor}", err=True)

"""`lucius doctor`: what holds of this installation, what is wrong, and how to mend it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

from lucius.cli.failures import EXIT_FOUND, printable
from lucius.cli.output.printing import output_option, show_json
from lucius.cli.output.program import hint
from lucius.cli.serve.server import data_option, run, settings_of

WIDTH_MAX = 100
MARKS = {True: click.style("ok   ", fg="green"), False: click.style("WRONG", fg="red", bold=True)}
SECONDS = click.FloatRange(0.1, 300)


@click.command()
@click.option("--seconds", type=SECONDS, default=15, show_default=True, help="How long each part may take to answer.")
@data_option
@output_option
@click.pass_context
def doctor(context: click.Context, seconds: float, data: str | None, output: str) -> None:
    """Ask every configured part whether it works, and how to mend it.

    Ledger, schema, clock, bus and its topics, Temporal, registry, workspace, identity, secrets, API keys, data folder:
    all at once, by the settings of this environment. It changes nothing. Exit code 0: everything works. 1: it does not.
    """
    found = run("examine", settings_of(data=data), seconds)
    wrong = [one for one in found if not one.ok]
    if output == "json":
        show_json({"ok": not wrong, "parts": [_item(one) for one in found]})
    else:
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH_MAX
        click.echo("\n".join(_lines(found, width)))
        click.echo(f"{len(wrong)} of {len(found)} do not work." if wrong else f"All {len(found)} work.", err=True)
    if wrong:
        context.exit(EXIT_FOUND)


def _lines(found: Sequence[Any], width: int) -> Iterator[str]:
    """A part, its state, and what is to be said of it, with the remedy on lines of its own."""
    names = max(len(one.part) for one in found)
    indent = " " * (names + 9)
    for one in found:
        wrapped = textwrap.wrap(printable(one.detail), width - len(indent))
        if one.remedy is not None:
            wrapped += textwrap.wrap(f"\N{RIGHTWARDS ARROW} {hint(one.remedy)}", width - len(indent))
        yield f"{one.part:<{names}}  {MARKS[one.ok]}  {wrapped[0]}"
        yield from (indent + line for line in wrapped[1:])


def _item(one: Any) -> dict[str, Any]:
    return {"part": one.part, "ok": one.ok, "detail": one.detail, "remedy": one.remedy}


UPKEEP = (doctor,)

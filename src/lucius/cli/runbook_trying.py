"""Commands that look at a runbook before anything is done by it: validate, preview, dry-run, schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lucius.cli.failures import EXIT_REFUSED
from lucius.cli.output import output_option, show_json, show_lines, show_sentences
from lucius.cli.runbook_files import (
    CSV_BYTES_MAX,
    FILE,
    RUNBOOK_BYTES_MAX,
    check_offline,
    fault_lines,
    now,
    read_text,
    shown_name,
    start_time,
)
from lucius.cli.wording import counted, text_of

if TYPE_CHECKING:
    from lucius.cli.main import Connection

ROWS_DEFAULT = 20
ROWS_MAX = 200
name_argument = click.argument("name")
rows_option = click.option(
    "--limit",
    type=click.IntRange(1, ROWS_MAX),
    default=ROWS_DEFAULT,
    show_default=True,
    help="At most so many members are shown.",
)


@click.command()
@click.argument("file", type=FILE)
@output_option
def validate(file: Path, output: str) -> None:
    """Check the runbook in FILE, without a server.

    Needs the extra `server`. Shows its phases, or every fault as FILE:LINE: message, with exit code 3. Whether its
    variables are columns of the source is not looked at: `lucius runbook preview` shows those.
    """
    answer = check_offline(read_text(file, RUNBOOK_BYTES_MAX))
    if output == "json":
        show_json(answer)
    elif answer["valid"]:
        from lucius.cli.runbook_render import phase_lines

        show_lines(
            [f"{shown_name(file)} is a valid runbook, {text_of(answer['name'])}:", *phase_lines(answer["phases"])]
        )
    else:
        show_lines(fault_lines(file, answer["faults"]))
        click.echo(f"{shown_name(file)} has {counted(len(answer['faults']), 'fault')}.", err=True)
    if not answer["valid"]:
        raise click.exceptions.Exit(EXIT_REFUSED)


@click.command()
@name_argument
@rows_option
@output_option
@click.pass_obj
def preview(connection: Connection, name: str, limit: int, output: str) -> None:
    """Read a runbook's source now, and show its members.

    Nothing follows from it. Rows that cannot be used are shown with the reason.
    """
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import CELL_CHARS_MAX, preview_table, row_fault_lines, show_painted

    with open_client(connection) as client:
        answer = client.act_on_runbook(name, "preview", {"limit": limit})
    if output == "json":
        show_json(answer)
        return
    if answer.get("rows"):
        show_painted(preview_table(answer, CELL_CHARS_MAX if sys.stdout.isatty() else None))
    shown = len(answer.get("rows") or ())
    more = "; --limit shows more" if shown >= limit else ""
    click.echo(f"{counted(shown, 'row')}, {answer.get('members') or 0} of them usable as members{more}.", err=True)
    faults = answer.get("faults") or []
    if faults:
        click.echo(f"{counted(len(faults), 'row')} cannot be used:", err=True)
        for line in row_fault_lines(faults):
            click.echo(f"  {line}", err=True)


@click.command("dry-run")
@name_argument
@click.option("--csv", "csv_file", type=FILE, metavar="FILE", help="The members. [those that the source has now]")
@click.option("--start", callback=start_time, metavar="TIME", help="When the batch would start (ISO 8601). [now]")
@rows_option
@output_option
@click.pass_obj
def dry_run(
    connection: Connection, name: str, csv_file: Path | None, start: str | None, limit: int, output: str
) -> None:
    """Show what a batch would do: every step with its parameters.

    Nothing is written or sent. What only an earlier step's result can tell is named, not filled in.
    """
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import dry_run_lines

    body = {"limit": limit, "start": start, "csv": read_text(csv_file, CSV_BYTES_MAX) if csv_file else None}
    with open_client(connection) as client:
        answer = client.act_on_runbook(
            name, "dry-run", {key: value for key, value in body.items() if value is not None}
        )
    if output == "json":
        show_json(answer)
    else:
        show_sentences(dry_run_lines(answer, now()))


@click.command()
def schema() -> None:
    """Print the JSON Schema of runbooks, for editors.

    Needs the extra `server`.
    """
    from lucius.cli.server import server_packages

    with server_packages():
        from lucius.runbooks.definition.schema import schema_bytes
    click.echo(schema_bytes().decode().rstrip("\n"))

"""Commands that check a runbook before it runs: validate, preview, dry-run, schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lucius.cli.failures import EXIT_REFUSED
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import output_option, show_json, show_lines, show_sentences
from lucius.cli.runbooks.files import (
    CSV_BYTES_MAX,
    FILE,
    RUNBOOK_BYTES_MAX,
    check_offline,
    fault_lines,
    faults_in,
    now,
    read_text,
    shown_name,
    start_time,
)
from lucius.client.calls import runbooks as runbook_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

ROWS_DEFAULT = 20
ROWS_MAX = 200
name_argument = click.argument("name")
rows_option = click.option(
    "--limit",
    type=click.IntRange(1, ROWS_MAX),
    default=ROWS_DEFAULT,
    show_default=True,
    help="Maximum number of members to show.",
)


@click.command()
@click.argument("file", type=FILE)
@output_option
def validate(file: Path, output: str) -> None:
    """Check the runbook in FILE, without a server.

    Needs the extra `server`. Shows its phases, or every fault as FILE:LINE: message, with exit code 3. Does not check
    that its variables are columns of the source: `lucius runbook preview` shows those.
    """
    answer = check_offline(read_text(file, RUNBOOK_BYTES_MAX))
    if output == "json":
        show_json(answer)
    elif answer["valid"]:
        from lucius.cli.runbooks.render import phase_lines

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

    Changes nothing. Rows that cannot be used are shown with the reason.
    """
    from lucius.cli.runbooks.render import CELL_CHARS_MAX, preview_table, row_fault_lines, show_painted

    with connection.open() as client:
        answer = client.run(runbook_calls.preview(name, limit=limit))
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
@click.option("--csv", "csv_file", type=FILE, metavar="FILE", help="The members. [those from the source]")
@click.option("--start", callback=start_time, metavar="TIME", help="When the batch would start (ISO 8601). [now]")
@rows_option
@output_option
@click.pass_obj
def dry_run(
    connection: Connection, name: str, csv_file: Path | None, start: str | None, limit: int, output: str
) -> None:
    """Show what a batch would do: every step with its parameters.

    Nothing is written or sent. Values that come from an earlier step's result are shown by name.
    """
    from lucius.cli.runbooks.render import dry_run_lines

    csv = read_text(csv_file, CSV_BYTES_MAX) if csv_file else None
    with connection.open() as client, faults_in(csv_file):
        answer = client.run(runbook_calls.dry_run(name, csv=csv, start=start, limit=limit))
    if output == "json":
        show_json(answer)
    else:
        show_sentences(dry_run_lines(answer, now()))


@click.command()
def schema() -> None:
    """Print the JSON Schema of runbooks, for editors.

    Needs the extra `server`.
    """
    from lucius.cli.serve.server import server_packages

    with server_packages():
        from lucius.runbooks.core.definition.schema import schema_bytes
    click.echo(schema_bytes().decode().rstrip("\n"))

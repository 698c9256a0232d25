"""`lucius batch`: members on their way through a runbook. Make batches, look at them, operate them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli import runbook_acting
from lucius.cli.failures import EXIT_JOB_FAILED, EXIT_OK, Unusable
from lucius.cli.output import open_console, output_option, say_more, show_json, show_lines, show_sentences
from lucius.cli.runbook_acting import batch_argument
from lucius.cli.runbook_files import now
from lucius.cli.runbook_group import OrderedGroup, cursor_option, limit_option

if TYPE_CHECKING:
    from lucius.cli.main import Connection

TIMEOUT_SECONDS = 86_400.0
TIMEOUT_SECONDS_MAX = 30 * 86_400.0
STATUSES = ("detected", "init_dispatched", "active", "completed", "failed")
MEMBER_STATUSES = ("active", "removed", "failed", "all")


@click.group(cls=OrderedGroup)
def batch() -> None:
    """Look at and operate the batches of runbooks.

    A batch is a group of members that share a start time: they go through the runbook's phases together.
    """


@click.command("list")
@click.option("--runbook", metavar="NAME", help="Only this runbook's.")
@click.option("--status", type=click.Choice(STATUSES), help="Only batches in this state.")
@limit_option
@cursor_option
@output_option
@click.pass_obj
def list_batches(
    connection: Connection, runbook: str | None, status: str | None, limit: int, cursor: str, output: str
) -> None:
    """List batches, newest first."""
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_progress import batch_table
    from lucius.cli.runbook_render import NOTE_LINES_MAX, show_painted

    filters = {name: value for name, value in (("runbook", runbook), ("status", status)) if value}
    with open_client(connection) as client:
        page = client.batches(filters, limit, cursor)
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_painted(batch_table(page["items"], now()), NOTE_LINES_MAX)
    else:
        click.echo("No batches." if not cursor else "No more batches.", err=True)
    say_more(page["next"])


@click.command()
@batch_argument
@output_option
@click.pass_obj
def show(connection: Connection, batch_id: int, output: str) -> None:
    """Show a batch: its phases, how far they are, what it waits for."""
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_progress import batch_lines, batch_view

    with open_client(connection) as client:
        answer = client.batch(batch_id)
    if output == "json":
        show_json(answer)
    elif sys.stdout.isatty():
        console = open_console()
        console.print(batch_view(answer, now(), console.width))
    else:
        show_lines(batch_lines(answer, now()))


@click.command()
@batch_argument
@click.option(
    "--status",
    type=click.Choice(MEMBER_STATUSES),
    default="all",
    show_default=True,
    help="Only members that are so; failed ones are active too.",
)
@limit_option
@cursor_option
@output_option
@click.pass_obj
def grid(connection: Connection, batch_id: int, status: str, limit: int, cursor: str, output: str) -> None:
    """Show a batch as a grid: members × steps.

    A sign for each step's status, with a legend. Steps that a terminal has no room to name are numbered.
    """
    from lucius.cli.runbook_client import open_client

    with open_client(connection) as client:
        page = client.members(batch_id, status, limit, cursor)
        if output == "json":
            show_json(page)
            return
        answer = client.batch(batch_id)
    if page["items"]:
        show_grid(answer, page["items"])
    else:
        click.echo("No such members." if not cursor else "No more members.", err=True)
    say_more(page["next"])


def show_grid(answer: dict[str, Any], members: list[dict[str, Any]]) -> None:
    from lucius.cli.runbook_grid import columns_of, grid_lines, grid_view

    columns = columns_of(answer, members)
    if sys.stdout.isatty():
        console = open_console()
        for line in grid_view(columns, members, console.width):
            console.print(line)
    else:
        show_lines(grid_lines(columns, members))


@click.command()
@batch_argument
@click.option(
    "--timeout",
    type=click.FloatRange(0.0, TIMEOUT_SECONDS_MAX, min_open=True),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the batch's end; exit code 5 after that.",
)
@output_option
@click.pass_obj
def watch(connection: Connection, batch_id: int, timeout: float, output: str) -> None:
    """Show a batch's progress until it ends; exit code 1 if it failed.

    With --output json, only the ended batch is printed.
    """
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_watching import poll
    from lucius.cli.runbook_watching import watch as watch_batch

    with open_client(connection) as client:
        if output == "json":
            ended = poll(client, batch_id, timeout, None)
            show_json(ended)
        else:
            ended = watch_batch(client, batch_id, timeout)
    completed = ended.get("status") == "completed"
    if output == "text":
        click.echo(
            f"Batch {batch_id} {ended.get('status')}." + ("" if completed else f" See `lucius batch why {batch_id}`.")
        )
    raise click.exceptions.Exit(EXIT_OK if completed else EXIT_JOB_FAILED)


@click.command()
@batch_argument
@click.argument("member", required=False)
@output_option
@click.pass_obj
def why(connection: Connection, batch_id: int, member: str | None, output: str) -> None:
    """Say what a batch, or a member of it, waits for.

    In plain sentences, with the commands to go on with. Of what has ended: how, and why.
    """
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_why import explain_batch, explain_member
    from lucius.cli.why import explanation_lines

    with open_client(connection) as client:
        answer = client.batch(batch_id)
        found = client.members(batch_id, "all", 10, key=member)["items"] if member is not None else []
    known = [one for one in found if one.get("member") == member]
    if member is not None and not known:
        raise Unusable(f"batch {batch_id} has no member {member}; `lucius batch grid {batch_id}` shows them")
    # Who left and came back is there twice; the last one counts.
    explanation = explain_member(answer, known[-1], now()) if known else explain_batch(answer, now())
    if output == "text":
        show_sentences(explanation_lines(explanation))
        return
    commands = [{"command": command, "use": use} for command, use in explanation.commands]
    told = {"batch_id": batch_id, "status": answer.get("status"), "member": member}
    show_json({**told, "sentences": explanation.sentences, "commands": commands})


@click.command()
@batch_argument
@limit_option
@cursor_option
@output_option
@click.pass_obj
def events(connection: Connection, batch_id: int, limit: int, cursor: str, output: str) -> None:
    """Show a batch's audit trail, newest first."""
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import event_table, show_painted

    with open_client(connection) as client:
        page = client.batch_events(batch_id, limit, cursor)
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_painted(event_table(page["items"], False, is_brief=sys.stdout.isatty()))
    else:
        click.echo("No events." if not cursor else "No more events.", err=True)
    say_more(page["next"])


@click.command()
@batch_argument
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to. [the screen]")
@click.pass_obj
def export(connection: Connection, batch_id: int, out: Path | None) -> None:
    """Write a batch as CSV.

    A row for each member, a column for each step.
    """
    from lucius.cli.runbook_client import open_client

    with open_client(connection) as client:
        content = client.export(batch_id)
    if out is None:
        click.echo(content, nl=False)
        return
    try:
        out.write_bytes(content)
    except OSError as error:
        raise Unusable(f"{out} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote batch {batch_id} to {out}.", err=True)


for command in (
    list_batches, show, grid, watch, why, events, export, runbook_acting.create, runbook_acting.add,
    runbook_acting.remove, runbook_acting.retry, runbook_acting.resume, runbook_acting.advance, runbook_acting.cancel,
):  # fmt: skip
    batch.add_command(command)

COMMANDS = (batch,)

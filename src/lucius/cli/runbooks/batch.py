"""`lucius batch`: create, show and operate batches of a runbook's members."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_runbooks
from lucius.cli.failures import EXIT_BATCH_CANCELLED, EXIT_JOB_FAILED, EXIT_OK, EXIT_WITH_FAILURES, Unusable
from lucius.cli.interrupted import left_alone
from lucius.cli.output.printing import (
    open_console,
    output_option,
    say_more,
    show_document,
    show_json,
    show_lines,
    show_sentence,
    show_sentences,
)
from lucius.cli.output.program import hint
from lucius.cli.runbooks import operate, pausing
from lucius.cli.runbooks.files import now
from lucius.cli.runbooks.group import OrderedGroup, cursor_option, limit_option, show_event_page
from lucius.cli.runbooks.operate import batch_argument
from lucius.client.calls import batches as batch_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

TIMEOUT_SECONDS = 86_400.0
TIMEOUT_SECONDS_MAX = 30 * 86_400.0
STATUSES = ("detected", "init_dispatched", "active", "completed", "failed")
ENDING_EXITS = {
    "completed": EXIT_OK,
    "completed_with_failures": EXIT_WITH_FAILURES,
    "cancelled": EXIT_BATCH_CANCELLED,
}
"""By verdict; any other is a failure."""
MEMBER_STATUSES = ("active", "removed", "failed", "held", "all")
member_status_option = click.option(
    "--status",
    type=click.Choice(MEMBER_STATUSES),
    default="all",
    show_default=True,
    help="Only members with this status; failed and held members are also active.",
)


@click.group(cls=OrderedGroup)
def batch() -> None:
    """Create, show and operate batches of runbooks.

    A batch is a group of members that share a start time: they go through the runbook's phases together.
    """


@click.command("list")
@click.option("--runbook", metavar="NAME", shell_complete=complete_runbooks, help="Only batches of this runbook.")
@click.option("--status", type=click.Choice(STATUSES), help="Only batches in this state.")
@limit_option
@cursor_option
@output_option
@click.pass_obj
def list_batches(
    connection: Connection, runbook: str | None, status: str | None, limit: int, cursor: str, output: str
) -> None:
    """List batches, newest first."""
    from lucius.cli.runbooks.progress import batch_table
    from lucius.cli.runbooks.render import NOTE_LINES_MAX, show_painted

    with connection.open() as client:
        page = client.run(batch_calls.list_batches(runbook=runbook, status=status, limit=limit, cursor=cursor))
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
    """Show a batch: its phases, their progress, what it waits for."""
    from lucius.cli.runbooks.progress import batch_lines, batch_view

    with connection.open() as client:
        answer = client.run(batch_calls.get_batch(batch_id))
    if output == "json":
        show_json(answer)
    elif sys.stdout.isatty():
        console = open_console()
        console.print(batch_view(answer, now(), console.width))
    else:
        show_lines(batch_lines(answer, now()))


@click.command()
@batch_argument
@member_status_option
@limit_option
@cursor_option
@output_option
@click.pass_obj
def grid(connection: Connection, batch_id: int, status: str, limit: int, cursor: str, output: str) -> None:
    """Show a batch as a grid: members × steps.

    A symbol for each step's status, with a legend. Steps whose names do not fit the terminal are numbered.
    """

    with connection.open() as client:
        page = client.run(batch_calls.members(batch_id, status=status, limit=limit, cursor=cursor))
        if output == "json":
            show_json(page)
            return
        answer = client.run(batch_calls.get_batch(batch_id))
    if page["items"]:
        show_grid(answer, page["items"])
    else:
        click.echo("No such members." if not cursor else "No more members.", err=True)
    say_more(page["next"])


def show_grid(answer: dict[str, Any], members: list[dict[str, Any]]) -> None:
    from lucius.cli.runbooks.grid import columns_of, grid_lines, grid_view

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
    help="How long to wait for the batch to end; exit code 5 after that.",
)
@output_option
@click.pass_obj
def watch(connection: Connection, batch_id: int, timeout: float, output: str) -> None:
    """Show a batch's progress until it ends.

    Exit code 0: every member still in it succeeded. 6: some did not. 7: it was cancelled. 1: it failed.
    With --output json, only the ended batch is printed.
    """
    from lucius.cli.runbooks.progress import ending_text, verdict_of
    from lucius.cli.runbooks.watch import watch as watch_batch

    try:
        with connection.open() as client:
            if output == "json":
                ended = client.run(batch_calls.wait(batch_id, timeout_seconds=timeout))
                show_json(ended)
            else:
                ended = watch_batch(client, batch_id, timeout)
    except KeyboardInterrupt:
        commands = {f"lucius batch watch {batch_id}": "follows it", f"lucius batch cancel {batch_id}": "cancels it"}
        raise left_alone(f"Batch {batch_id}", commands) from None
    if output == "text":
        show_sentence(hint(ending_text(ended)))
    raise click.exceptions.Exit(ENDING_EXITS.get(str(verdict_of(ended)), EXIT_JOB_FAILED))


@click.command()
@batch_argument
@click.argument("member", required=False)
@output_option
@click.pass_obj
def why(connection: Connection, batch_id: int, member: str | None, output: str) -> None:
    """Explain what a batch, or one of its members, waits for.

    In plain sentences, with the commands to run next. If it has ended: how, and why.
    """
    from lucius.cli.jobs.why import explanation_lines
    from lucius.cli.runbooks.why import explain_batch, explain_member

    with connection.open() as client:
        answer = client.run(batch_calls.get_batch(batch_id))
        found = []
        if member is not None:
            found = client.run(batch_calls.members(batch_id, key=member, limit=10))["items"]
    known = [entry for entry in found if entry.get("member") == member]
    if member is not None and not known:
        raise Unusable(f"batch {batch_id} has no member {member}; `lucius batch grid {batch_id}` shows them")
    # A member that left and came back is listed twice; the last entry counts.
    explanation = explain_member(answer, known[-1], now()) if known else explain_batch(answer, now())
    if output == "text":
        show_sentences(explanation_lines(explanation))
        return
    commands = [{"command": command, "use": use} for command, use in explanation.commands]
    facts = {
        "batch_id": batch_id, "status": answer.get("status"), "verdict": answer.get("verdict"), "member": member,
    }  # fmt: skip
    show_json({**facts, "sentences": explanation.sentences, "commands": commands})


@click.command()
@batch_argument
@limit_option
@cursor_option
@output_option
@click.pass_obj
def events(connection: Connection, batch_id: int, limit: int, cursor: str, output: str) -> None:
    """Show a batch's audit trail, newest first."""
    with connection.open() as client:
        page = client.run(batch_calls.events(batch_id, limit=limit, cursor=cursor))
    show_event_page(page, cursor, output, with_batch=False)


@click.command()
@batch_argument
@member_status_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="The file. [stdout]")
@click.pass_obj
def export(connection: Connection, batch_id: int, status: str, out: Path | None) -> None:
    """Export a batch as CSV.

    A row for each member, a column for each step.
    """

    with connection.open() as client:
        content = client.run(batch_calls.export(batch_id, status=status))
    if out is None:
        show_document(content.decode("utf-8", "replace"))
        return
    try:
        out.write_bytes(content)
    except OSError as error:
        raise Unusable(f"{out} cannot be written: {error.strerror}") from error
    who = "" if status == "all" else f" ({status} members)"
    click.echo(f"Wrote batch {batch_id}{who} to {out}.", err=True)


for command in (
    list_batches, show, grid, watch, why, events, export, operate.create, operate.add,
    operate.remove, operate.retry, pausing.pause, pausing.resume, pausing.reschedule, operate.advance, operate.approve,
    operate.refuse, operate.cancel,
    operate.confirm_move, operate.keep, operate.send_again,
):  # fmt: skip
    batch.add_command(command)

COMMANDS = (batch,)

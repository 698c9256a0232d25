"""`lucius batch pause`, `resume` and `reschedule`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import Unusable
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.formatting import counted, distance, moment, text_of
from lucius.cli.output.printing import output_option, show_json, show_line, show_table
from lucius.cli.output.tables import Column, Table
from lucius.cli.runbooks.files import now, start_time
from lucius.cli.runbooks.group import say
from lucius.cli.runbooks.operate import act, batch_argument, reason_option
from lucius.cli.times import read_duration
from lucius.client.calls import batches as batch_calls
from lucius.client.calls.pages import given

if TYPE_CHECKING:
    from lucius.cli.connection import Connection


@click.command()
@batch_argument
@reason_option
@output_option
@click.pass_obj
def pause(connection: Connection, batch_id: int, reason: str, output: str) -> None:
    """Pause a batch: nothing new is sent, and no phase begins.

    Jobs that workers have go on, and steps that poll are polled to their end. Everything else waits for
    `lucius batch resume`: steps, retries, rollbacks, removal steps, phases that become due.
    """
    answer = act(connection, batch_id, "pause", given(reason=reason))
    say(answer, output, f"Batch {batch_id} is paused: nothing new is sent. What workers have begun goes on.")


@click.command()
@batch_argument
@reason_option
@output_option
@click.pass_obj
def resume(connection: Connection, batch_id: int, reason: str, output: str) -> None:
    """Resume a batch that was paused, or that max_failures put on hold.

    What has become due meanwhile begins at once; `lucius batch reschedule` moves it first. A batch that is paused and
    held needs two resumes.
    """
    answer = act(connection, batch_id, "resume", given(reason=reason))
    if answer.get("held"):
        say(answer, output, f"Batch {batch_id} is no longer paused, but held by max_failures: resume it again.")
        return
    steps = int(answer.get("steps") or 0)
    with_steps = f", with {counted(steps, 'held step')}" if steps else ""
    say(answer, output, f"Batch {batch_id} continues{with_steps}.")


@click.command()
@batch_argument
@click.option("--start", callback=start_time, metavar="TIME", help="When the batch is to start (ISO 8601, UTC).")
@click.option("--by", metavar="DURATION", help="How much later than now planned: 90m, 2h, 1d; -2h is earlier.")
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@reason_option
@yes_option
@output_option
@click.pass_obj
def reschedule(
    connection: Connection,
    batch_id: int,
    start: str | None,
    by: str | None,
    dry_run: bool,
    reason: str,
    yes: bool,
    output: str,
) -> None:
    """Move the phases of a batch that have not begun.

    They keep their distances to the start. Shows each with its old and its new time, and asks before anything moves.
    """
    if (start is None) == (by is None):
        raise click.UsageError("Say when it is to start with --start TIME, or how much later with --by DURATION.")
    with connection.open() as client:
        before = text_of(client.run(batch_calls.get_batch(batch_id)).get("starts_at"))
        wanted = start or _shifted(before, str(by))
        preview = client.run(batch_calls.reschedule(batch_id, wanted, dry_run=True, if_start=before))
        if dry_run or output == "text":
            _show(preview, output)
        if dry_run:
            return
        confirm(f"Move {counted(len(preview.get('moved') or ()), 'phase')} of batch {batch_id}?", yes)
        call = batch_calls.reschedule(batch_id, wanted, if_start=before, reason=reason or None)
        answer = client.run(call)
    say(answer, output, f"Batch {batch_id} starts at {text_of(answer.get('start'))}.")


def _shifted(start: str, by: str) -> str:
    seconds = read_duration(by.lstrip("+-"))
    at = moment(start)
    if seconds is None or at is None:
        raise Unusable(f"{by!r} is not a duration such as 90m, 2h, 1d or -2h")
    try:
        moved = at + timedelta(seconds=-seconds if by.startswith("-") else seconds)
    except OverflowError:
        raise Unusable(f"{by!r} leads out of the calendar") from None
    return moved.isoformat().replace("+00:00", "Z")


def _show(preview: dict[str, Any], output: str) -> None:
    if output == "json":
        show_json(preview)
        return
    rows = [
        (
            text_of(one.get("phase")),
            text_of(one.get("due_at")),
            text_of(one.get("new_due_at")),
            "at once" if one.get("overdue") else distance(one.get("new_due_at"), now()),
        )
        for one in preview.get("moved") or ()
    ]
    show_table(Table((Column("Phase"), Column("Due"), Column("New"), Column("Begins", dispensable=1)), rows))
    show_line(f"The batch starts at {text_of(preview.get('previous_start'))}; new: {text_of(preview.get('start'))}")

"""What operators do with batches: make, fill, advance, retry, resume and cancel them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.output import output_option, show_json
from lucius.cli.runbook_files import CSV_BYTES_MAX, FILE, read_text, start_time
from lucius.cli.runbook_group import say
from lucius.cli.wording import counted, text_of

if TYPE_CHECKING:
    from lucius.cli.main import Connection

batch_argument = click.argument("batch_id", metavar="ID", type=click.IntRange(1))
csv_option = click.option(
    "--csv", "csv_file", type=FILE, required=True, metavar="FILE", help="The members (- is standard input)."
)


@click.command()
@click.argument("runbook")
@csv_option
@click.option("--start", callback=start_time, metavar="TIME", help="When the batch starts (ISO 8601, UTC). [now]")
@click.option("--manual", is_flag=True, help="Phases begin by `lucius batch advance` only, whenever they are due.")
@output_option
@click.pass_obj
def create(connection: Connection, runbook: str, csv_file: Path, start: str | None, manual: bool, output: str) -> None:
    """Make a batch of the members in a CSV file.

    Its first line names the columns; one of them is the runbook's primary key. A fault in any row refuses them all.
    """
    from lucius.cli.runbook_client import open_client

    text = read_text(csv_file, CSV_BYTES_MAX)
    with open_client(connection) as client:
        answer = client.create_batch(runbook, text, start, "manual" if manual else "time")
    if output == "json":
        show_json(answer)
        return
    number = text_of(answer.get("batch_id"))
    of = f"{text_of(answer.get('runbook'))}, version {text_of(answer.get('version'))}"
    click.echo(f"Batch {number} of {of}: {counted(int(answer.get('members') or 0), 'member')}.")
    click.echo(f"`lucius batch {'advance' if manual else 'watch'} {number}` goes on with it.", err=True)


@click.command()
@batch_argument
@csv_option
@output_option
@click.pass_obj
def add(connection: Connection, batch_id: int, csv_file: Path, output: str) -> None:
    """Add members to a batch. They catch up on what the others have done."""
    answer = act(connection, batch_id, "add", {"csv": read_text(csv_file, CSV_BYTES_MAX)})
    count = int(answer.get("members") or 0)
    joined = counted(count, "member joins", "members join")
    say(answer, output, f"Batch {batch_id}: {joined}, and {'catches' if count == 1 else 'catch'} up.")


@click.command()
@batch_argument
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@output_option
@click.pass_obj
def remove(connection: Connection, batch_id: int, members: tuple[str, ...], output: str) -> None:
    """Take members out of a batch. Its removal steps run for them."""
    answer = act(connection, batch_id, "remove", {"members": list(members)})
    say(answer, output, f"Batch {batch_id}: {counted(int(answer.get('removed') or 0), 'member')} removed.")


@click.command()
@batch_argument
@click.argument("members", nargs=-1, metavar="[MEMBER...]")
@output_option
@click.pass_obj
def retry(connection: Connection, batch_id: int, members: tuple[str, ...], output: str) -> None:
    """Let failed members try again, all or these.

    Each goes on from the step that failed. Without MEMBER, a failed init is tried again too.
    """
    answer = act(connection, batch_id, "retry", {"members": list(members)} if members else {})
    if answer.get("init"):
        say(answer, output, f"Batch {batch_id}: its init is tried again.")
        return
    count = int(answer.get("members") or 0)
    say(answer, output, f"Batch {batch_id}: {counted(count, 'member tries', 'members try')} again.")


@click.command()
@batch_argument
@output_option
@click.pass_obj
def resume(connection: Connection, batch_id: int, output: str) -> None:
    """Go on with a batch that max_failures has held."""
    answer = act(connection, batch_id, "resume")
    say(answer, output, f"Batch {batch_id} goes on: {counted(int(answer.get('steps') or 0), 'step')} that it had held.")


@click.command()
@batch_argument
@output_option
@click.pass_obj
def advance(connection: Connection, batch_id: int, output: str) -> None:
    """Begin a batch's next phase now, whenever it is due."""
    answer = act(connection, batch_id, "advance")
    say(answer, output, f"Batch {batch_id}: phase {text_of(answer.get('phase'))} begins.")


@click.command()
@batch_argument
@click.option("--reason", default="", help="Why; it is kept in the audit trail.")
@output_option
@click.pass_obj
def cancel(connection: Connection, batch_id: int, reason: str, output: str) -> None:
    """Cancel a batch. What workers have may finish; nothing more is sent.

    A rollback that runs goes on. A cancelled batch cannot be taken up again.
    """
    answer = act(connection, batch_id, "cancel", {"reason": reason} if reason else {})
    say(answer, output, f"Batch {batch_id} is cancelled, and {text_of(answer.get('status'))}.")


def act(connection: Connection, batch_id: int, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    from lucius.cli.runbook_client import open_client

    with open_client(connection) as client:
        return client.act_on_batch(batch_id, verb, body)

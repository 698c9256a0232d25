"""Operations on batches: create, add, remove, retry, send again, resume, advance and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_batches, complete_runbooks
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import output_option, show_json
from lucius.cli.output.program import hint
from lucius.cli.runbooks.files import CSV_BYTES_MAX, FILE, faults_in, read_text, start_time
from lucius.cli.runbooks.group import say
from lucius.client.calls import batches as batch_calls
from lucius.client.calls.pages import given

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

batch_argument = click.argument("batch_id", metavar="ID", type=click.IntRange(1), shell_complete=complete_batches)
csv_option = click.option(
    "--csv", "csv_file", type=FILE, required=True, metavar="FILE", help="The members (- is standard input)."
)

reason_option = click.option("--reason", default="", help="The reason, kept in the audit trail.")


@click.command()
@click.argument("runbook", shell_complete=complete_runbooks)
@csv_option
@click.option("--start", callback=start_time, metavar="TIME", help="When the batch starts (ISO 8601, UTC). [now]")
@click.option("--manual", is_flag=True, help="Phases start only with `lucius batch advance`, whenever they are due.")
@output_option
@click.pass_obj
def create(connection: Connection, runbook: str, csv_file: Path, start: str | None, manual: bool, output: str) -> None:
    """Create a batch from the members in a CSV file.

    Its first line names the columns: the runbook's primary key and every column that its templates use. A fault in any
    row rejects the file.
    """
    text = read_text(csv_file, CSV_BYTES_MAX)
    with connection.open() as client, faults_in(csv_file):
        answer = client.run(batch_calls.create(runbook, text, start=start, advance="manual" if manual else "time"))
    if output == "json":
        show_json(answer)
        return
    number = text_of(answer.get("batch_id"))
    of = f"{text_of(answer.get('runbook'))}, version {text_of(answer.get('version'))}"
    click.echo(f"Batch {number} of {of}: {counted(int(answer.get('members') or 0), 'member')}.")
    click.echo(hint(f"Next: `lucius batch {'advance' if manual else 'watch'} {number}`."), err=True)


@click.command()
@batch_argument
@csv_option
@reason_option
@output_option
@click.pass_obj
def add(connection: Connection, batch_id: int, csv_file: Path, reason: str, output: str) -> None:
    """Add members to a batch. They catch up on what the others have done."""
    with faults_in(csv_file):
        answer = act(connection, batch_id, "add", {"csv": read_text(csv_file, CSV_BYTES_MAX), **given(reason=reason)})
    count = int(answer.get("members") or 0)
    joined = counted(count, "member joins", "members join")
    say(answer, output, f"Batch {batch_id}: {joined}, and {'catches' if count == 1 else 'catch'} up.")


@click.command()
@batch_argument
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@reason_option
@yes_option
@output_option
@click.pass_obj
def remove(
    connection: Connection, batch_id: int, members: tuple[str, ...], reason: str, yes: bool, output: str
) -> None:
    """Remove members from a batch. Its removal steps run for them."""
    named = members[0] if len(members) == 1 else f"{len(members)} members"
    confirm(f"Remove {named} from batch {batch_id} and run the removal steps?", yes)
    answer = act(connection, batch_id, "remove", {"members": list(members), **given(reason=reason)})
    say(answer, output, f"Batch {batch_id}: {counted(int(answer.get('removed') or 0), 'member')} removed.")


@click.command()
@batch_argument
@click.argument("members", nargs=-1, metavar="[MEMBER...]")
@click.option(
    "--not-started",
    is_flag=True,
    help="Instead, members that max_failures stopped before their steps began; the others stay as they are.",
)
@reason_option
@output_option
@click.pass_obj
def retry(
    connection: Connection, batch_id: int, members: tuple[str, ...], not_started: bool, reason: str, output: str
) -> None:
    """Retry failed members, all or these.

    Each continues from the step that failed. Without MEMBER, a failed init is retried too.
    """
    more = {"not_started": True} if not_started else {}
    answer = act(connection, batch_id, "retry", _named(members) | given(reason=reason) | more)
    if answer.get("init"):
        say(answer, output, f"Batch {batch_id}: its init is retried.")
        return
    count = int(answer.get("members") or 0)
    retried = counted(count, "member continues", "members continue") if not_started else ""
    say(answer, output, f"Batch {batch_id}: {retried or counted(count, 'failed member') + ' retried'}.")


@click.command("confirm-move")
@batch_argument
@click.argument("members", nargs=-1, metavar="[MEMBER...]")
@reason_option
@yes_option
@output_option
@click.pass_obj
def confirm_move(
    connection: Connection, batch_id: int, members: tuple[str, ...], reason: str, yes: bool, output: str
) -> None:
    """Let held members move to their new date, all or these.

    A member is held when its date in the source moves after steps of it were sent. Confirmed, it leaves this batch:
    its removal steps run, and the next read of the source puts it into the batch of its new date.
    """
    who = ", ".join(members[:5]) or "all held members"
    confirm(f"Let {who} leave batch {batch_id} and run the removal steps?", yes)
    answer = act(connection, batch_id, "confirm-move", _named(members) | given(reason=reason))
    moved = counted(int(answer.get("members") or 0), "member leaves", "members leave")
    say(answer, output, f"Batch {batch_id}: {moved} for another date.")


@click.command()
@batch_argument
@click.argument("members", nargs=-1, metavar="[MEMBER...]")
@reason_option
@output_option
@click.pass_obj
def keep(connection: Connection, batch_id: int, members: tuple[str, ...], reason: str, output: str) -> None:
    """Keep held members in this batch, all or these.

    They go on although the source has another date for them. If it names yet another one, they are held again.
    """
    answer = act(connection, batch_id, "keep", _named(members) | given(reason=reason))
    kept = counted(int(answer.get("members") or 0), "member stays and goes on", "members stay and go on")
    say(answer, output, f"Batch {batch_id}: {kept}.")


@click.command("send-again")
@batch_argument
@click.argument("messages", nargs=-1, metavar="[MESSAGE...]")
@output_option
@click.pass_obj
def send_again(connection: Connection, batch_id: int, messages: tuple[str, ...], output: str) -> None:
    """Send a batch's dead messages again, all or these.

    Without MESSAGE, every dead message that the batch still waits for. Messages and their ids: `lucius dead-letters`.
    """
    answer = act(connection, batch_id, "send-again", {"messages": list(messages)} if messages else {})
    count = len(answer.get("sent") or ())
    say(answer, output, f"Batch {batch_id}: {counted(count, 'message')} sent again.")
    if answer.get("more"):
        click.echo("There may be more dead messages: repeat the command.", err=True)


@click.command()
@batch_argument
@reason_option
@output_option
@click.pass_obj
def advance(connection: Connection, batch_id: int, reason: str, output: str) -> None:
    """Begin a batch's next phase now, regardless of when it is due."""
    answer = act(connection, batch_id, "advance", given(reason=reason))
    begins = "was not approved in time and does not begin" if answer.get("approvals_missing") else "begins"
    say(answer, output, f"Batch {batch_id}: phase {text_of(answer.get('phase'))} {begins}.")


phase_argument = click.argument("phase")


@click.command()
@batch_argument
@phase_argument
@reason_option
@output_option
@click.pass_obj
def approve(connection: Connection, batch_id: int, phase: str, reason: str, output: str) -> None:
    """Approve a phase that needs approval.

    Neither who published the runbook's version nor who created the batch may approve, and nobody counts twice. The
    phase begins when it is due and has all its approvals.
    """
    answer = _decide(connection, batch_id, phase, "approve", reason)
    missing = int(answer.get("approvals_missing") or 0)
    left = f"it needs {counted(missing, 'more approval')}" if missing else "it has all its approvals"
    say(answer, output, f"Batch {batch_id}: phase {phase} is approved, and {left}.")


@click.command()
@batch_argument
@phase_argument
@reason_option
@output_option
@click.pass_obj
def refuse(connection: Connection, batch_id: int, phase: str, reason: str, output: str) -> None:
    """Refuse a phase that needs approval.

    Neither that phase nor a later one begins. Phases that run finish; then the batch ends failed. A refusal cannot be
    taken back.
    """
    answer = _decide(connection, batch_id, phase, "refuse", reason)
    say(answer, output, f"Batch {batch_id}: phase {phase} is refused. Neither it nor a later phase begins.")


def _decide(connection: Connection, batch_id: int, phase: str, verb: str, reason: str) -> dict[str, Any]:
    with connection.open() as client:
        return client.run(batch_calls.decide(batch_id, phase, verb, given(reason=reason)))


@click.command()
@batch_argument
@reason_option
@yes_option
@output_option
@click.pass_obj
def cancel(connection: Connection, batch_id: int, reason: str, yes: bool, output: str) -> None:
    """Cancel a batch. Jobs that workers hold may finish; nothing more is sent.

    A running rollback continues. A cancelled batch cannot be resumed.
    """
    confirm(f"Cancel batch {batch_id}, so that it can never be resumed?", yes)
    answer = act(connection, batch_id, "cancel", given(reason=reason))
    say(answer, output, f"Batch {batch_id} is cancelled.")


def _named(members: Sequence[str]) -> dict[str, Any]:
    return {"members": list(members)} if members else {}


def act(connection: Connection, batch_id: int, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    with connection.open() as client:
        return client.run(batch_calls.act(batch_id, verb, body))

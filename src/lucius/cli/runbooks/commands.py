"""`lucius runbook`: publish and show runbooks, switch their automation on and off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_runbooks
from lucius.cli.failures import EXIT_NO_CONNECTION, EXIT_REFUSED, Refused, Unusable
from lucius.cli.output.confirming import confirm as ask
from lucius.cli.output.confirming import yes_option
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import output_option, show_document, show_json, show_line, show_lines, show_sentence
from lucius.cli.output.program import hint
from lucius.cli.output.tables import aligned
from lucius.cli.runbooks import check, worker
from lucius.cli.runbooks.files import FILE, RUNBOOK_BYTES_MAX, fault_lines, now, read_text, shown_name
from lucius.cli.runbooks.group import OrderedGroup, cursor_option, limit_option, say, show_event_page
from lucius.cli.runbooks.rehearsal import plan, rehearse
from lucius.client.calls import runbooks as runbook_calls

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession, Connection

VERSION = click.IntRange(1)
name_argument = click.argument("name", shell_complete=complete_runbooks)


@click.group(cls=OrderedGroup)
def runbook() -> None:
    """Move many members through the phases of a runbook.

    A runbook is a YAML file: where its members come from (mailboxes, users, devices …), and which steps run when.
    `lucius runbook sample --up` runs an example. `lucius batch` shows the progress of its members.
    """


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--overdue",
    type=click.Choice(["rerun", "ignore"]),
    default="rerun",
    show_default=True,
    help="Phases of this version that are overdue in running batches: run them, or skip them.",
)
@click.option("--rerun-init", is_flag=True, help="Running batches run this version's init before they continue.")
@click.option("--stopped", is_flag=True, help="With its automation off, until `lucius runbook start`.")
@output_option
@click.pass_obj
def publish(connection: Connection, file: Path, overdue: str, rerun_init: bool, stopped: bool, output: str) -> None:
    """Make the runbook in FILE the active version.

    FILE is YAML (- is standard input) and contains the runbook's name. Publishing the text of the active version again
    changes nothing. Faults are shown with their lines. Exit code 8: published, but the server has no connection of the
    name that the runbook gives.
    """

    text = read_text(file, RUNBOOK_BYTES_MAX)
    with connection.open() as client:
        try:
            answer = client.run(
                runbook_calls.publish(text, overdue_behavior=overdue, rerun_init=rerun_init, stopped=stopped)
            )
        except Refused as error:
            if error.code != "RUNBOOK_INVALID":
                raise
            _refuse(client, file, text, error)
            return
    outcome = "is published and active" if answer.get("published") else "is already active; nothing has changed"
    # Of a connection that is missing, the warning below says more.
    is_unchecked = answer.get("unchecked") and not answer.get("missing_connection")
    unchecked = f"\nNot checked: {text_of(answer['unchecked'])}" if is_unchecked else ""
    name, version = text_of(answer.get("name")), text_of(answer.get("version"))
    is_off = answer.get("automation") is False
    off = f" Its automation is off: `lucius runbook start {name}` starts it." if is_off else ""
    say(answer, output, hint(f"{name}, version {version}, {outcome}.{off}{unchecked}"))
    if answer.get("missing_connection"):
        connection_name = text_of(answer["missing_connection"])
        show_sentence(
            f"Warning: the server has no connection {connection_name}, so no member is read. Add the line"
            f" {connection_name}=ADDRESS to the file that LUCIUS_SOURCES_FILE names, which needs no restart, or set it"
            " in the environment of the server.",
            err=True,
        )
        raise click.exceptions.Exit(EXIT_NO_CONNECTION)


def _refuse(client: ApiSession, file: Path, text: str, error: Refused) -> None:
    """Show every fault with its line, as `validate` does; raise the error itself if the server now finds none."""
    faults = client.run(runbook_calls.validate(text)).get("faults") or []
    if not faults:
        raise error
    show_lines(fault_lines(file, faults))
    click.echo(f"Not published: {shown_name(file)} has {counted(len(faults), 'fault')}.", err=True)
    raise click.exceptions.Exit(EXIT_REFUSED)


@click.command("list")
@output_option
@click.pass_obj
def list_runbooks(connection: Connection, output: str) -> None:
    """List runbooks, their open batches and their sources."""
    from lucius.cli.runbooks.render import NOTE_LINES_MAX, runbook_table, show_painted

    with connection.open() as client:
        answer = client.run(runbook_calls.list_runbooks())
    if output == "json":
        show_json(answer)
    elif answer.get("items"):
        show_painted(runbook_table(answer["items"], now()), NOTE_LINES_MAX)
    else:
        click.echo(hint("No runbooks; `lucius runbook publish FILE` makes one."), err=True)


@click.command()
@name_argument
@click.option("--version", type=VERSION, metavar="N", help="This version. [the newest]")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print only its text.")
@output_option
@click.pass_obj
def show(connection: Connection, name: str, version: int | None, as_yaml: bool, output: str) -> None:
    """Show a runbook and its versions."""
    from lucius.cli.runbooks.render import runbook_facts, show_painted, version_table

    with connection.open() as client:
        answer = client.run(runbook_calls.get_runbook(name, version=version))
    if as_yaml:
        show_document(str(answer.get("yaml") or ""))
    elif output == "json":
        show_json(answer)
    else:
        show_lines([*aligned(runbook_facts(answer, now())), ""])
        show_painted(version_table(answer.get("versions") or (), now()))


@click.command()
@name_argument
@click.argument("first", metavar="[FROM|FILE]", required=False)
@click.argument("second", metavar="[TO]", required=False, type=VERSION)
@output_option
@click.pass_obj
def diff(connection: Connection, name: str, first: str | None, second: int | None, output: str) -> None:
    """Compare two versions, or a version and FILE.

    Without FROM and TO: the newest version and the previous one. With FROM alone: that version and the newest. With
    FILE: the newest version and the runbook in FILE, which needs the extra `server`.
    """
    from lucius.cli.runbooks.render import difference_lines

    with connection.open() as client:
        if first is None or first.isdecimal():
            answer = _between_versions(client, name, int(first) if first else None, second)
        elif second is not None:
            raise click.UsageError("A FILE is compared with the newest version: leave TO out.")
        else:
            answer = _with_file(client, name, Path(first))
    if output == "json":
        show_json(answer)
        return
    lines = difference_lines(answer.get("differences") or ())
    before, after = (f"version {side}" if isinstance(side, int) else side for side in (answer["from"], answer["to"]))
    show_line(f"{text_of(name)}: {before} and {after}" + (":" if lines else " are identical."), err=not lines)
    if lines:
        show_lines(lines)


def _between_versions(client: ApiSession, name: str, before: int | None, after: int | None) -> dict[str, Any]:
    versions = sorted(
        int(version["version"]) for version in client.run(runbook_calls.get_runbook(name)).get("versions") or ()
    )
    after = after if after is not None else versions[-1]
    if before is None:
        if len(versions) < 2:
            raise Unusable(f"runbook {name} has only one version; pass a FILE to compare it with")
        before = versions[-2]
    return client.run(runbook_calls.diff(name, before, after))


def _with_file(client: ApiSession, name: str, file: Path) -> dict[str, Any]:
    from lucius.cli.serve.server import server_packages

    with server_packages():
        import msgspec

        from lucius.runbooks.core.definition.compare import differences
        from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
    text = read_text(file, RUNBOOK_BYTES_MAX)
    published = client.run(runbook_calls.get_runbook(name))
    try:
        after = read_runbook(text.encode())
    except RunbookInvalid as error:
        faults = [msgspec.to_builtins(fault) for fault in error.faults]
        raise Unusable("\n".join([f"{shown_name(file)} is not a runbook", *fault_lines(file, faults)])) from error
    found = differences(read_runbook(str(published["yaml"]).encode()), after)
    listed = [msgspec.to_builtins(difference) for difference in found]
    return {"name": name, "from": published["version"], "to": shown_name(file), "differences": listed}


@click.command()
@name_argument
@yes_option
@output_option
@click.pass_obj
def retire(connection: Connection, name: str, yes: bool, output: str) -> None:
    """Retire a runbook: no new batches. Running batches continue."""
    ask(f"Retire runbook {name}, so that it makes no new batches?", yes)
    _act(connection, name, "retire", output, "is retired: no new batches; running batches continue.")


@click.command()
@name_argument
@output_option
@click.pass_obj
def stop(connection: Connection, name: str, output: str) -> None:
    """Stop a runbook's automation.

    Its source is not read, and no phase starts automatically. Phases that have started continue, and batches can be
    created and advanced manually.
    """
    _act(connection, name, "stop", output, "is stopped: its source is not read, and no phase starts automatically.")


@click.command()
@name_argument
@output_option
@click.pass_obj
def start(connection: Connection, name: str, output: str) -> None:
    """Start a runbook's automation again."""
    _act(connection, name, "start", output, "is started: its automation runs again.")


@click.command()
@name_argument
@yes_option
@output_option
@click.pass_obj
def confirm(connection: Connection, name: str, yes: bool, output: str) -> None:
    """Confirm that a held source is correct.

    A source that has far fewer members than before changes no members until it has more again or is confirmed. The
    next read then removes the missing members.
    """
    ask(f"Remove the members that the source of {name} no longer has?", yes)
    _act(connection, name, "confirm", output, "is confirmed: the next read removes the missing members.")


@click.command()
@name_argument
@limit_option
@cursor_option
@output_option
@click.pass_obj
def events(connection: Connection, name: str, limit: int, cursor: str, output: str) -> None:
    """Show a runbook's audit trail, newest first."""
    with connection.open() as client:
        page = client.run(runbook_calls.events(name, limit=limit, cursor=cursor))
    show_event_page(page, cursor, output, with_batch=True)


def _act(connection: Connection, name: str, verb: str, output: str, outcome: str) -> None:
    with connection.open() as client:
        answer = client.run(runbook_calls.act(name, verb))
    say(answer, output, f"{text_of(answer.get('name') or name)} {outcome}")


for command in (
    check.validate, publish, list_runbooks, show, diff, plan, rehearse, check.preview,
    check.dry_run, retire, stop, start, confirm, events, check.schema, worker.worker,
    worker.sample,
):  # fmt: skip
    runbook.add_command(command)

COMMANDS = (runbook,)

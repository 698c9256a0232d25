"""`lucius runbook`: publish runbooks, look at them, switch their automation on and off."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli import runbook_trying, runbook_worker
from lucius.cli.failures import EXIT_REFUSED, Refused, Unusable
from lucius.cli.output import output_option, say_more, show_json, show_lines
from lucius.cli.rehearsal import plan, rehearse
from lucius.cli.runbook_files import FILE, RUNBOOK_BYTES_MAX, fault_lines, now, read_text, shown_name
from lucius.cli.runbook_group import OrderedGroup, cursor_option, limit_option, say
from lucius.cli.tables import aligned
from lucius.cli.wording import counted, text_of

if TYPE_CHECKING:
    from lucius.cli.main import Connection
    from lucius.cli.runbook_client import RunbookClient

VERSION = click.IntRange(1)
name_argument = click.argument("name")


@click.group(cls=OrderedGroup)
def runbook() -> None:
    """Move many members through phases, by a runbook.

    A runbook is a YAML file: where its members come from (mailboxes, users, devices …), and what is done to them when.
    `lucius runbook sample --up` shows one at work. What becomes of its members is under `lucius batch`.
    """


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--overdue",
    type=click.Choice(["rerun", "ignore"]),
    default="rerun",
    show_default=True,
    help="Phases of this version that are already past due in batches under way: run them, or leave them out.",
)
@click.option("--rerun-init", is_flag=True, help="Batches under way run the init of this version before they go on.")
@output_option
@click.pass_obj
def publish(connection: Connection, file: Path, overdue: str, rerun_init: bool, output: str) -> None:
    """Make the runbook in FILE the active version.

    FILE is YAML (- is standard input), with the runbook's name in it. The same text as the active version changes
    nothing. Faults are shown with their lines.
    """
    from lucius.cli.runbook_client import open_client

    text = read_text(file, RUNBOOK_BYTES_MAX)
    with open_client(connection) as client:
        try:
            answer = client.publish(text, overdue, rerun_init)
        except Refused as error:
            if error.code != "RUNBOOK_INVALID":
                raise
            _refuse(client, file, text, error)
            return
    told = "is published and active" if answer.get("published") else "is active already; nothing has changed"
    unchecked = f"\nNot checked: {text_of(answer['unchecked'])}" if answer.get("unchecked") else ""
    say(answer, output, f"{text_of(answer.get('name'))}, version {text_of(answer.get('version'))}, {told}.{unchecked}")


def _refuse(client: RunbookClient, file: Path, text: str, error: Refused) -> None:
    """Every fault on its line, as `validate` shows it; the refusal itself if the server finds none on a second look."""
    faults = client.check_runbook(text).get("faults") or []
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
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import NOTE_LINES_MAX, runbook_table, show_painted

    with open_client(connection) as client:
        answer = client.runbooks()
    if output == "json":
        show_json(answer)
    elif answer.get("items"):
        show_painted(runbook_table(answer["items"], now()), NOTE_LINES_MAX)
    else:
        click.echo("No runbooks; `lucius runbook publish FILE` makes one.", err=True)


@click.command()
@name_argument
@click.option("--version", type=VERSION, metavar="N", help="This version. [the newest]")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print its text, and nothing else.")
@output_option
@click.pass_obj
def show(connection: Connection, name: str, version: int | None, as_yaml: bool, output: str) -> None:
    """Show a runbook and its versions."""
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import runbook_facts, show_painted, version_table

    with open_client(connection) as client:
        answer = client.runbook(name, version)
    if as_yaml:
        click.echo(str(answer.get("yaml") or ""), nl=False)
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
    """Say what differs between two versions, or a version and FILE.

    Without FROM and TO: the newest version and the one before it. With FROM alone: that one and the newest. With a
    FILE: the newest version and the runbook in it, which needs the extra `server`.
    """
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import difference_lines

    with open_client(connection) as client:
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
    before, after = (f"version {one}" if isinstance(one, int) else one for one in (answer["from"], answer["to"]))
    click.echo(f"{text_of(name)}: {before} and {after}" + (":" if lines else " say the same."), err=not lines)
    if lines:
        show_lines(lines)


def _between_versions(client: RunbookClient, name: str, before: int | None, after: int | None) -> dict[str, Any]:
    versions = sorted(int(one["version"]) for one in client.runbook(name).get("versions") or ())
    after = after if after is not None else versions[-1]
    if before is None:
        if len(versions) < 2:
            raise Unusable(f"runbook {name} has one version only; name a FILE to compare it with")
        before = versions[-2]
    return client.runbook_diff(name, before, after)


def _with_file(client: RunbookClient, name: str, file: Path) -> dict[str, Any]:
    from lucius.cli.server import server_packages

    with server_packages():
        import msgspec

        from lucius.runbooks.definition.compare import differences
        from lucius.runbooks.definition.reading import RunbookInvalid, read_runbook
    text = read_text(file, RUNBOOK_BYTES_MAX)
    published = client.runbook(name)
    try:
        after = read_runbook(text.encode())
    except RunbookInvalid as error:
        faults = [msgspec.to_builtins(one) for one in error.faults]
        raise Unusable("\n".join([f"{shown_name(file)} is not a runbook", *fault_lines(file, faults)])) from error
    found = differences(read_runbook(str(published["yaml"]).encode()), after)
    told = [msgspec.to_builtins(one) for one in found]
    return {"name": name, "from": published["version"], "to": shown_name(file), "differences": told}


@click.command()
@name_argument
@output_option
@click.pass_obj
def retire(connection: Connection, name: str, output: str) -> None:
    """Retire a runbook: no new batches. Those under way go on."""
    _act(connection, name, "retire", output, "is retired: no new batches, and those under way go on.")


@click.command()
@name_argument
@output_option
@click.pass_obj
def stop(connection: Connection, name: str, output: str) -> None:
    """Stop a runbook's automation.

    Its source is not read, and no phase begins by itself. What has begun goes on, and batches can be made and advanced
    by hand.
    """
    _act(connection, name, "stop", output, "is stopped: its source is not read, and no phase begins by itself.")


@click.command()
@name_argument
@output_option
@click.pass_obj
def start(connection: Connection, name: str, output: str) -> None:
    """Start a runbook's automation again."""
    _act(connection, name, "start", output, "runs by itself again.")


@click.command()
@name_argument
@output_option
@click.pass_obj
def confirm(connection: Connection, name: str, output: str) -> None:
    """Say that a held source is right.

    A source that has far fewer members than before changes nobody until it has more again or is confirmed. The next
    reading then removes those who are gone.
    """
    _act(connection, name, "confirm", output, "is confirmed: the next reading removes the members that are gone.")


@click.command()
@name_argument
@limit_option
@cursor_option
@output_option
@click.pass_obj
def events(connection: Connection, name: str, limit: int, cursor: str, output: str) -> None:
    """Show a runbook's audit trail, newest first."""
    from lucius.cli.runbook_client import open_client
    from lucius.cli.runbook_render import event_table, show_painted

    with open_client(connection) as client:
        page = client.runbook_events(name, limit, cursor)
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_painted(event_table(page["items"], True, is_brief=sys.stdout.isatty()))
    else:
        click.echo("No events." if not cursor else "No more events.", err=True)
    say_more(page["next"])


def _act(connection: Connection, name: str, verb: str, output: str, told: str) -> None:
    from lucius.cli.runbook_client import open_client

    with open_client(connection) as client:
        answer = client.act_on_runbook(name, verb)
    say(answer, output, f"{text_of(answer.get('name') or name)} {told}")


for command in (
    runbook_trying.validate, publish, list_runbooks, show, diff, plan, rehearse, runbook_trying.preview,
    runbook_trying.dry_run, retire, stop, start, confirm, events, runbook_trying.schema, runbook_worker.worker,
    runbook_worker.sample,
):  # fmt: skip
    runbook.add_command(command)

COMMANDS = (runbook,)

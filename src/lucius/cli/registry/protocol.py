"""`lucius protocol`: check, compare and publish one protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import EXIT_FOUND, EXIT_REFUSED
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import output_option, show_json, show_line, show_lines
from lucius.cli.registry.impact import ask_impact, impact_lines, no_impact_option, payloads_option, show_impact
from lucius.cli.registry.running import RegistryFaults, by_option, label_option, run_registry, who
from lucius.cli.runbooks.files import FILE, faults_in, read_text, shown_name
from lucius.cli.serve.server import settings_of
from lucius.client.calls import admin as admin_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

PROTOCOL_BYTES_MAX = 262_144
STORE = "appconfig://"


@click.group()
def protocol() -> None:
    """Check, compare and publish a protocol.

    `lucius protocols` lists those that a server has.
    """


@protocol.command("validate")
@click.argument("file", type=FILE)
@label_option
@output_option
def validate(file: Path, label: str | None, output: str) -> None:
    """Check the protocol in FILE against the configured registry, without a server.

    Needs the extra `server`. Shows every fault as FILE:LINE: message, with exit code 3. A version that the registry has
    already must not say anything else, and no other protocol may serve its request types.
    """
    found = _checked(file, read_text(file, PROTOCOL_BYTES_MAX), label)
    if output == "json":
        show_json(_check_item(found))
    elif found.problems:
        show_lines([str(problem) for problem in found.problems])
        click.echo(f"{shown_name(file)} has {counted(len(found.problems), 'fault')}.", err=True)
    else:
        show_lines([f"{shown_name(file)} is valid: {_described(found)}."])
    if found.problems:
        raise click.exceptions.Exit(EXIT_REFUSED)


@protocol.command("diff")
@click.argument("file", type=FILE)
@payloads_option
@output_option
@click.pass_obj
def diff(connection: Connection, file: Path, payloads: int, output: str) -> None:
    """Compare the protocol in FILE with the running server's version, and show the impact.

    The impact: jobs in flight by version, and which of the newest payloads it would refuse, with the faults. Exit code
    0: no difference. 1: it differs. 3: it is invalid, or the server would not take it.
    """
    text = read_text(file, PROTOCOL_BYTES_MAX)
    with connection.open() as client, faults_in(file, "PROTOCOL_INVALID"):
        preview = client.run(admin_calls.preview_protocol(text, payloads=payloads))
    if output == "json":
        show_json(preview)
    else:
        show_lines([*(preview.get("diff") or ()), *impact_lines(preview)])
    if preview.get("problems"):
        raise click.exceptions.Exit(EXIT_REFUSED)
    if preview.get("diff"):
        raise click.exceptions.Exit(EXIT_FOUND)


@protocol.command("publish")
@click.argument("file", type=FILE)
@label_option
@by_option
@yes_option
@payloads_option
@no_impact_option
@output_option
@click.pass_obj
def publish(
    connection: Connection,
    file: Path,
    label: str | None,
    by: str | None,
    yes: bool,
    payloads: int,
    no_impact: bool,
    output: str,
) -> None:
    """Add the protocol in FILE to the configured registry: a folder, or App Configuration.

    It is checked like `validate`, and shows the impact on the server at --url first. Nothing is ever replaced: a
    changed protocol needs a new version. Exit code 0: done, or published already. 1: declined. 3: refused. 4: the store
    or the server does not answer.
    """
    text = read_text(file, PROTOCOL_BYTES_MAX)
    found = _checked(file, text, label)
    if found.problems:
        raise RegistryFaults([str(problem) for problem in found.problems])
    impact = [] if no_impact or found.is_published else ask_impact(connection, [text], payloads)
    settings = settings_of(registry_label=label)
    done: Any = None
    if not found.is_published:
        if output == "text":
            show_impact(impact)
        confirm(f"Publish {_described(found)}?", yes)
        if settings.registry.startswith(STORE):
            done = run_registry("publish_in_store", settings, shown_name(file), text.encode(), who(by))
        else:
            done = run_registry("publish_in_folder", settings, shown_name(file), text.encode())
    if output == "json":
        show_json({**_check_item(found), "impact": impact, "published": bool(done)})
    elif done:
        where = "App Configuration" if done is True else str(done)
        show_line(f"Published {_described(found)} in {where}. Servers take it up when they look next.")
    else:
        show_line(f"Nothing to do: the registry has {_described(found)}.", err=True)


COMMANDS = (protocol,)


def _checked(file: Path, text: str, label: str | None) -> Any:
    return run_registry("check_protocol", settings_of(registry_label=label), shown_name(file), text.encode())


def _described(found: Any) -> str:
    steps = " → ".join(step.id for step in found.protocol.steps)
    older = "" if found.newest_version == found.protocol.version else f"; new jobs get version {found.newest_version}"
    return f"{found.protocol.id} version {found.protocol.version} ({text_of(steps)}{older})"


def _check_item(found: Any) -> dict[str, Any]:
    faults = [{"place": one.place, "line": one.line, "detail": one.detail} for one in found.problems]
    known = found.protocol
    return {
        "valid": not found.problems,
        "id": known.id if known else None,
        "version": known.version if known else None,
        "already_published": found.is_published,
        "faults": faults,
    }

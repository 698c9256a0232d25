"""`lucius registry`: a folder of YAML files compared with App Configuration, and copied to and from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import EXIT_FOUND
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.formatting import counted, distance, text_of
from lucius.cli.output.printing import output_option, show_json, show_line, show_lines, show_table
from lucius.cli.output.tables import Column, Table
from lucius.cli.registry.impact import ask_impact, no_impact_option, payloads_option, show_impact
from lucius.cli.registry.running import RegistryFaults, by_option, label_option, run_registry, who
from lucius.cli.serve.server import settings_of

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

HISTORY_DEFAULT = 20
HISTORY_MAX = 200
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
folder_argument = click.argument("folder", type=FOLDER)


@click.group()
def registry() -> None:
    """Copy a registry between a folder and App Configuration.

    Protocols, tenants and globals, in the store LUCIUS_REGISTRY=appconfig://… with the label LUCIUS_REGISTRY_LABEL.
    """


@registry.command("diff")
@folder_argument
@label_option
@output_option
def diff(folder: Path, label: str | None, output: str) -> None:
    """Show what a push of FOLDER would change in the store, key by key.

    Exit code 0: nothing. 1: something differs. 3: FOLDER has faults, which are listed.
    """
    planned = _planned(folder, label)
    if output == "json":
        show_json({"differences": _difference_items(planned)})
    elif planned.differences:
        _show_differences(planned)
        click.echo(f"{counted(len(planned.differences), 'key')} would change.", err=True)
    else:
        click.echo("The store holds what the folder has.", err=True)
    if planned.differences:
        raise click.exceptions.Exit(EXIT_FOUND)


@registry.command("push")
@folder_argument
@label_option
@by_option
@yes_option
@click.option("--take-over", is_flag=True, help="Go on although another push seems to be under way.")
@payloads_option
@no_impact_option
@output_option
@click.pass_obj
def push(
    connection: Connection,
    folder: Path,
    label: str | None,
    by: str | None,
    yes: bool,
    take_over: bool,
    payloads: int,
    no_impact: bool,
    output: str,
) -> None:
    """Make the store hold what FOLDER has, and nothing else.

    Everything is checked first, by the rules of serving. Then it shows what would change, and the impact: jobs in
    flight, and recent payloads that changed protocols would refuse, from the server at --url. Servers take a push up as
    a whole. One that ended halfway is continued by the next. Exit code 0: done, or nothing to do. 1: declined. 3:
    refused. 4: the store or the server does not answer, or the push ended halfway.
    """
    planned = _planned(folder, label)
    if planned.under_way and not take_over:
        raise RegistryFaults([f"{planned.under_way}: wait for it, or pass --take-over if it has ended"])
    if planned.plan.is_empty:
        _show_pushed(planned, [], None, output)
        return
    impact = [] if no_impact else ask_impact(connection, _changed_protocols(planned), payloads)
    if output == "text":
        _show_differences(planned)
        show_impact(impact)
    confirm(f"Push {planned.plan.summary}?", yes)
    settings = settings_of(registry_label=label)
    _show_pushed(planned, impact, run_registry("push_planned", settings, planned.plan, who(by)), output)


@registry.command("pull")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@label_option
@click.option("--force", is_flag=True, help="Also replace and remove files that were changed or added here.")
@output_option
def pull(folder: Path, label: str | None, force: bool, output: str) -> None:
    """Make FOLDER hold what the store has.

    A file whose content the store never had is somebody's work, and is left alone: then nothing is written, and the
    exit code is 3, unless --force is given. Each file is replaced as a whole.
    """
    changes = run_registry("plan_folder_pull", settings_of(registry_label=label), folder)
    obstacles = [f"{change.path}: {change.obstacle}" for change in changes if change.obstacle]
    if obstacles and not force:
        raise RegistryFaults(["nothing was written, because these files would be lost; --force does it:", *obstacles])
    run_registry("pull_files", folder, changes)
    items = [{"file": one.path, "key": _key(one.identity), "change": _file_change(one)} for one in changes]
    if output == "json":
        show_json({"files": items})
    elif items:
        show_table(Table((Column("File"), Column("Change")), [(str(one["file"]), one["change"]) for one in items]))
    else:
        click.echo("The folder has what the store holds.", err=True)


@registry.command("history")
@click.option("--limit", type=click.IntRange(1, HISTORY_MAX), default=HISTORY_DEFAULT, show_default=True)
@label_option
@output_option
def history(limit: int, label: str | None, output: str) -> None:
    """List who pushed what and when, newest first.

    App Configuration keeps this for 7 days (Free) or 30.
    """
    found = run_registry("list_pushes", settings_of(registry_label=label), limit)
    if output == "json":
        fields = ("at", "by", "outcome", "summary", "push_id")
        show_json({"items": [{name: getattr(one, name) for name in fields} for one in found]})
        return
    if not found:
        click.echo("Nothing was pushed to this store.", err=True)
        return
    now = datetime.now(UTC)
    rows = [(text_of(one.at), distance(one.at, now), text_of(one.by) or "-", one.outcome) for one in found]
    columns = (Column("At"), Column("When", dispensable=1), Column("By"), Column("Outcome"))
    show_table(Table(columns, rows, "What", [text_of(one.summary) for one in found]))


COMMANDS = (registry,)


def _planned(folder: Path, label: str | None) -> Any:
    planned = run_registry("plan_folder_push", settings_of(registry_label=label), folder)
    if planned.problems:
        raise RegistryFaults([f"{folder} cannot be pushed:", *map(str, planned.problems)])
    return planned


def _changed_protocols(planned: Any) -> list[str]:
    """The texts of those that new jobs would get: of each protocol only the newest version counts."""
    newest: dict[str, int] = {}
    for key in planned.names:
        kind, _, name = key.partition(":")
        if kind == "protocols":
            protocol, _, version = name.rpartition(":")
            newest[protocol] = max(newest.get(protocol, 0), int(version))
    wanted = {f"protocols:{protocol}:{version}" for protocol, version in newest.items()}
    found = [one for one in planned.differences if one.identity in wanted and one.after is not None]
    return [one.after.decode() for one in found]


def _key(identity: str) -> str:
    from lucius.registries.appconfig.keys import key_of

    return key_of(identity)


def _file_change(change: Any) -> str:
    if change.after is None:
        return "removed"
    return "added" if change.before is None else "replaced"


def _difference_items(planned: Any) -> list[dict[str, Any]]:
    return [
        {
            "key": _key(one.identity),
            "change": one.change,
            "file": planned.names.get(one.identity),
            "diff": _diff_lines(one, planned),
        }
        for one in planned.differences
    ]


def _diff_lines(one: Any, planned: Any) -> Sequence[str]:
    lines: Sequence[str] = one.lines(_key(one.identity), planned.names.get(one.identity, "(no file)"))
    return lines


def _show_differences(planned: Any) -> None:
    for one in planned.differences:
        show_lines([f"{_key(one.identity)}: {one.change}", *_diff_lines(one, planned), ""])


def _show_pushed(planned: Any, impact: Sequence[Any], done: Any, output: str) -> None:
    if output == "json":
        pushed = None if done is None else {name: getattr(done, name) for name in ("push_id", "pushed_at", "pushed_by")}
        show_json({"differences": _difference_items(planned), "impact": list(impact), "pushed": pushed})
    elif done is None:
        click.echo("Nothing to push: the store holds what the folder has.", err=True)
    else:
        show_line(f"Pushed by {done.pushed_by}: {done.summary}. Servers take it up when they look next.")

"""`lucius db`: upgrades, backups and care of the ledger's tables."""

from __future__ import annotations

from pathlib import Path

import click

from lucius.cli.failures import EXIT_WITH_FAILURES
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.rows_copied import shown_rows_copied
from lucius.cli.serve.server import data_option, run, settings_of

FILE = click.Path(dir_okay=False, path_type=Path)
ignore_session_option = click.option(
    "--ignore-session",
    "ignored_pids",
    type=int,
    multiple=True,
    metavar="PID",
    help="A PostgreSQL session that is named like LUCIUS but is not. Can be repeated.",
)


@click.group()
def db() -> None:
    """Upgrade, check, back up and restore the ledger's tables.

    \b
    A usual upgrade:
      lucius db backup before.db   SQLite; with PostgreSQL use pg_dump
      lucius db upgrade            migrates the tables to this version's schema
      lucius db contract           later, once no older version is needed any more
    """


@db.command("upgrade")
@ignore_session_option
@click.option("--abandon", is_flag=True, help="Undo an upgrade that was interrupted, if that is still possible.")
@data_option
def db_upgrade(ignored_pids: tuple[int, ...], abandon: bool, data: str | None) -> None:
    """Migrate the tables to this version's schema.

    Can be interrupted and run again at any time: it continues where it stopped. On PostgreSQL it refuses while programs
    run that could not work with the new schema; on SQLite, stop the server first.

    With --abandon, an interrupted upgrade is undone instead, and the previous version of LUCIUS works again.
    """
    settings = settings_of(data=data)
    if abandon:
        click.echo(run("db_abandon", settings))
        return
    with shown_rows_copied() as report:
        said = run("db_upgrade", settings, report, ignored_pids)
    click.echo(said)


@db.command("verify")
@data_option
def db_verify(data: str | None) -> None:
    """Check whether this version can work with the tables; changes nothing."""
    click.echo(run("db_verify", settings_of(data=data)))


@db.command("contract")
@ignore_session_option
@yes_option
@data_option
def db_contract(ignored_pids: tuple[int, ...], yes: bool, data: str | None) -> None:
    """Remove what upgrades have kept for older versions, such as the tables that were replaced.

    There is no way back to an older version afterwards, except with a backup. Refuses while programs run that need what
    would be removed.
    """
    settings = settings_of(data=data)
    confirm("Remove what older versions need, so that there is no way back to them?", yes)
    click.echo(run("db_contract", settings, ignored_pids))


@db.command("backup")
@click.argument("file", type=FILE)
@data_option
def db_backup(file: Path, data: str | None) -> None:
    """Copy the SQLite database to FILE, also while the server runs.

    FILE must not exist. It is one consistent state, checked for damage, and readable by you alone. Keys and tenants'
    files are not in it. With PostgreSQL, use pg_dump.
    """
    click.echo(run("db_backup", settings_of(data=data), file))


@db.command("restore")
@click.argument("file", type=FILE)
@data_option
def db_restore(file: Path, data: str | None) -> None:
    """Replace the SQLite database by the backup FILE. Stop the server first.

    FILE is checked for damage and for its schema version before anything changes. The database that was there is kept
    beside the new one, with .replaced at the end of its name. With PostgreSQL, use pg_restore.
    """
    click.echo(run("db_restore", settings_of(data=data), file))


@db.command("compact")
@data_option
def db_compact(data: str | None) -> None:
    """Make the SQLite file as small as possible.

    Needed once for a file created by an earlier version: from then on it shrinks automatically. Stop the server first;
    the folder needs as much free space as the file has data.
    """
    click.echo(run("db_compact", settings_of(data=data)))


@db.command("copy")
@click.argument("source")
@data_option
@click.pass_context
def db_copy(context: click.Context, source: str, data: str | None) -> None:
    """Copy the jobs of the ledger SOURCE into that of LUCIUS_LEDGER.

    SOURCE is written like LUCIUS_LEDGER: sqlite:///path, postgresql://… or aztables:ledger. Stop the servers on both
    first. Jobs come with their attempts, events, idempotency keys and dismissals; webhooks that are still pending do
    not. Can be run again: jobs that are there already are left alone. Exit code 6: some jobs were not copied; the
    first of them are shown with the reason.
    """
    with shown_rows_copied() as report:
        said, is_whole = run("db_copy", settings_of(data=data), source, report)
    click.echo(said)
    if not is_whole:
        context.exit(EXIT_WITH_FAILURES)


UPKEEP = (db,)

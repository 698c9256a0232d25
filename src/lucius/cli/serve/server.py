"""Commands that run a server or maintain its data. `lucius.roles` does the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import Unreachable, Unusable
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.program import hint
from lucius.cli.times import seconds_of
from lucius.client.calls import admin as admin_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection
    from lucius.settings import Settings

PORT_MAX = 65_535

SERVER_PACKAGES = frozenset(
    {"apsw", "cryptography", "httptools", "jinja2", "jsonschema_rs", "jwt", "msgspec", "pypdf", "starlette"}
    | {"tzdata", "uvicorn", "yaml"}
)
"""Import names of the packages that the extra `server` installs."""


PORT = click.IntRange(0, PORT_MAX)
host_option = click.option("--host", help="The address to listen on. [LUCIUS_HOST; 127.0.0.1]")
port_option = click.option("--port", type=PORT, help="The port. [LUCIUS_PORT; 8000]")
data_option = click.option("--data", metavar="DIR", help="The folder for data and keys. [LUCIUS_DATA; .lucius]")


@click.command()
@host_option
@port_option
@data_option
@click.option("--no-services", is_flag=True, help="Omit the reference services; bring your own.")
@click.option("--sample", is_flag=True, help="Run the sample job first, and show it; the server then stays up.")
@click.option(
    "--profile",
    type=click.Choice(["temporal", "cluster", "azure-local"]),
    help="Each part as a separate process: with PostgreSQL and Temporal, with PostgreSQL and NATS, or with emulators of"
    " Azure.",
)
@click.option("--temporal-port", type=PORT, help="With Temporal in a profile: its port. [a free one]")
@click.option("--temporal-ui-port", type=PORT, help="With Temporal in a profile: the port of its UI. [a free one]")
@click.option("--nats-port", type=PORT, help="With --profile cluster: the port of NATS. [a free one]")
def up(
    host: str | None,
    port: int | None,
    data: str | None,
    no_services: bool,
    sample: bool,
    profile: str | None,
    temporal_port: int | None,
    temporal_ui_port: int | None,
    nats_port: int | None,
) -> None:
    """Run everything in one process: API, engine, services.

    With --profile, every part is a separate process on this machine; they are started, supervised, restarted and
    stopped together. Their logs are in the folder logs of the data folder. `temporal`: the engine on Temporal, ledger
    and bus in PostgreSQL. `cluster`: the ledger in PostgreSQL, the bus on NATS. `azure-local`: the services of Azure
    that LUCIUS uses, as emulators.
    """
    if sample and no_services:
        raise click.UsageError("--sample needs the reference services; leave --no-services out.")
    if profile is None and (temporal_port or temporal_ui_port):
        raise click.UsageError("--temporal-port and --temporal-ui-port are for --profile temporal.")
    if profile != "cluster" and nats_port:
        raise click.UsageError("--nats-port is for --profile cluster.")
    from lucius.cli.serve.sample import run_sample

    settings = settings_of(host=host, port=port, data=data)
    options: dict[str, Any] = {"services": not no_services, "sample": run_sample if sample else None}
    if profile is None:
        run("run_up", settings, **options, hint=hint)
    else:
        wanted = {"temporal": temporal_port, "temporal_ui": temporal_ui_port, "nats": nats_port}
        ports = {name: number or 0 for name, number in wanted.items()}
        run("run_profile", profile, settings, ports, **options)


@click.command()
@host_option
@port_option
@data_option
def api(host: str | None, port: int | None, data: str | None) -> None:
    """Run the API alone. The database must be up to date: see `lucius db upgrade`."""
    run("run_api", settings_of(host=host, port=port, data=data))


@click.command()
@data_option
def worker(data: str | None) -> None:
    """Run the workflows of jobs on Temporal. Needs LUCIUS_ENGINE=temporal."""
    run("run_worker", settings_of(data=data))


@click.command()
@data_option
def reconciler(data: str | None) -> None:
    """Run the dispatcher, the sweeper and the repair of drift."""
    run("run_reconciler", settings_of(data=data))


@click.command()
@data_option
def scheduler(data: str | None) -> None:
    """Run the scheduler of runbooks: sources, due phases and polls.

    Several may run; one of them leads. Needs a shared ledger: `lucius up` has its own.
    """
    run("run_scheduler", settings_of(data=data))


@click.command()
@data_option
def runbooks(data: str | None) -> None:
    """Run an orchestrator of runbooks: sends steps, takes results.

    Any number of them may run. Needs a shared ledger: `lucius up` has its own.
    """
    run("run_runbooks", settings_of(data=data))


@click.command()
@click.option(
    "--older-than",
    callback=seconds_of,
    required=True,
    metavar="DURATION",
    help="How long ago the job ended: 90s, 15m, 12h, 30d, 8w.",
)
@click.option("--offline", is_flag=True, help="Work on the ledger of the settings itself, not through a server.")
@yes_option
@data_option
@click.pass_obj
def prune(connection: Connection, older_than: int, offline: bool, yes: bool, data: str | None) -> None:
    """Delete jobs that ended long ago, with everything that belongs to them.

    The server does it, piece by piece, while it goes on working; needs the role admin. If LUCIUS_ARCHIVE is set, jobs
    are archived first. With --data or --offline: this command does it, and no server may own the SQLite file.
    """
    until = datetime.now(UTC) - timedelta(seconds=older_than)
    confirm(f"Delete every job that ended before {until:%Y-%m-%d %H:%M:%S} UTC, for good?", yes)
    if offline or data is not None:
        _say(run("prune", settings_of(data=data), older_than))
        return
    total = dict.fromkeys(("jobs", "archived", "operations"), 0)
    with connection.open() as client:
        while True:
            done = client.run(admin_calls.prune(older_than))
            total = {name: count + done[name] for name, count in total.items()}
            if not done["more"]:
                break
            click.echo(f"{total['jobs']} jobs removed so far", err=True)
    for line in pruned_lines(total):
        _say(line)


def pruned_lines(total: dict[str, int]) -> list[str]:
    lines = [f"{total['jobs']} jobs removed."]
    lines += [f"{total['archived']} jobs archived."] if total["archived"] else []
    return lines + ([f"{total['operations']} bulk operations removed."] if total["operations"] else [])


COMMANDS = (up, api, worker, reconciler, scheduler, runbooks)
UPKEEP = (prune,)


@contextmanager
def server_packages() -> Iterator[None]:
    """Turns a missing package of the extra `server` into an error that says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SERVER_PACKAGES:
            raise
        raise Unusable(
            f"this needs the server's packages: pip install '.[server]'"
            f" in a clone of LUCIUS ({error.name} is not installed)"
        ) from error


def settings_of(**overrides: Any) -> Settings:
    with server_packages():
        from lucius.settings import SettingsError, read_settings

    try:
        return read_settings(**overrides)
    except SettingsError as error:
        raise Unusable(str(error)) from error


def run(function: str, *arguments: Any, **options: Any) -> Any:
    """Run a role. Imported late, because it imports every adapter."""
    with server_packages():
        from lucius import roles
        from lucius.domain.errors import LuciusError
        from lucius.settings import SettingsError

    try:
        with server_packages():  # A role imports some packages late, such as the reference services.
            return getattr(roles, function)(*arguments, **options)
    except SettingsError as error:
        raise Unusable(str(error)) from error
    except LuciusError as error:
        raise Unreachable(str(error)) from error


def _say(message: Any) -> None:
    click.echo(str(message))

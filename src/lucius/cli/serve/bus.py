"""`lucius bus`: topics and subscriptions on Azure Service Bus, which serving never creates."""

from __future__ import annotations

import click

from lucius.cli.failures import EXIT_FOUND, printable
from lucius.cli.output.printing import show_lines
from lucius.cli.output.program import hint
from lucius.cli.serve.server import data_option, run, settings_of

worker_option = click.option(
    "--worker", "workers", multiple=True, metavar="ID", help="A function worker of runbooks; may be given repeatedly."
)


@click.group()
def bus() -> None:
    """Create and check topics and subscriptions on Azure Service Bus."""


@bus.command("provision")
@click.option(
    "--print",
    "form",
    type=click.Choice(["bicep", "json"]),
    help="Create nothing, and print it: Bicep for Azure, or the Config.json of an emulator.",
)
@worker_option
@data_option
def provision(form: str | None, workers: tuple[str, ...], data: str | None) -> None:
    """Create the topics, subscriptions and filters that the registry and runbooks need, and change what differs.

    Nothing is deleted, and running it again changes nothing. Needs the right to manage the namespace.
    """
    settings = settings_of(data=data)
    if form is not None:
        click.echo(run("bus_print", settings, form, workers))
        return
    done = run("bus_provision", settings, workers)
    show_lines([printable(line) for line in done])
    click.echo(f"{len(done)} created or changed." if done else "Everything is as it should be.", err=True)


@bus.command("check")
@worker_option
@data_option
@click.pass_context
def check(context: click.Context, workers: tuple[str, ...], data: str | None) -> None:
    """Show every topic, subscription and filter that is missing or different, a line each.

    A wrong key, an expired token or a namespace that does not answer is a line as well. Exit code 0: everything is as
    it should be. 1: it is not.
    """
    found = run("bus_check", settings_of(data=data), workers)
    if not found:
        click.echo("Everything is as it should be.", err=True)
        return
    show_lines([printable(line) for line in found])
    advice = hint("`lucius bus provision` creates what is missing and changes what differs.")
    click.echo(f"{len(found)} found. {advice}", err=True)
    context.exit(EXIT_FOUND)


UPKEEP = (bus,)

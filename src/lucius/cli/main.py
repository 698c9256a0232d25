"""`lucius`: the command that runs and uses a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from lucius import __version__
from lucius.cli import completion, profile
from lucius.cli.completing import complete_profiles, connection_of
from lucius.cli.failures import EXIT_CODES, EXIT_INTERRUPTED, EXIT_USAGE
from lucius.cli.inspect import commands as inspect
from lucius.cli.inspect import console, notifications
from lucius.cli.jobs import archive
from lucius.cli.jobs import commands as jobs
from lucius.cli.operations import commands as operations
from lucius.cli.registry import commands as registry
from lucius.cli.registry import protocol
from lucius.cli.runbooks import batch
from lucius.cli.runbooks import commands as runbooks
from lucius.cli.serve import bus, database, doctor, platform, server, temporal
from lucius.cli.tools import appconfig, contract, load, new, servicebus, version
from lucius.client.addresses import URL_DEFAULT

SECTIONS = (
    ("Jobs", (*jobs.COMMANDS, *archive.COMMANDS, *operations.COMMANDS)),
    ("Runbooks", (*runbooks.COMMANDS, *batch.COMMANDS)),
    ("Inspect", (*inspect.COMMANDS, *notifications.COMMANDS, *console.COMMANDS)),
    ("Try and test", (*new.COMMANDS, *contract.COMMANDS, *load.COMMANDS, *servicebus.COMMANDS, *appconfig.COMMANDS)),
    ("Registry", (*protocol.COMMANDS, *registry.COMMANDS)),
    ("Run", (*server.COMMANDS, *platform.COMMANDS)),
    ("Maintain", (*doctor.UPKEEP, *database.UPKEEP, *bus.UPKEEP, *server.UPKEEP, *temporal.UPKEEP, *version.COMMANDS)),
    ("This command line", (*profile.COMMANDS, *completion.COMMANDS)),
)
"""Every command, by its heading in `lucius --help`."""

HELP_CHARS_MAX = 100
"""Help is no wider than this, on wider terminals too."""


class SectionedGroup(click.Group):
    """Lists commands by section, in the order they were added."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sections: list[tuple[str, list[str]]] = []

    def add_section(self, heading: str, commands: Iterable[click.Command]) -> None:
        added = list(commands)
        self.sections.append((heading, [str(command.name) for command in added]))
        for command in added:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 6 - max(len(name) for _, names in self.sections for name in names)
        for heading, names in self.sections:
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_CHARS_MAX},
)
@click.option("--url", envvar="LUCIUS_URL", help=f"The server. [LUCIUS_URL; that of the profile; {URL_DEFAULT}]")
@click.option(
    "--api-key",
    envvar="LUCIUS_API_KEY",
    help="The key to send. [LUCIUS_API_KEY; that of the profile] The default, only for a server on this machine, is "
    "the key in the file api-key of the data folder of `lucius up` ($LUCIUS_DATA, or .lucius).",
)
@click.option(
    "--server-profile",
    envvar="LUCIUS_PROFILE",
    metavar="NAME",
    shell_complete=complete_profiles,
    help="The server and key of this profile; see `lucius profile`. [LUCIUS_PROFILE; the one in use]",
)
@click.version_option(__version__, prog_name="lucius")
@click.pass_context
def cli(context: click.Context, url: str | None, api_key: str | None, server_profile: str | None) -> None:
    """LUCIUS accepts commands and runs them, step by step, to completion."""
    context.obj = connection_of(context)


for heading, commands in SECTIONS:
    cli.add_section(heading, commands)


def main() -> None:
    """The entry point. Exits with the codes that the epilog lists, Ctrl-C included."""
    try:
        code = cli.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader closed the pipe (`lucius list | head`): not a failure, so no traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

"""`lucius`: one command for the server, its roles and the people who use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius import __version__
from lucius.cli import batch, contract, jobs, load, looking, new, platform, runbook, server, temporal
from lucius.cli.failures import EXIT_CODES, EXIT_INTERRUPTED, EXIT_USAGE

if TYPE_CHECKING:
    from lucius.cli.client import Client

URL_DEFAULT = "http://127.0.0.1:8000"
KEY_FILE = "api-key"
KEY_CHARACTERS_MAX = 4_096

SECTIONS = (
    ("Jobs", jobs.COMMANDS),
    ("Runbooks", (*runbook.COMMANDS, *batch.COMMANDS)),
    ("Look around", looking.COMMANDS),
    ("Try and test", (*new.COMMANDS, *contract.COMMANDS, *load.COMMANDS)),
    ("Run", (*server.COMMANDS, *platform.COMMANDS)),
    ("Look after", (*server.UPKEEP, *temporal.UPKEEP)),
)
"""Every command, under the heading that `lucius --help` shows it below."""

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())


@dataclass(frozen=True)
class Connection:
    """Where the server is and how to be known there; nothing is opened before a command needs it."""

    url: str
    api_key: str | None

    def open(self) -> Client:
        from lucius.cli.client import Client

        return Client(self.url, self.key())

    def key(self) -> str:
        return self.api_key or self._key_of_this_machine()

    def _key_of_this_machine(self) -> str:
        """The key that `lucius up` left in the data folder. It is this machine's, so no other server is shown it."""
        from lucius.cli.client import is_loopback

        if not is_loopback(self.url):
            return ""
        try:
            path = Path(os.environ.get("LUCIUS_DATA") or ".lucius") / KEY_FILE
            return path.read_text("utf-8")[:KEY_CHARACTERS_MAX].strip()
        except (OSError, UnicodeDecodeError):
            return ""


class SectionedGroup(click.Group):
    """Commands in the sections that they were given, in the order that they were given in."""

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


@click.group(cls=SectionedGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="LUCIUS_URL", default=URL_DEFAULT, show_default=True, help="The server. [LUCIUS_URL]")
@click.option(
    "--api-key",
    envvar="LUCIUS_API_KEY",
    help="The key to send. [LUCIUS_API_KEY] Without it, a server on this machine gets the key that `lucius up` "
    "keeps in the file api-key of its data folder ($LUCIUS_DATA, or .lucius).",
)
@click.version_option(__version__, prog_name="lucius")
@click.pass_context
def cli(context: click.Context, url: str, api_key: str | None) -> None:
    """LUCIUS takes commands and drives them, step by step, to an end."""
    context.obj = Connection(url, api_key)


for heading, commands in SECTIONS:
    cli.add_section(heading, commands)


def main() -> None:
    """The entry point: exit codes as the epilogue lists them, Ctrl-C included."""
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
        # The reader of our output has gone (`lucius list | head`); that is no failure, and no reason for a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

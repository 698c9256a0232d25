"""What both groups share: the work of `lucius.roles` with its refusals as exit codes, and who does it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from typing import Any

import click

from lucius.cli.failures import EXIT_REFUSED, CommandFailed, Unreachable, Unusable, printable
from lucius.cli.serve.server import run, server_packages

label_option = click.option("--label", help="The environment. [LUCIUS_REGISTRY_LABEL]")
by_option = click.option("--by", help="Who is named in the history. [USER@HOST]")


class RegistryFaults(CommandFailed):
    """What the registry refuses, a line for each fault."""

    exit_code = EXIT_REFUSED

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(printable(line) for line in lines))


def run_registry(function: str, *arguments: Any) -> Any:
    with server_packages():
        from lucius.roles.registry import PushEndedHalfway, RegistryRefused

    try:
        return run(function, *arguments)
    except RegistryRefused as error:
        raise RegistryFaults(str(error).splitlines()) from error
    except PushEndedHalfway as error:
        raise Unreachable(
            f"the push ended halfway: {printable(str(error))}\nServers keep what they have. Run it again to go on."
        ) from error
    except OSError as error:
        raise Unusable(f"{error.filename or 'the folder'} cannot be written: {error.strerror}") from error


def who(by: str | None) -> str:
    """A name for the history; App Configuration itself does not keep one with a key."""
    return by or f"{getpass.getuser()}@{socket.gethostname()}"

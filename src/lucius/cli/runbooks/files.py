"""Input of the runbook commands: YAML and CSV files, start times, and a runbook's text validated offline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from lucius.cli.failures import EXIT_REFUSED, CommandFailed, Refused, Unusable, printable
from lucius.cli.output.formatting import moment
from lucius.client.errors import ClientError

RUNBOOK_BYTES_MAX = 4 * 1024 * 1024
CSV_BYTES_MAX = 64 * 1024 * 1024
START_YEARS = range(1971, 9999)
"""As the server accepts them."""

_LINE = re.compile(r"line (\d+): ")

FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def read_text(file: Path, bytes_max: int) -> str:
    """The text of a file, or of standard input if its name is `-`."""
    name = shown_name(file)
    try:
        with click.open_file(str(file), "rb") as opened:
            content: bytes = opened.read(bytes_max + 1)
    except OSError as error:
        raise Unusable(f"{name} cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise Unusable(f"{name} has more than {bytes_max} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Unusable(f"{name}:{line}: not UTF-8 ({error.reason}): save the file as UTF-8") from error


def shown_name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


@contextmanager
def faults_in(file: Path | None, code: str = "MEMBERS_INVALID") -> Iterator[None]:
    """Tells what the server found wrong with this file by file and line. `code` is that of such an error."""
    try:
        yield
    except Refused as error:
        cause = error.__cause__
        if file is None or error.code != code or not isinstance(cause, ClientError):
            raise
        found = [fault.message for fault in cause.faults] or [cause.message]
        raise InvalidFile(file, found) from error


class InvalidFile(CommandFailed):
    exit_code = EXIT_REFUSED

    def __init__(self, file: Path, faults: Sequence[str]) -> None:
        lines = [member_fault(file, fault) for fault in faults]
        head = [] if len(lines) == 1 else [printable(f"{shown_name(file)} has {len(lines)} faults:")]
        super().__init__("\n".join([*head, *lines]))


def member_fault(file: Path, fault: str) -> str:
    """`FILE:LINE: message` of a fault that begins with its line, and `FILE: message` of any other."""
    found = _LINE.match(fault)
    place = f"{shown_name(file)}:{found[1]}" if found else shown_name(file)
    return printable(f"{place}: {fault[found.end() :] if found else fault}")


def start_time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A time in ISO 8601; UTC without an offset."""
    found = read_moment(context, parameter, value)
    return None if found is None else found.isoformat().replace("+00:00", "Z")


def read_moment(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """The same as a datetime in UTC."""
    if value is None:
        return None
    found = moment(value)
    if found is None:
        message = f"{value!r} is not a time such as 2027-03-15T08:00:00Z or 2027-03-15"
        raise click.BadParameter(message, context, parameter)
    if found.year not in START_YEARS:
        message = f"{value!r} is outside the years {START_YEARS.start} to {START_YEARS.stop - 1} UTC"
        raise click.BadParameter(message, context, parameter)
    return found


def check_offline(text: str) -> dict[str, Any]:
    """The answer of `POST /v1/runbooks:validate`, without a server."""
    from lucius.cli.serve.server import server_packages

    with server_packages():
        from lucius.runbooks.core.definition.validation import validated
    return dict(validated(text.encode()))


def fault_lines(file: Path, faults: Any) -> list[str]:
    """`FILE:LINE: message`, a form that editors and build tools can follow."""
    found = faults if isinstance(faults, list) else []
    return [printable(f"{shown_name(file)}:{fault.get('line')}: {fault.get('message')}") for fault in found]


def now() -> datetime:
    return datetime.now(UTC)

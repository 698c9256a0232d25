"""Exit codes, and the errors that carry them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any

import click

from lucius.cli.output.program import hint
from lucius.cli.output.wrapping import for_terminal
from lucius.client import errors as client_errors
from lucius.client.errors import ClientError

EXIT_OK = 0
EXIT_JOB_FAILED = EXIT_FOUND = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNREACHABLE = 4
EXIT_TIMED_OUT = 5
EXIT_WITH_FAILURES = 6
EXIT_BATCH_CANCELLED = 7
EXIT_NO_CONNECTION = 8
EXIT_INTERRUPTED = 130

EXIT_CODES = {
    EXIT_OK: "success",
    EXIT_JOB_FAILED: "the job that was waited for ended FAILED_FINAL or CANCELLED, the batch that was watched failed, "
    "a contract case failed, a sample failed, temporal check found drift, bus check, registry diff or protocol diff "
    "found differences, doctor found something that does not work, or a question was answered with no",
    EXIT_USAGE: "the command line or a file it names is invalid",
    EXIT_REFUSED: "the server rejected the request (4xx), validate, runbook validate or protocol validate found "
    "faults, or registry or protocol refused to change something",
    EXIT_UNREACHABLE: "the server or the store is unreachable (no response, or 5xx), a push ended halfway, or the "
    "tested service never pulled",
    EXIT_TIMED_OUT: "the wait timed out; the job or batch continues",
    EXIT_WITH_FAILURES: "the batch that was watched completed, and some of its members did not succeed; db copy "
    "left jobs out",
    EXIT_BATCH_CANCELLED: "the batch that was watched was cancelled",
    EXIT_NO_CONNECTION: "the runbook is published, but the server has no connection of the name that it gives",
    EXIT_INTERRUPTED: "interrupted with Ctrl-C",
}

SATURATED = "`lucius tenants` shows the jobs in flight and the limits."

HINTS = {
    "UNAUTHENTICATED": "Pass the key with --api-key or LUCIUS_API_KEY, or run this in the folder of `lucius up`.",
    "JOB_NOT_FOUND": "`lucius list` shows the jobs that this key may see.",
    "REQUEST_TYPE_UNKNOWN": "`lucius protocols` lists the request types.",
    "PAYLOAD_INVALID": "`lucius protocols ID` shows the payload of each step of a protocol.",
    "REF_FORBIDDEN": "Allowed schemes, hosts, containers and folders are configured for each tenant.",
    "TENANT_SATURATED": SATURATED,
    "MODE_SATURATED": SATURATED,
    "GLOBAL_SATURATED": SATURATED,
}


class CommandFailed(click.ClickException):
    """An error reported by a message on stderr and an exit code."""

    def format_message(self) -> str:
        return hint(self.message)

    def show(self, file: IO[Any] | None = None) -> None:
        stream = file or sys.stderr
        click.echo(for_terminal(f"Error: {self.format_message()}", stream), file=stream)


class Unusable(CommandFailed):
    """A file or setting that cannot be used."""

    exit_code = EXIT_USAGE


class Refused(CommandFailed):
    exit_code = EXIT_REFUSED

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: str = "") -> None:
        self.code = str(problem.get("code") or f"HTTP_{status}")
        super().__init__(problem_text(status, problem, retry_after))


class Invalid(CommandFailed):
    """A command that the server would reject, with every fault."""

    exit_code = EXIT_REFUSED

    def __init__(self, name: str, faults: Any) -> None:
        found = [fault for fault in faults if isinstance(fault, Mapping)] if isinstance(faults, list) else []
        lines = [f"{name} is not a valid command: {len(found)} fault{'' if len(found) == 1 else 's'}"]
        lines += [fault_text(fault) for fault in found]
        lines += dict.fromkeys(HINTS[code] for fault in found if (code := str(fault.get("code"))) in HINTS)
        super().__init__("\n".join(printable(line) for line in lines))


class Unreachable(CommandFailed):
    exit_code = EXIT_UNREACHABLE


class TimedOut(CommandFailed):
    exit_code = EXIT_TIMED_OUT


def command_failed(url: str, error: ClientError) -> CommandFailed:
    """Converts a client error into the error that commands report."""
    if isinstance(error, client_errors.Refused) and error.status is not None:
        retry_after = "" if error.retry_after_seconds is None else f"{error.retry_after_seconds:g}"
        return Refused(error.status, error.problem, retry_after)
    if isinstance(error, client_errors.WaitTimedOut):
        return TimedOut(error.message)
    if error.status is not None and error.status >= 300:
        return Unreachable(f"{url} is unavailable: {problem_text(error.status, error.problem)}")
    if isinstance(error, client_errors.AnswerInvalid):
        return Unreachable(f"{url} did not answer with a JSON object; is it a LUCIUS server?")
    return Unreachable(
        f"{url} is unreachable: {error.message}\nStart a server with `lucius up`, or choose one with --url."
    )


def problem_text(status: int, problem: Mapping[str, Any], retry_after: str = "") -> str:
    """A problem+json body as text: code and detail, each fault with its location, and a hint."""
    code = str(problem.get("code") or f"HTTP {status}")
    detail = str(problem.get("detail") or problem.get("title") or "the server gave no reason")
    lines = [f"{code}: {detail}"]
    faults = problem.get("errors")
    for fault in faults if isinstance(faults, list) else []:
        if isinstance(fault, Mapping) and (fault.get("pointer") or fault.get("detail") != detail):
            lines.append(fault_text(fault))
    if retry_after:
        lines.append(f"Try again in {retry_after} s.")
    if code in HINTS:
        lines.append(HINTS[code])
    if problem.get("correlation_id"):
        lines.append(f"correlation id: {problem['correlation_id']}")
    return "\n".join(printable(line) for line in lines)


def fault_text(fault: Mapping[str, Any]) -> str:
    return f"  {fault.get('pointer') or '(whole body)'}: {fault.get('detail')} [{fault.get('code')}]"


def printable(text: str) -> str:
    """Replaces control characters: text from tenants and services must not control the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)

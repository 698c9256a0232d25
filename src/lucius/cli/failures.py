"""How a command ends: every exit code, and the errors that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

EXIT_OK = 0
EXIT_JOB_FAILED = EXIT_FOUND = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNREACHABLE = 4
EXIT_TIMED_OUT = 5
EXIT_INTERRUPTED = 130

EXIT_CODES = {
    EXIT_OK: "done",
    EXIT_JOB_FAILED: "the job that was waited for ended FAILED_FINAL or CANCELLED, the batch that was watched failed, "
    "a contract case failed, a sample went wrong, or temporal check found drift",
    EXIT_USAGE: "the command line or a file it names cannot be used",
    EXIT_REFUSED: "the server refused (an answer of 4xx), or validate or runbook validate found faults",
    EXIT_UNREACHABLE: "the server is out of reach (no answer, or 5xx), or the tested service never pulled",
    EXIT_TIMED_OUT: "the time for waiting ran out; the job or batch goes on",
    EXIT_INTERRUPTED: "interrupted with Ctrl-C",
}

SATURATED = "`lucius tenants` shows how many jobs are in flight, and how many may be."

HINTS = {
    "UNAUTHENTICATED": "Give the key with --api-key or LUCIUS_API_KEY, or go where `lucius up` was started.",
    "JOB_NOT_FOUND": "`lucius list` shows the jobs that this key may see.",
    "REQUEST_TYPE_UNKNOWN": "`lucius protocols` lists what can be asked for.",
    "PAYLOAD_INVALID": "`lucius protocols ID` shows what each step of a protocol takes.",
    "REF_FORBIDDEN": "The tenant's ref policy decides which schemes, hosts and containers are allowed.",
    "TENANT_SATURATED": SATURATED,
    "MODE_SATURATED": SATURATED,
    "GLOBAL_SATURATED": SATURATED,
}


class CommandFailed(click.ClickException):
    """An error that a person reads on stderr and a script reads from the exit code."""


class Unusable(CommandFailed):
    """A file or setting that cannot be used."""

    exit_code = EXIT_USAGE


class Refused(CommandFailed):
    exit_code = EXIT_REFUSED

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: str = "") -> None:
        self.code = str(problem.get("code") or f"HTTP_{status}")
        super().__init__(problem_text(status, problem, retry_after))


class Invalid(CommandFailed):
    """A command that would be refused, with every reason."""

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


def problem_text(status: int, problem: Mapping[str, Any], retry_after: str = "") -> str:
    """A problem+json body for people: the code and detail, each fault with its place, what to do about it."""
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
    """Without control characters: what tenants and services wrote must not steer the reader's terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)

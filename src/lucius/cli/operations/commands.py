"""`lucius operations`: bulk operations, listed, shown, watched, paused, resumed, abandoned."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_operations
from lucius.cli.failures import EXIT_JOB_FAILED, EXIT_OK, TimedOut
from lucius.cli.ids import find_operation
from lucius.cli.interrupted import left_alone
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.formatting import distance, text_of, time_taken
from lucius.cli.output.printing import output_option, say_more, show_json, show_sentence, show_sentences, show_table
from lucius.cli.output.program import hint
from lucius.cli.output.tables import Column, Table
from lucius.client.calls import operations as operation_calls
from lucius.client.retrying import PATIENCE_SECONDS
from lucius.client.statuses import OPERATION_WAITED_FOR

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession, Connection

POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 3_600.0
TIMEOUT_SECONDS_MAX = 7 * 86_400.0
LIST_DEFAULT, LIST_MAX = 20, 10_000
OUTCOMES = ("PENDING", "STARTED", "SUCCEEDED", "FAILED", "SKIPPED")
COUNTS = ("pending", "started", "succeeded", "failed", "skipped")

operation_argument = click.argument("operation_id", metavar="OPERATION", shell_complete=complete_operations)


@click.group()
def operations() -> None:
    """Bulk operations: one action on all jobs that match.

    `lucius cancel`, `pause`, `resume` and `redrive` start them when they are given filters instead of a JOB.
    """


@operations.command("list")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=LIST_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@output_option
@click.pass_obj
def list_operations(connection: Connection, limit: int, cursor: str, output: str) -> None:
    """List bulk operations, newest first."""
    with connection.open() as client:
        page = client.run(operation_calls.list_operations(limit=limit, cursor=cursor))
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_table(operation_table(page["items"], datetime.now(UTC)))
    else:
        click.echo("No operations.", err=True)
    say_more(page["next"])


@operations.command()
@operation_argument
@output_option
@click.pass_obj
def show(connection: Connection, operation_id: str, output: str) -> None:
    """Show where an operation stands, and what was done to it."""
    with connection.open() as client:
        operation = client.run(operation_calls.get_operation(find_operation(client, operation_id)))
    if output == "json":
        show_json(operation)
        return
    show_sentences(operation_lines(operation, datetime.now(UTC)))


@operations.command()
@operation_argument
@click.option("--status", type=click.Choice(OUTCOMES, case_sensitive=False), help="Only jobs with this outcome.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=LIST_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@output_option
@click.pass_obj
def outcomes(
    connection: Connection, operation_id: str, status: str | None, limit: int, cursor: str, output: str
) -> None:
    """List what became of each job of an operation, oldest job first."""
    with connection.open() as client:
        operation_id = find_operation(client, operation_id)
        page = client.run(operation_calls.outcomes(operation_id, status=status, limit=limit, cursor=cursor))
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_table(outcome_table(page["items"]))
    else:
        click.echo("No such jobs." if status else "No jobs.", err=True)
    say_more(page["next"])


@operations.command()
@operation_argument
@click.option(
    "--timeout",
    type=click.FloatRange(0.0, TIMEOUT_SECONDS_MAX, min_open=True),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end; exit code 5 after that.",
)
@output_option
@click.pass_obj
def watch(connection: Connection, operation_id: str, timeout: float, output: str) -> None:
    """Show an operation's progress until it ends or stops; exit code 1 unless every job succeeded or was skipped."""
    with connection.open() as client:
        follow(client, find_operation(client, operation_id), timeout, output)


def _steering(verb: str, text: str, question: str = "") -> click.Command:
    """`question`: what to ask before it, if it cannot be taken back."""

    @operations.command(verb, help=text)
    @operation_argument
    @click.option("--reason", help="Why; it is kept with the operation.")
    @output_option
    @click.pass_obj
    def command(connection: Connection, operation_id: str, reason: str | None, output: str, yes: bool = False) -> None:
        with connection.open() as client:
            operation_id = find_operation(client, operation_id)
            if question:
                confirm(question.format(operation_id), yes)
            operation = client.run(operation_calls.steer(operation_id, verb, reason))
        if output == "json":
            show_json(operation)
        else:
            show_sentence(f"Operation {operation_id} {operation.get('status')}: {operation.get('sentence')}")

    return yes_option(command) if question else command


_steering("pause", "Act on no more jobs until the operation is resumed.")
_steering("resume", "Resume an operation that was paused or has stopped; failures are counted anew.")
_steering(
    "abandon", "End an operation; the jobs that it has not acted on are left alone.",
    "End operation {}, so that it cannot be resumed?",
)  # fmt: skip

COMMANDS = (operations,)


def follow(client: ApiSession, operation_id: str, timeout_seconds: float, output: str) -> None:
    """Wait for the end, showing each change, and exit with the matching code."""
    try:
        operation = _until_waited_for(client, operation_id, timeout_seconds, output)
    except KeyboardInterrupt:
        commands = {
            f"lucius operations watch {operation_id}": "follows it",
            f"lucius operations pause {operation_id}": "pauses it",
            f"lucius operations abandon {operation_id}": "ends it",
        }
        raise left_alone(f"Operation {operation_id}", commands) from None
    if output == "json":
        show_json(operation)
    elif operation.get("failed"):
        show_sentence(hint(f"See `lucius operations outcomes {operation_id} --status FAILED`."), err=True)
    is_good = operation.get("status") == "COMPLETED" and not operation.get("failed")
    raise click.exceptions.Exit(EXIT_OK if is_good else EXIT_JOB_FAILED)


def _until_waited_for(client: ApiSession, operation_id: str, timeout_seconds: float, output: str) -> dict[str, Any]:
    deadline, said = time.monotonic() + timeout_seconds, ""
    while True:
        operation = client.run(operation_calls.get_operation(operation_id, patience_seconds=PATIENCE_SECONDS))
        line = f"{operation.get('status')}: {operation.get('sentence')}"
        if output == "text" and line != said:
            show_sentence(line)
            said = line
        if operation.get("status") in OPERATION_WAITED_FOR:
            return operation
        left = deadline - time.monotonic()
        if left <= 0:
            state = operation.get("status")
            raise TimedOut(f"operation {operation_id} is still {state} after {timeout_seconds:g} s; it continues")
        time.sleep(min(POLL_SECONDS, left))


def operation_table(items: list[dict[str, Any]], now: datetime) -> Table:
    rows = [
        (
            text_of(one.get("operationId")),
            text_of(one.get("action")),
            text_of(one.get("status")),
            text_of(one.get("jobs")),
            text_of(one.get("pending")),
            text_of(one.get("failed")),
            text_of(one.get("by")),
            distance(one.get("created_at"), now),
        )
        for one in items
    ]
    columns = (
        Column("Operation"), Column("Action"), Column("Status"), Column("Jobs"), Column("Pending", dispensable=2),
        Column("Failed"), Column("By", dispensable=3), Column("Created", dispensable=1),
    )  # fmt: skip
    return Table(columns, rows, "Reason", [text_of(one.get("reason")) for one in items])


def operation_lines(operation: dict[str, Any], now: datetime) -> list[str]:
    wanted = operation.get("filter") or {}
    tenants = operation.get("tenants")
    parts = [f"{name}={text_of(value)}" for name, value in wanted.items() if value is not None]
    named = "" if tenants is None else text_of(", ".join(map(str, tenants)))
    parts.insert(0, "all tenants" if tenants is None else f"tenant{'s' if len(tenants) > 1 else ''} {named}")
    lines = [
        f"Operation {text_of(operation.get('operationId'))}: {text_of(operation.get('action'))},"
        f" {text_of(operation.get('status'))}",
        text_of(operation.get("sentence")),
        f"Jobs: {text_of(operation.get('jobs'))} of {', '.join(parts)}",
        "Outcomes: " + ", ".join(f"{text_of(operation.get(name))} {name}" for name in COUNTS),
        f"Rate: {operation.get('rate_per_second') or 0:g} a second; canary: {text_of(operation.get('canary'))};"
        f" failures allowed: {'any' if operation.get('max_failures') is None else operation['max_failures']}",
        f"Took: {time_taken(operation.get('created_at'), operation.get('ended_at'), now)}",
    ]
    for event in operation.get("events") or ():
        by = f" by {text_of(event['by'])}" if event.get("by") else ""
        reason = f": {text_of(event['reason'])}" if event.get("reason") else ""
        lines.append(f"{text_of(event.get('at'))}  {text_of(event.get('type'))}{by}{reason}")
    return lines


def outcome_table(items: list[dict[str, Any]]) -> Table:
    rows = [
        (
            text_of(item.get("jobId")),
            text_of(item.get("tenant_id")),
            text_of(item.get("status")),
            text_of(item.get("new_jobId")),
        )
        for item in items
    ]
    columns = (Column("Job"), Column("Tenant", dispensable=1), Column("Outcome"), Column("New job", dispensable=2))
    return Table(columns, rows, "Why", [text_of(item.get("detail")) for item in items])

"""`lucius list` and `lucius events`: once, or as they change."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_jobs, complete_tenants
from lucius.cli.failures import TimedOut
from lucius.cli.ids import find_job, shortened
from lucius.cli.jobs.waiting import TIMEOUT_SECONDS_MAX, timeout_option
from lucius.cli.outage import Note, PatientSession, say_on_stderr
from lucius.cli.output.printing import (
    open_console,
    output_option,
    say_more,
    show_json,
    show_lines,
    show_sentence,
    show_table,
)
from lucius.cli.times import past_time
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lucius.cli.connection import ApiSession, Connection
    from lucius.cli.output.tables import Table

LIST_DEFAULT, LIST_MAX = 20, 10_000
EVENTS_DEFAULT = 1_000
STATUSES = ("QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED_FINAL", "CANCELLED")
WATCH_SECONDS = 2.0
WATCH_TIMEOUT_SECONDS = 86_400.0
REDRAWS_PER_SECOND = 2.0
AWAY_SECONDS_MAX = 300.0

job_argument = click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)


def read_statuses(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[str]:
    """Each value is a status, or several with commas between."""
    choice = click.Choice(STATUSES, case_sensitive=False)
    found = [choice.convert(part.strip(), parameter, context) for value in values for part in value.split(",")]
    return list(dict.fromkeys(found))


def complete_statuses(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + status for status in STATUSES if status.startswith(last.upper())]


@click.command("list")
@click.option("--tenant", shell_complete=complete_tenants, help="Only this tenant's jobs.")
@click.option(
    "--status",
    multiple=True,
    callback=read_statuses,
    shell_complete=complete_statuses,
    metavar="STATUS",
    help="Only jobs in this state, or in one of several: repeat it, or put commas between.",
)
@click.option("--type", "request_type", help="Only this request type.")
@click.option(
    "--from", "created_from", callback=past_time, metavar="TIME",
    help="Created at this time (ISO 8601) or later, or within this long: 90s, 1h, 7d.",
)  # fmt: skip
@click.option(
    "--to", "created_to", callback=past_time, metavar="TIME", help="Created before this time, or this long ago."
)
@click.option("--signature", "error_signature", help="Only jobs that failed for this reason (error_signature).")
@click.option("--correlation-id", help="Only jobs with this correlation id.")
@click.option("--key", "idempotency_key", help="Only the job accepted under this idempotency key.")
@click.option("--payload", metavar="FIELD=VALUE", help="Only jobs with this value in a searchable field.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=LIST_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@click.option("--watch", "watching", is_flag=True, help="Show the list again whenever it changes, until Ctrl-C.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.0, TIMEOUT_SECONDS_MAX, min_open=True),
    default=WATCH_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to watch; exit code 5 after that.",
)
@output_option
@click.pass_obj
def list_jobs(
    connection: Connection,
    /,
    status: list[str],
    limit: int,
    cursor: str,
    watching: bool,
    timeout: float,
    output: str,
    **filters: str | None,
) -> None:
    """List jobs, newest first.

    On a terminal that is too narrow, ids are cut where they differ: every command takes the first characters of an id.
    """
    if watching and output == "json":
        raise click.UsageError("--watch is for people: without --output json, or repeat the command instead.")
    tenant_id = filters.pop("tenant")

    def page_call() -> Any:
        return job_calls.jobs(tenant_id=tenant_id, status=status or None, **filters, limit=limit, cursor=cursor)

    with connection.open() as client:
        if watching:
            _watch(client, page_call, timeout)
        page = client.run(page_call())
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_table(_fitted(page["items"], _width(), datetime.now(UTC)))
    else:
        click.echo("No jobs.", err=True)
    say_more(page["next"])


def _width() -> int | None:
    """In cells, of a terminal."""
    return open_console().width if sys.stdout.isatty() else None


def _fitted(items: list[dict[str, Any]], width: int | None, now: datetime) -> Table:
    """With whole ids, unless a terminal is too narrow for them."""
    from lucius.cli.jobs.render import job_table
    from lucius.cli.output.tables import table_lines

    table = job_table(items, now)
    if width is None or max(len(line) for line in table_lines(table)) <= width:
        return table
    short = shortened([str(job.get("jobId")) for job in items])
    return job_table([{**job, "jobId": cut} for job, cut in zip(items, short, strict=True)], now)


def _watch(client: ApiSession, page_call: Callable[[], Any], timeout_seconds: float) -> None:
    """Never returns: ends with Ctrl-C, or when the time is up."""
    deadline = time.monotonic() + timeout_seconds
    stop = threading.Event()
    if sys.stdout.isatty():
        _watch_on_terminal(client, page_call, deadline, stop)
    else:
        patient = PatientSession(client, AWAY_SECONDS_MAX, "The list", say_on_stderr, stop)
        before: dict[str, Any] = {}
        while time.monotonic() < deadline:
            before = _show_changes(patient.run(page_call)["items"], before)
            stop.wait(min(WATCH_SECONDS, max(0.0, deadline - time.monotonic())))
    raise TimedOut(f"the list was watched for {timeout_seconds:g} s")


def _watch_on_terminal(
    client: ApiSession, page_call: Callable[[], Any], deadline: float, stop: threading.Event
) -> None:
    from lucius.cli.output.live import redrawn
    from lucius.cli.output.tables import table_view

    note = Note()
    patient = PatientSession(client, AWAY_SECONDS_MAX, "The list", note, stop)
    items = patient.run(page_call)["items"]

    def view(width: int, live: bool) -> RenderableType:
        from rich.text import Text

        table = _fitted(items, width, datetime.now(UTC)) if items else None
        shown = table_view(table, width) if table else Text("No jobs.")
        return note.below(shown) if live else shown

    with redrawn(view, REDRAWS_PER_SECOND):
        while time.monotonic() < deadline:
            stop.wait(min(WATCH_SECONDS, max(0.0, deadline - time.monotonic())))
            items = patient.run(page_call)["items"]


def _show_changes(items: list[dict[str, Any]], before: Mapping[str, Any]) -> dict[str, Any]:
    """Without a terminal: the jobs that are new or in another state than before, a line each."""
    from lucius.cli.jobs.render import job_table
    from lucius.cli.output.tables import table_lines

    states = {str(job.get("jobId")): (job.get("status"), job.get("progress")) for job in items}
    changed = [job for job in reversed(items) if before.get(str(job.get("jobId"))) != states[str(job.get("jobId"))]]
    if changed:
        lines = table_lines(job_table(changed, datetime.now(UTC)))
        show_lines(lines if not before else lines[1:])
    return states


@click.command()
@job_argument
@click.option("--follow", "following", is_flag=True, help="Show events as they happen, until the job has ended.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=EVENTS_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@timeout_option
@output_option
@click.pass_obj
def events(
    connection: Connection, job_id: str, following: bool, limit: int, cursor: str, timeout: float, output: str
) -> None:
    """Show a job's audit trail: every change and every callback.

    With --follow and --output json, an event is a line.
    """
    with connection.open() as client:
        job_id = find_job(client, job_id)
        if following:
            _follow(client, job_id, cursor, timeout, output)
            return
        page = client.run(job_calls.events(job_id, limit=limit, cursor=cursor))
    if output == "json":
        show_json(page)
        return
    from lucius.cli.jobs.render import event_table, event_table_in_brief

    if not page["events"]:
        click.echo("No events." if not cursor else "No more events.", err=True)
    else:
        show_table(event_table_in_brief(page["events"]) if sys.stdout.isatty() else event_table(page["events"]))
    if len(page["events"]) >= limit:
        say_more(page["next"])


def _follow(client: ApiSession, job_id: str, cursor: str, timeout_seconds: float, output: str) -> None:
    from lucius.cli.jobs.render import event_line

    if cursor and not (cursor.isascii() and cursor.isdigit()):
        raise click.UsageError("--cursor of events is a number.")
    after = int(cursor or 0)
    for event in client.follow(job_calls.follow(job_id, after=after, timeout_seconds=timeout_seconds)):
        if output == "json":
            show_json(event, in_one_line=True)
        else:
            show_sentence(event_line(event, is_brief=sys.stdout.isatty()))

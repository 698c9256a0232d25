"""Commands that inspect a server: protocols, lanes, tenants, dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.completing import complete_jobs, complete_protocols
from lucius.cli.ids import find_job
from lucius.cli.inspect.schemas import schema_table
from lucius.cli.output.formatting import counted, distance, error_text, steps_text, text_of, time_taken
from lucius.cli.output.printing import (
    output_option,
    say_more,
    show_json,
    show_line,
    show_lines,
    show_sentences,
    show_table,
)
from lucius.cli.output.tables import Column, Table
from lucius.client.calls import admin as admin_calls
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

LETTERS_DEFAULT = 20
LETTERS_MAX = 200
"""Both lists come in one call; messages are not paginated."""
NOTE_LINES_MAX = 3
"""Lines of an error in a list on a terminal; `lucius why` shows the full error."""


@click.command()
@click.argument("protocol_id", metavar="[ID]", required=False, shell_complete=complete_protocols)
@output_option
@click.pass_obj
def protocols(connection: Connection, protocol_id: str | None, output: str) -> None:
    """List protocols and request types.

    With ID (a protocol id or request type): its steps, their services, and the fields of their payloads.
    """
    with connection.open() as client:
        answer = client.run(job_calls.protocol(protocol_id) if protocol_id else job_calls.protocols())
    if output == "json":
        show_json(answer)
    elif protocol_id:
        show_protocol(answer)
    elif answer.get("items"):
        show_table(protocol_table(answer["items"]))
    else:
        click.echo("No protocols: the server's registry is empty.", err=True)


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Include empty subscriptions.")
@output_option
@click.pass_obj
def lanes(connection: Connection, show_all: bool, output: str) -> None:
    """Show the backlog of the lanes.

    For each service: unsent (not on the bus yet; "held" if its tenant has as many there as it may), ready to be taken,
    locked (taken and not yet acknowledged), again (delivered more than once), dead (the bus gave up), and how many
    instances ask for work.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.lanes())
    if output == "json":
        show_json(answer)
        return
    now = datetime.now(UTC)
    items = answer.get("items") or []
    if table := lane_table(items, now, show_all):
        show_table(table)
    held = [subscription for _, subscription in subscriptions(items) if holds_anything(subscription)]
    click.echo(lane_summary(items, now), err=not held)
    for note in dict.fromkeys(one["note"] for _, one in subscriptions(items) if one.get("note")):
        show_line(f"{text_of(note)[:1].upper()}{text_of(note)[1:]}.", err=True)


@click.command()
@output_option
@click.pass_obj
def tenants(connection: Connection, output: str) -> None:
    """Show tenants and their jobs in flight against the limits.

    Includes tenants that are registered or have jobs in flight.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.tenants())
    if output == "json":
        show_json(answer)
        return
    if answer.get("items"):
        show_table(tenant_table(answer["items"]))
    else:
        click.echo("No tenant is registered, and none has jobs in flight.", err=True)
    show_line(f"Total in flight: {share(answer)}", err=not answer.get("items"))


@click.command()
@output_option
@click.pass_obj
def workers(connection: Connection, output: str) -> None:
    """Show who asks for work: services and function workers.

    Each instance with its version, when it was last seen, and how much it had in work when it last asked for more.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.workers())
    if output == "json":
        show_json(answer)
    elif answer.get("items"):
        show_table(worker_table(answer["items"], datetime.now(UTC)))
    else:
        click.echo("Nobody has asked for work yet: start a service or a function worker.", err=True)


@click.command("dead-letters")
@click.option(
    "--limit",
    type=click.IntRange(1, LETTERS_MAX),
    default=LETTERS_DEFAULT,
    show_default=True,
    help="Maximum number of jobs, and of messages.",
)
@click.option("--cursor", default="", help="Continue an earlier list of jobs.")
@click.option("--dismissed", is_flag=True, help="Show the jobs that were dismissed, with who did it and why.")
@output_option
@click.pass_obj
def dead_letters(connection: Connection, limit: int, cursor: str, dismissed: bool, output: str) -> None:
    """List failed jobs and dead messages.

    Jobs that failed permanently and were neither redriven nor dismissed, newest first, and messages that the bus gave
    up on.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.dead_letters(limit=limit, cursor=cursor, dismissed=dismissed))
    if output == "json":
        show_json(answer)
        return
    now = datetime.now(UTC)
    failed, messages = answer.get("items") or [], answer.get("messages") or []
    if dismissed:
        _show_dismissed(answer.get("dismissals") or [], now)
        say_more(answer.get("next"))
        return
    if failed:
        show_table(failed_table(failed, now), note_lines_max=NOTE_LINES_MAX)
    else:
        click.echo("No failed jobs." if not cursor else "No more jobs.", err=True)
    if messages:
        show_lines(["", "Messages that the bus gave up on:"])
        show_table(message_table(messages, now), note_lines_max=NOTE_LINES_MAX)
    else:
        click.echo("No dead messages.", err=True)
    say_more(answer.get("next"))
    if len(messages) >= limit:
        click.echo(f"There may be more messages: --limit goes up to {LETTERS_MAX}.", err=True)


@click.command()
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--reason", required=True, help="Why nobody needs to look at it any more; kept.")
@output_option
@click.pass_obj
def dismiss(connection: Connection, job_id: str, reason: str, output: str) -> None:
    """Take a failed job off the list of dead letters.

    The job itself stays as it is, and can still be redriven.
    """
    with connection.open() as client:
        answer = client.run(admin_calls.dismiss(find_job(client, job_id), reason=reason))
    if output == "json":
        show_json(answer)
        return
    show_lines([f"Job {text_of(answer.get('jobId'))} is off the dead letters: {text_of(answer.get('reason'))}"])


def _show_dismissed(dismissals: Sequence[Mapping[str, Any]], now: datetime) -> None:
    if not dismissals:
        click.echo("No dismissed jobs.", err=True)
        return
    rows = [
        (text_of(one.get("jobId")), text_of(one.get("dismissed_by")), distance(one.get("dismissed_at"), now))
        for one in dismissals
    ]
    columns = (Column("Job"), Column("Dismissed by"), Column("When"))
    show_table(Table(columns, rows, "Reason", [text_of(one.get("reason")) for one in dismissals]))


COMMANDS = (protocols, lanes, workers, tenants, dead_letters, dismiss)


# --- Output ----------------------------------------------------------------------------------------------------------


def protocol_table(items: list[dict[str, Any]]) -> Table:
    rows = [
        (
            text_of(protocol.get("id")),
            text_of(protocol.get("version")),
            steps_text(protocol.get("steps")),
            text_of(", ".join(protocol.get("request_types") or ())),
        )
        for protocol in items
    ]
    columns = (Column("Id"), Column("Version", dispensable=2), Column("Steps"), Column("Request types", dispensable=1))
    return Table(columns, rows, "Description", [text_of(protocol.get("description")) for protocol in items])


def show_protocol(protocol: Mapping[str, Any]) -> None:
    show_sentences([f"{text_of(protocol.get('id'))}, version {text_of(protocol.get('version'))}"])
    if protocol.get("description"):
        show_sentences([text_of(protocol["description"])])
    show_sentences([f"Request types: {text_of(', '.join(protocol.get('request_types') or ()))}"])
    for number, step in enumerate(protocol.get("steps") or (), start=1):
        name, service = text_of(step.get("stepId")), text_of(step.get("service"))
        pointer = text_of(step.get("payload_pointer"))
        of_payload = f"the part {pointer} of the payload" if pointer else "the whole payload"
        schema = step.get("payload_schema")
        closed = isinstance(schema, Mapping) and schema.get("additionalProperties") is False
        show_lines(["", f"{number}. {name}, by service {service}, with {of_payload}:"])
        if table := schema_table(schema):
            show_table(table)
            if closed:
                show_sentences(["No other fields."])
        else:
            show_sentences(["No fields." if closed else "Any fields."])


def subscriptions(items: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for lane in items:
        for subscription in lane.get("subscriptions") or ():
            yield lane, subscription


def holds_anything(subscription: Mapping[str, Any]) -> bool:
    return any(subscription.get(name) for name in ("unsent", "ready", "locked", "dead"))


def lane_table(items: list[dict[str, Any]], now: datetime, show_all: bool) -> Table | None:
    rows = [
        (
            text_of(lane.get("lane")),
            text_of(subscription.get("service")),
            *(text_of(subscription.get(name)) for name in ("ready", "locked", "dead")),
            time_taken(subscription.get("oldest_at"), None, now),
            unsent_text(subscription),
            text_of(subscription.get("redelivered") or 0),
            text_of(subscription.get("consumers") or 0),
        )
        for lane, subscription in subscriptions(items)
        if show_all or holds_anything(subscription)
    ]
    names = ("Lane", "Service", "Ready", "Locked", "Dead", "Oldest")
    more = (Column("Unsent"), Column("Again", dispensable=2), Column("Consumers", dispensable=1))
    return Table((*(Column(name) for name in names), *more), rows) if rows else None


def unsent_text(subscription: Mapping[str, Any]) -> str:
    held = subscription.get("held")
    return text_of(subscription.get("unsent") or 0) + (f" ({text_of(held)} held)" if held else "")


def lane_summary(items: list[dict[str, Any]], now: datetime) -> str:
    found = [subscription for _, subscription in subscriptions(items)]
    sums = {
        name: sum(int(subscription.get(name) or 0) for subscription in found)
        for name in ("ready", "locked", "dead", "unsent")
    }
    number = counted(len(items), "lane")
    if not any(sums.values()):
        return f"{number}, nothing queued"
    oldest = min(
        (str(subscription["oldest_at"]) for subscription in found if subscription.get("oldest_at")), default=""
    )
    counts = ", ".join(f"{count} {name}" for name, count in sums.items() if count or name != "unsent")
    return f"{number}: {counts}" + (f"; the oldest has waited {time_taken(oldest, None, now)}" if oldest else "")


def worker_table(items: list[dict[str, Any]], now: datetime) -> Table:
    rows = [
        (
            text_of(one.get("kind")),
            text_of(one.get("name")),
            text_of(one.get("instance")),
            "yes" if one.get("present") else "no",
            distance(one.get("last_seen_at"), now),
            text_of(one.get("in_work")),
            text_of(one.get("version")),
        )
        for one in items
    ]
    columns = (
        Column("Kind", dispensable=2), Column("Name"), Column("Instance"), Column("There"),
        Column("Last seen"), Column("In work then"), Column("Version", dispensable=1),
    )  # fmt: skip
    return Table(columns, rows)


def share(holder: Mapping[str, Any]) -> str:
    return f"{holder.get('inflight') or 0} / {holder.get('max_inflight')}"


def tenant_table(items: list[dict[str, Any]]) -> Table:
    rows = [
        (
            text_of(tenant.get("tenant_id")),
            "yes" if tenant.get("registered") else "no",
            text_of(tenant.get("mode") or "global"),
            "allowed" if tenant.get("burst_allowed") else "no",
            share(tenant),
        )
        for tenant in items
    ]
    names = ("Tenant", "Registered", "Mode", "Burst", "In flight")
    return Table(tuple(Column(name) for name in names), rows)


def failed_table(items: list[dict[str, Any]], now: datetime) -> Table:
    rows = [
        (
            text_of(job.get("jobId")),
            text_of(job.get("tenant_id")),
            text_of(job.get("request_type")),
            text_of(job.get("current_step_id")),
            distance(job.get("completed_at"), now),
        )
        for job in items
    ]
    columns = (Column("Job"), Column("Tenant"), Column("Type", dispensable=1), Column("Step"), Column("When"))
    return Table(columns, rows, "Error", [error_text(job.get("error")) for job in items])


def message_table(messages: list[dict[str, Any]], now: datetime) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            text_of(message.get("messageId")),
            text_of(message.get("topic")),
            text_of(message.get("subscription")),
            text_of(message.get("delivery_count")),
            distance(message.get("dead_at"), now),
        )
        for message in messages
    ]
    about = [_about(message.get("runbook")) for message in messages]
    if any(about):
        rows = [(*row[:3], where, *row[3:]) for row, where in zip(rows, about, strict=True)]
    columns = (
        Column("Message"),
        Column("Topic", dispensable=2),
        Column("Service"),
        *((Column("Batch", dispensable=3),) if any(about) else ()),
        Column("Deliveries", dispensable=1),
        Column("When"),
    )
    return Table(columns, rows, "Reason", [text_of(message.get("reason")) for message in messages])


def _about(runbook: Any) -> str:
    """The batch, member and step that a dead message is about."""
    if not isinstance(runbook, dict):
        return ""
    parts = (runbook.get("batch_id"), runbook.get("phase"), runbook.get("member"), runbook.get("step"))
    return " / ".join(text_of(part) for part in parts if part is not None)

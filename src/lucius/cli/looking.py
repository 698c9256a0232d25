"""Commands for people who look around: protocols, lanes, tenants, dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.output import output_option, say_more, show_json, show_lines, show_sentences, show_table
from lucius.cli.schemas import schema_table
from lucius.cli.tables import Column, Table
from lucius.cli.wording import counted, distance, error_text, steps_text, text_of, time_taken

if TYPE_CHECKING:
    from lucius.cli.main import Connection

LETTERS_DEFAULT = 20
LETTERS_MAX = 200
"""Both lists are answered in one call: messages have no pages."""
NOTE_LINES_MAX = 3
"""Of an error in a list on a terminal; `lucius why` shows it whole."""


@click.command()
@click.argument("protocol_id", metavar="[ID]", required=False)
@output_option
@click.pass_obj
def protocols(connection: Connection, protocol_id: str | None, output: str) -> None:
    """List what can be asked for.

    With ID (a protocol's id or a request type): its steps, who does them, and what their payloads may hold.
    """
    with connection.open() as client:
        answer = client.protocol(protocol_id) if protocol_id else client.protocols()
    if output == "json":
        show_json(answer)
    elif protocol_id:
        show_protocol(answer)
    elif answer.get("items"):
        show_table(protocol_table(answer["items"]))
    else:
        click.echo("No protocols: the server's registry is empty.", err=True)


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Also subscriptions that hold nothing.")
@output_option
@click.pass_obj
def lanes(connection: Connection, show_all: bool, output: str) -> None:
    """Show what waits on the lanes.

    For each service: ready to be taken, locked (taken and not yet acknowledged), dead (given up by the bus).
    """
    with connection.open() as client:
        answer = client.lanes()
    if output == "json":
        show_json(answer)
        return
    now = datetime.now(UTC)
    items = answer.get("items") or []
    if table := lane_table(items, now, show_all):
        show_table(table)
    held = [one for _, one in subscriptions(items) if holds_anything(one)]
    click.echo(lane_summary(items, now), err=not held)


@click.command()
@output_option
@click.pass_obj
def tenants(connection: Connection, output: str) -> None:
    """Show tenants and how full their limits are.

    Those that are registered, and those that have jobs in flight.
    """
    with connection.open() as client:
        answer = client.tenants()
    if output == "json":
        show_json(answer)
        return
    if answer.get("items"):
        show_table(tenant_table(answer["items"]))
    else:
        click.echo("No tenant is registered, and none has jobs in flight.", err=True)
    click.echo(f"In flight in all: {share(answer)}", err=not answer.get("items"))


@click.command("dead-letters")
@click.option(
    "--limit",
    type=click.IntRange(1, LETTERS_MAX),
    default=LETTERS_DEFAULT,
    show_default=True,
    help="At most so many jobs, and so many messages.",
)
@click.option("--cursor", default="", help="Go on with the jobs where an earlier list ended.")
@output_option
@click.pass_obj
def dead_letters(connection: Connection, limit: int, cursor: str, output: str) -> None:
    """List what failed for good.

    Jobs, newest first, and messages that the bus gave up on.
    """
    with connection.open() as client:
        answer = client.dead_letters(limit, cursor)
    if output == "json":
        show_json(answer)
        return
    now = datetime.now(UTC)
    failed, messages = answer.get("items") or [], answer.get("messages") or []
    if failed:
        show_table(failed_table(failed, now), note_lines_max=NOTE_LINES_MAX)
    else:
        click.echo("No job has failed for good." if not cursor else "No more jobs.", err=True)
    if messages:
        show_lines(["", "Messages that the bus gave up on:"])
        show_table(message_table(messages, now), note_lines_max=NOTE_LINES_MAX)
    else:
        click.echo("The bus has given up on no message.", err=True)
    say_more(answer.get("next"))
    if len(messages) >= limit:
        click.echo(f"There may be more messages than {limit}: --limit goes up to {LETTERS_MAX}.", err=True)


COMMANDS = (protocols, lanes, tenants, dead_letters)


# --- What they show --------------------------------------------------------------------------------------------------


def protocol_table(items: list[dict[str, Any]]) -> Table:
    rows = [
        (
            text_of(one.get("id")),
            text_of(one.get("version")),
            steps_text(one.get("steps")),
            text_of(", ".join(one.get("request_types") or ())),
        )
        for one in items
    ]
    columns = (Column("Id"), Column("Version", dispensable=2), Column("Steps"), Column("Request types", dispensable=1))
    return Table(columns, rows, "Description", [text_of(one.get("description")) for one in items])


def show_protocol(protocol: Mapping[str, Any]) -> None:
    show_sentences([f"{text_of(protocol.get('id'))}, version {text_of(protocol.get('version'))}"])
    if protocol.get("description"):
        show_sentences([text_of(protocol["description"])])
    show_sentences([f"Asked for as {text_of(', '.join(protocol.get('request_types') or ()))}"])
    for place, step in enumerate(protocol.get("steps") or (), start=1):
        name, service = text_of(step.get("stepId")), text_of(step.get("service"))
        pointer = text_of(step.get("payload_pointer"))
        of_payload = f"the part {pointer} of the payload" if pointer else "the whole payload"
        schema = step.get("payload_schema")
        closed = isinstance(schema, Mapping) and schema.get("additionalProperties") is False
        show_lines(["", f"{place}. {name}, by service {service}, with {of_payload}:"])
        if table := schema_table(schema):
            show_table(table)
            if closed:
                show_sentences(["No other fields."])
        else:
            show_sentences(["No fields." if closed else "Any fields."])


def subscriptions(items: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for lane in items:
        for one in lane.get("subscriptions") or ():
            yield lane, one


def holds_anything(subscription: Mapping[str, Any]) -> bool:
    return any(subscription.get(name) for name in ("ready", "locked", "dead"))


def lane_table(items: list[dict[str, Any]], now: datetime, show_all: bool) -> Table | None:
    rows = [
        (
            text_of(lane.get("lane")),
            text_of(one.get("service")),
            *(text_of(one.get(name)) for name in ("ready", "locked", "dead")),
            time_taken(one.get("oldest_at"), None, now),
        )
        for lane, one in subscriptions(items)
        if show_all or holds_anything(one)
    ]
    names = ("Lane", "Service", "Ready", "Locked", "Dead", "Oldest")
    return Table(tuple(Column(name) for name in names), rows) if rows else None


def lane_summary(items: list[dict[str, Any]], now: datetime) -> str:
    found = [one for _, one in subscriptions(items)]
    sums = {name: sum(int(one.get(name) or 0) for one in found) for name in ("ready", "locked", "dead")}
    number = counted(len(items), "lane")
    if not any(sums.values()):
        return f"{number}, nothing queued"
    oldest = min((str(one["oldest_at"]) for one in found if one.get("oldest_at")), default="")
    told = ", ".join(f"{count} {name}" for name, count in sums.items())
    return f"{number}: {told}" + (f"; the oldest has waited {time_taken(oldest, None, now)}" if oldest else "")


def share(holder: Mapping[str, Any]) -> str:
    return f"{holder.get('inflight') or 0} / {holder.get('max_inflight')}"


def tenant_table(items: list[dict[str, Any]]) -> Table:
    rows = [
        (
            text_of(one.get("tenant_id")),
            "yes" if one.get("registered") else "no",
            text_of(one.get("mode") or "global"),
            "allowed" if one.get("burst_allowed") else "no",
            share(one),
        )
        for one in items
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
    rows = [
        (
            text_of(one.get("messageId")),
            text_of(one.get("topic")),
            text_of(one.get("subscription")),
            text_of(one.get("delivery_count")),
            distance(one.get("dead_at"), now),
        )
        for one in messages
    ]
    columns = (
        Column("Message"),
        Column("Topic", dispensable=2),
        Column("Service"),
        Column("Deliveries", dispensable=1),
        Column("When"),
    )
    return Table(columns, rows, "Reason", [text_of(one.get("reason")) for one in messages])

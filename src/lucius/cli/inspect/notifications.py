"""`lucius notifications`: what was sent to whom, why something fails, and tests."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import EXIT_FOUND, TimedOut, Unusable
from lucius.cli.output.formatting import distance, text_of
from lucius.cli.output.printing import output_option, say_more, show_json, show_line, show_table
from lucius.cli.output.tables import Column, Table
from lucius.client.calls import notifications as notification_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

LIST_DEFAULT, LIST_MAX = 20, 500
POLL_SECONDS = 0.3
TIMEOUT_SECONDS = 60.0
STATUSES = ("PENDING", "DELIVERED", "GIVEN_UP")


@click.group()
def notifications() -> None:
    """Notifications of batches and jobs: who was told what.

    Recipients are in the `notifications` of runbooks and of tenants' files.
    """


@notifications.command("list")
@click.option("--runbook", default="", help="Only those of this runbook.")
@click.option("--tenant", default="", help="Only those of this tenant's jobs.")
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=LIST_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@output_option
@click.pass_obj
def list_notifications(
    connection: Connection, runbook: str, tenant: str, status: str | None, limit: int, cursor: str, output: str
) -> None:
    """List notifications, newest first, with why one is not delivered."""
    with connection.open() as client:
        page = client.run(
            notification_calls.notifications(
                runbook=runbook, tenant=tenant, status=status or "", limit=limit, cursor=cursor
            )
        )
    if output == "json":
        show_json(page)
        return
    if page["items"]:
        show_table(notification_table(page["items"], datetime.now(UTC)))
    else:
        click.echo("No notifications.", err=True)
    say_more(page["next"])


@notifications.command()
@click.argument("recipient")
@click.option("--runbook", default="", help="The runbook whose recipient it is.")
@click.option("--tenant", default="", help="The tenant whose recipient it is.")
@click.option(
    "--timeout", type=click.FloatRange(1.0, 600.0), default=TIMEOUT_SECONDS, show_default=True, metavar="SECONDS"
)
@output_option
@click.pass_obj
def test(connection: Connection, recipient: str, runbook: str, tenant: str, timeout: float, output: str) -> None:
    """Send a test to RECIPIENT and say whether it arrived.

    Exit code 1 if the first try failed; the server goes on trying.
    """
    if bool(runbook) == bool(tenant):
        raise Unusable("name either --runbook or --tenant: whose recipient it is")
    with connection.open() as client:
        sent = client.run(notification_calls.send_test(recipient, runbook=runbook, tenant=tenant))
        until = time.monotonic() + timeout
        while sent["status"] == "PENDING" and not sent["attempts"]:
            if time.monotonic() >= until:
                raise TimedOut(
                    f"nobody has sent it within {timeout:g} s: see that a reconciler runs;"
                    " `lucius notifications list` shows what became of it"
                )
            time.sleep(POLL_SECONDS)
            sent = client.run(notification_calls.notification(sent["id"]))
    if output == "json":
        show_json(sent)
    elif sent["status"] == "DELIVERED":
        show_line(f"Delivered to {text_of(recipient)}.")
    else:
        show_line(f"Not delivered to {text_of(recipient)}: {text_of(sent['last_error'])}")
    if sent["status"] != "DELIVERED":
        raise SystemExit(EXIT_FOUND)


def notification_table(items: list[dict[str, Any]], now: datetime) -> Table:
    rows = [
        (
            distance(one.get("created_at"), now),
            text_of(one.get("runbook") or one.get("tenant_id")),
            text_of(one.get("recipient")),
            text_of(one.get("status")),
            text_of(one.get("attempts")),
            text_of(one.get("title")),
        )
        for one in items
    ]
    columns = (
        Column("When"), Column("Of", dispensable=1), Column("Recipient"), Column("Status"),
        Column("Tries", dispensable=2), Column("What"),
    )  # fmt: skip
    return Table(columns, rows, "Last error", [text_of(one.get("last_error") or "") for one in items])


COMMANDS = (notifications,)

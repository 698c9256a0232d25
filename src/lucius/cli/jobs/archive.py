"""`lucius archive`: jobs that have left the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lucius.cli.output.formatting import text_of
from lucius.cli.output.printing import output_option, show_json, show_lines
from lucius.client.calls import admin as admin_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection


@click.group()
def archive() -> None:
    """Jobs that have left the ledger, in the archive."""


@archive.command()
@click.argument("job_id", metavar="JOB")
@output_option
@click.pass_obj
def get(connection: Connection, job_id: str, output: str) -> None:
    """Show a job from the archive: steps, attempts, events."""
    with connection.open() as client:
        found = client.run(admin_calls.archived(job_id))
    if output == "json":
        show_json(found)
    else:
        show_lines(archived_lines(found))


def archived_lines(found: dict[str, Any]) -> list[str]:
    job = found["job"]
    spec = job["spec"]
    lines = [
        f"Job        {text_of(found['jobId'])}",
        f"Tenant     {text_of(found['tenant_id'])}",
        f"Type       {text_of(spec['request_type'])}",
        f"Status     {text_of(job['status'])}",
        f"Created    {text_of(spec['created_at'])}",
        f"Ended      {text_of(job.get('completed_at'))}",
        f"Archived   {text_of(found['archived_at'])}",
    ]
    if job.get("error"):
        lines.append(f"Error      {text_of(job['error']['code'])}: {text_of(job['error']['message'])}")
    for step in job["steps"]:
        name = step["spec"]["step_id"]
        lines += ["", f"Step {text_of(name)}: {text_of(step['status'])}"]
        for attempt in found["attempts"].get(name, []):
            error = attempt.get("error") or {}
            why = f"  {text_of(error['code'])}: {text_of(error['message'])}" if error else ""
            lines.append(f"  attempt {text_of(attempt['attempt_no'])}  {text_of(attempt['status'])}{why}")
    lines += ["", "Events"]
    lines += [f"  {text_of(event['at'])}  {text_of(event['type'])}" for event in found["events"]]
    return lines


COMMANDS = (archive,)

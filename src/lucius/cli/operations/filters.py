"""`lucius cancel`, `pause`, `resume` and `redrive` with filters instead of a JOB: a bulk operation, after a preview."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.completing import complete_jobs, complete_tenants
from lucius.cli.output.confirming import confirm, is_asking_possible
from lucius.cli.output.formatting import counted
from lucius.cli.output.printing import show_json, show_line, show_table
from lucius.cli.output.program import hint
from lucius.cli.times import past_time
from lucius.client.calls import operations as operation_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

F = TypeVar("F", bound=Callable[..., Any])

APPLIES_TO = {
    "cancel": ("QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED"),
    "pause": ("QUEUED", "DISPATCHING", "IN_PROGRESS"),
    "resume": ("PAUSED",),
    "redrive": ("FAILED_FINAL", "CANCELLED"),
}
FILTERS = ("tenant_id", "status", "request_type", "created_from", "created_to", "error_signature")
HOW = ("rate_per_second", "canary", "canary_max_failures", "max_failures")


def job_or_filter(verb: str) -> Callable[[F], F]:
    """Decorates a command on one JOB: with filters instead, it acts on every job that matches."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(job_id: str | None, yes: bool, reason: str | None, **options: Any) -> None:
            wanted = {name: options.pop(name) for name in FILTERS}
            how = {name: options.pop(name) for name in HOW}
            is_filtered = any(value is not None for value in wanted.values())
            if job_id is None and not is_filtered:
                raise click.UsageError(f"Name the JOB to {verb}, or say which ones with --tenant, --status and so on.")
            if job_id is not None and (is_filtered or any(value is not None for value in how.values())):
                raise click.UsageError("Name one JOB or give filters, not both.")
            if job_id is not None:
                if verb == "cancel":  # The only one of them that cannot be taken back, if it is forced.
                    options["yes"] = yes
                command(job_id=job_id, reason=reason, **options)
                return
            if options.get("force"):
                raise click.UsageError("--force ends one JOB at a time: name it.")
            if options.get("payload_file") is not None:
                raise click.UsageError("--payload is for one JOB: name it.")
            if yes and not reason:
                raise click.UsageError("Say why with --reason: it is kept in the audit trail.")
            act_on_all(click.get_current_context().obj, verb, wanted, how, reason, yes, options)

        return _options(verb)(run)  # type: ignore[return-value]

    return decorate


def _options(verb: str) -> Callable[[F], F]:
    made = (
        click.argument("job_id", metavar="[JOB]", required=False, shell_complete=complete_jobs),
        click.option("--tenant", "tenant_id", shell_complete=complete_tenants, help="All jobs of this tenant."),
        click.option("--status", type=click.Choice(APPLIES_TO[verb], case_sensitive=False), help="All in this state."),
        click.option("--request-type", help="All of this request type."),
        click.option(
            "--from", "created_from", callback=past_time, metavar="TIME",
            help="All created at this time (ISO 8601) or later, or within this long: 90s, 1h, 7d.",
        ),
        click.option(
            "--to", "created_to", callback=past_time, metavar="TIME", help="All created before it, or this long ago."
        ),
        click.option("--signature", "error_signature", help="All that failed for this reason (error_signature)."),
        click.option(
            "--yes", "-y", is_flag=True,
            help="Act on all that match; without it they are shown, and with a --reason a terminal asks."
            + (" With --force: do not ask." if verb == "cancel" else ""),
        ),
        click.option("--reason", help="Why, for the audit trail; needed with --yes."),
        click.option(
            "--rate", "rate_per_second", type=click.FloatRange(0.01, 1_000), metavar="N", help="Jobs a second."
        ),
        click.option(
            "--canary", type=click.IntRange(0), metavar="N", help="Try N jobs, then the rest if they succeed."
        ),
        click.option(
            "--canary-max-failures", type=click.IntRange(0), metavar="N", help="Of the canary, N may fail [default: 0]."
        ),
        click.option("--max-failures", type=click.IntRange(0), metavar="N", help="Stop once more than N have failed."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for option in reversed(made):
            command = option(command)
        return command

    return decorate


def act_on_all(
    connection: Connection,
    verb: str,
    wanted: dict[str, Any],
    how: dict[str, Any],
    reason: str | None,
    yes: bool,
    options: dict[str, Any],
) -> None:
    """Show what matches; with `yes`, or an answer of yes, act on it."""
    output = options["output"]
    with connection.open() as client:
        if not yes:
            preview = client.run(operation_calls.preview(verb, **wanted))
            if output == "json":
                show_json(preview)
                return
            count = show_preview(verb, preview)
            if not count or not reason or not is_asking_possible():
                if count:
                    click.echo("Nothing was done. Add --yes and --reason to go on.", err=True)
                return
            confirm(f"{verb.capitalize()} {counted(count, 'job')}?", yes)
        operation = client.run(operation_calls.create(verb, reason=reason or "", **wanted, **how))
        operation_id = str(operation.get("operationId"))
        if not options.get("watching"):
            if output == "json":
                show_json(operation)
            else:
                show_line(f"Operation {operation_id} {operation.get('status')}")
                click.echo(hint(f"Follow it with `lucius operations watch {operation_id}`."), err=True)
            return
        from lucius.cli.operations.commands import follow

        if output == "text":
            show_line(f"Operation {operation_id} {operation.get('status')}")
        follow(client, operation_id, options["timeout"], output)


def show_preview(verb: str, preview: dict[str, Any]) -> int:
    """How many jobs there are to act on."""
    from lucius.cli.jobs.render import job_table

    count, sample = int(preview.get("count") or 0), preview.get("sample") or []
    if not count:
        click.echo("No jobs match: nothing to do.", err=True)
        return 0
    if sample:
        show_table(job_table(sample, datetime.now(UTC)))
    more = count - len(sample)
    jobs = counted(count, "job")
    show_line(f"{jobs} would be {PAST[verb]}" + (f"; the first {len(sample)} are shown." if more > 0 else "."))
    return count


PAST = {"cancel": "cancelled", "pause": "paused", "resume": "resumed", "redrive": "redriven"}

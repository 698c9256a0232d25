"""`lucius temporal`: ledger and Temporal, compared and mended."""

from __future__ import annotations

import click

from lucius.cli.failures import EXIT_FOUND, printable
from lucius.cli.output import output_option, show_json, show_lines
from lucius.cli.server import data_option, run, settings_of

all_option = click.option(
    "--all",
    "every_job",
    is_flag=True,
    help="Also jobs that were written to in the last 10 seconds; they may simply be under way.",
)


@click.group()
def temporal() -> None:
    """Compare the ledger with Temporal, and mend what differs."""


@temporal.command("check")
@all_option
@data_option
@output_option
@click.pass_context
def check(context: click.Context, every_job: bool, data: str | None, output: str) -> None:
    """Show every job on which ledger and Temporal differ.

    A line each: the job, the kind (NO_WORKFLOW, WORKFLOW_OVER, NO_ROW, BEHIND), and what was found. Exit code 0: they
    agree. 1: they do not.
    """
    compared = run("temporal_drift", settings_of(data=data), every_job=every_job)
    drifts = compared.drifts
    if output == "json":
        items = [{"jobId": one.job_id, "kind": one.kind, "detail": one.detail} for one in drifts]
        show_json({"items": items, "revisions_compared": compared.has_looked_inside})
    elif drifts:
        show_lines([printable(f"{one.job_id}  {one.kind:<13}  {one.detail}") for one in drifts])
    if not compared.has_looked_inside:
        click.echo("No worker answers for the workflows, so revisions were not compared: start one.", err=True)
    if drifts:
        click.echo(f"{_jobs(len(drifts))} differ. `lucius temporal heal` mends what does not mend itself.", err=True)
        context.exit(EXIT_FOUND)
    click.echo("Ledger and Temporal agree.", err=True)


@temporal.command("heal")
@all_option
@data_option
def heal(every_job: bool, data: str | None) -> None:
    """Mend every job on which ledger and Temporal differ, and say how many there were.

    The reconciler does the same by itself, every LUCIUS_TEMPORAL_RECONCILE_INTERVAL seconds.
    """
    count = run("temporal_heal", settings_of(data=data), every_job=every_job)
    click.echo(f"{_jobs(count)} mended." if count else "Nothing to mend: ledger and Temporal agree.")


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


UPKEEP = (temporal,)

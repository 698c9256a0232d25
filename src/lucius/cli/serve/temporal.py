"""`lucius temporal`: compares the ledger with Temporal and repairs drift."""

from __future__ import annotations

import click

from lucius.cli.failures import EXIT_FOUND, printable
from lucius.cli.output.printing import output_option, show_json, show_lines
from lucius.cli.output.program import hint
from lucius.cli.serve.server import data_option, run, settings_of

all_option = click.option(
    "--all",
    "every_job",
    is_flag=True,
    help="Include jobs written in the last 10 seconds, which may simply be in progress.",
)


@click.group()
def temporal() -> None:
    """Compare the ledger with Temporal, and repair drift."""


@temporal.command("check")
@all_option
@data_option
@output_option
@click.pass_context
def check(context: click.Context, every_job: bool, data: str | None, output: str) -> None:
    """Show every job on which ledger and Temporal differ.

    One line each: the job, the kind (NO_WORKFLOW, WORKFLOW_OVER, NO_ROW, BEHIND), and details. Exit code 0: they agree.
    1: they do not.
    """
    compared = run("temporal_drift", settings_of(data=data), every_job=every_job)
    drifts = compared.drifts
    if output == "json":
        items = [{"jobId": drift.job_id, "kind": drift.kind, "detail": drift.detail} for drift in drifts]
        show_json({"items": items, "revisions_compared": compared.has_looked_inside})
    elif drifts:
        show_lines([printable(f"{drift.job_id}  {drift.kind:<13}  {drift.detail}") for drift in drifts])
    if not compared.has_looked_inside:
        click.echo("No worker responds, so revisions were not compared: start one.", err=True)
    if drifts:
        advice = hint("`lucius temporal heal` repairs what does not heal itself.")
        click.echo(f"{_jobs(len(drifts))} differ. {advice}", err=True)
        context.exit(EXIT_FOUND)
    click.echo("Ledger and Temporal agree.", err=True)


@temporal.command("heal")
@all_option
@data_option
def heal(every_job: bool, data: str | None) -> None:
    """Repair every job on which ledger and Temporal differ, and report how many.

    The reconciler does the same automatically, every LUCIUS_TEMPORAL_RECONCILE_INTERVAL seconds.
    """
    count = run("temporal_heal", settings_of(data=data), every_job=every_job)
    click.echo(f"{_jobs(count)} repaired." if count else "Nothing to repair: ledger and Temporal agree.")


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


UPKEEP = (temporal,)

"""Commands that wait for a job: how long, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.failures import EXIT_JOB_FAILED, EXIT_OK
from lucius.cli.interrupted import left_alone
from lucius.cli.output.printing import show_json
from lucius.cli.output.program import hint
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_SECONDS = 3_600.0
TIMEOUT_SECONDS_MAX = 7 * 86_400.0


def timeout_option(command: F) -> F:
    return click.option(
        "--timeout",
        type=click.FloatRange(0.0, TIMEOUT_SECONDS_MAX, min_open=True),
        default=TIMEOUT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the job to end; exit code 5 after that.",
    )(command)


def follow(client: ApiSession, job_id: str, timeout_seconds: float, output: str) -> None:
    """Wait for the job to end, show it, and exit with the matching code."""
    from lucius.cli.jobs.watch import watch as watch_job

    try:
        if output == "json":
            job = client.run(job_calls.wait(job_id, timeout_seconds=timeout_seconds))
        else:
            job = watch_job(client, job_id, timeout_seconds)
    except KeyboardInterrupt:
        commands = {f"lucius watch {job_id}": "follows it", f"lucius cancel {job_id}": "cancels it"}
        raise left_alone(f"Job {job_id}", commands) from None
    if output == "json":
        show_json(job)
    else:
        if job.get("status") != "SUCCEEDED":
            click.echo(hint(f"See `lucius why {job_id}`."), err=True)
    exit_with(job)


def exit_with(job: dict[str, Any]) -> None:
    raise click.exceptions.Exit(EXIT_OK if job.get("status") == "SUCCEEDED" else EXIT_JOB_FAILED)

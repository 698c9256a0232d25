"""Commands for jobs: submit, show, watch, operate."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.ids import find_job
from lucius.cli.jobs.listing import EVENTS_DEFAULT, events, job_argument, list_jobs
from lucius.cli.jobs.submitting import submit, validate
from lucius.cli.jobs.waiting import exit_with, follow, timeout_option
from lucius.cli.operations.filters import job_or_filter
from lucius.cli.output.confirming import confirm
from lucius.cli.output.printing import (
    output_option,
    show_json,
    show_line,
    show_lines,
    show_sentence,
    show_sentences,
    show_table,
)
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

OPERATION_PATIENCE_SECONDS = 3.0
"""How long an operation without an answer is retried."""


@click.command()
@job_argument
@click.option("--wait", "waiting", is_flag=True, help="Wait until the job has ended; exit code 1 if it failed.")
@click.option("--attempts", is_flag=True, help="Also show every attempt of every step.")
@timeout_option
@output_option
@click.pass_obj
def get(connection: Connection, job_id: str, waiting: bool, attempts: bool, timeout: float, output: str) -> None:
    """Show a job, its steps and what it waits for."""
    with connection.open() as client:
        job_id = find_job(client, job_id)
        call = job_calls.wait(job_id, timeout_seconds=timeout) if waiting else job_calls.get_job(job_id)
        job = client.run(call)
        if attempts:
            job = {**job, "steps": client.run(job_calls.steps(job_id)).get("steps") or []}
    show_job(job, output, attempts=attempts)
    if waiting:
        exit_with(job)


@click.command()
@job_argument
@output_option
@click.pass_obj
def why(connection: Connection, job_id: str, output: str) -> None:
    """Explain why a job waits, or how it ended.

    In plain sentences: for what, since when, until when, what happens then, and what to do next.
    """
    from lucius.cli.jobs.why import explain, explanation_lines

    with connection.open() as client:
        job_id = find_job(client, job_id)
        job = client.run(job_calls.get_job(job_id))
        job = {**job, "steps": client.run(job_calls.steps(job_id)).get("steps") or []}
        is_cancelled = job.get("status") in ("CANCELLING", "CANCELLED")
        events = client.run(job_calls.events(job_id, limit=EVENTS_DEFAULT))["events"] if is_cancelled else []
    explanation = explain(job, events, datetime.now(UTC))
    if output == "text":
        show_sentences(explanation_lines(explanation))
        return
    facts = {name: job.get(name) for name in ("jobId", "status", "waiting_on", "error", "completed_at")}
    commands = [{"command": command, "use": use} for command, use in explanation.commands]
    show_json({**facts, "sentences": explanation.sentences, "commands": commands})


@click.command()
@job_argument
@timeout_option
@output_option
@click.pass_obj
def watch(connection: Connection, job_id: str, timeout: float, output: str) -> None:
    """Show a job's progress until it ends. With --output json, only the ended job is printed."""
    with connection.open() as client:
        follow(client, find_job(client, job_id), timeout, output)


@click.command()
@job_or_filter("cancel")
@click.option("--force", is_flag=True, help="End a JOB now, whatever its step does; needs a --reason.")
@output_option
@click.pass_obj
def cancel(connection: Connection, job_id: str, reason: str | None, force: bool, yes: bool, output: str) -> None:
    """Cancel a JOB, or all jobs that match. A step in progress may finish; nothing new starts.

    With --force the job ends at once, for a step that hangs: its service is told to stop, and a result that still comes
    is recorded as late.
    """
    if force and not (reason or "").strip():
        raise click.UsageError("--force needs a --reason, which is kept in the job's audit trail")
    with connection.open() as client:
        job_id = find_job(client, job_id)
    if force:
        confirm(f"End job {job_id} now, whatever its step does?", yes)
    operate(connection, job_id, "cancel", output, job_calls.cancel_body(reason, force))


@click.command()
@job_or_filter("pause")
@output_option
@click.pass_obj
def pause(connection: Connection, job_id: str, reason: str | None, output: str) -> None:
    """Pause a JOB, or all jobs that match.

    The step in progress continues, and no other starts.
    """
    operate(connection, job_id, "pause", output, _because(reason))


@click.command()
@job_or_filter("resume")
@output_option
@click.pass_obj
def resume(connection: Connection, job_id: str, reason: str | None, output: str) -> None:
    """Resume a paused JOB, or all that match."""
    operate(connection, job_id, "resume", output, _because(reason))


@click.command()
@job_or_filter("redrive")
@click.option(
    "--payload",
    "payload_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="With the payload in this JSON file instead; the new job then begins at its first step.",
)
@click.option("--watch", "watching", is_flag=True, help="Show the new job's progress until it ends.")
@timeout_option
@output_option
@click.pass_obj
def redrive(
    connection: Connection,
    job_id: str,
    reason: str | None,
    payload_file: Path | None,
    watching: bool,
    timeout: float,
    output: str,
) -> None:
    """Start a new job where a failed or cancelled one ended.

    With filters instead of a JOB: for all that match. Jobs that were redriven before are left out, and cancelled ones
    unless --status names them.
    """
    from lucius.cli.jobs.envelope import read_payload_file

    body = job_calls.redrive_body(reason, None if payload_file is None else read_payload_file(payload_file))
    with connection.open() as client:
        job_id = find_job(client, job_id)
        new_job = client.run(job_calls.operate(job_id, "redrive", body, patience_seconds=OPERATION_PATIENCE_SECONDS))
        if output == "text":
            show_sentence(f"Job {new_job.get('jobId')} {new_job.get('status')}, a redrive of {job_id}")
        elif not watching:
            show_json(new_job)
        if watching:
            follow(client, str(new_job.get("jobId")), timeout, output)


COMMANDS = (submit, validate, get, why, watch, list_jobs, events, cancel, pause, resume, redrive)


def _because(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"reason": reason}


def operate(connection: Connection, job_id: str, verb: str, output: str, body: dict[str, Any] | None = None) -> None:
    with connection.open() as client:
        job_id = find_job(client, job_id)
        answer = client.run(job_calls.operate(job_id, verb, body, patience_seconds=OPERATION_PATIENCE_SECONDS))
    if output == "json":
        show_json(answer)
    else:
        show_line(f"Job {answer.get('jobId') or job_id} {answer.get('status') or 'accepted'}")


def show_job(job: dict[str, Any], output: str, attempts: bool = False) -> None:
    if output == "json":
        show_json(job)
        return
    from lucius.cli.jobs.render import attempt_table, job_lines, job_view
    from lucius.cli.output.printing import open_console

    now = datetime.now(UTC)
    if sys.stdout.isatty():
        console = open_console()
        console.print(job_view(job, now, console.width, refs=True))
    else:
        show_lines(job_lines(job, now, refs=True))
    if attempts:
        click.echo()
        show_table(attempt_table(job["steps"], now))

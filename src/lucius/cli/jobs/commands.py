"""Commands for jobs: submit, show, watch, operate."""

from __future__ import annotations

import shlex
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.failures import EXIT_JOB_FAILED, EXIT_OK, EXIT_REFUSED, Invalid
from lucius.cli.interrupted import left_alone
from lucius.cli.operations.filters import job_or_filter
from lucius.cli.output.formatting import distance, error_text, text_of
from lucius.cli.output.printing import (
    output_option,
    say_more,
    show_json,
    show_line,
    show_lines,
    show_sentence,
    show_sentences,
    show_table,
)
from lucius.cli.output.program import command_lines, hint
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession, Connection

F = TypeVar("F", bound=Callable[..., Any])

OPERATION_PATIENCE_SECONDS = 3.0
"""How long an operation without an answer is retried."""
TIMEOUT_SECONDS = 3_600.0
TIMEOUT_SECONDS_MAX = 7 * 86_400.0
LIST_DEFAULT = 20
LIST_MAX = 10_000
EVENTS_DEFAULT = 1_000
STATUSES = ("QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED_FINAL", "CANCELLED")

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
job_argument = click.argument("job_id", metavar="JOB")


def timeout_option(command: F) -> F:
    return click.option(
        "--timeout",
        type=click.FloatRange(0.0, TIMEOUT_SECONDS_MAX, min_open=True),
        default=TIMEOUT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the job to end; exit code 5 after that.",
    )(command)


@click.command()
@file_argument
@click.option("--watch", "watching", is_flag=True, help="Show progress until the job ends; exit code 1 if it fails.")
@click.option("--idempotency-key", help="Overrides the key in the file; the same key means the same job.")
@click.option("--new", "is_new", is_flag=True, help="Make a new job, even if the same command was submitted before.")
@timeout_option
@output_option
@click.pass_obj
def submit(
    connection: Connection,
    file: Path,
    watching: bool,
    idempotency_key: str | None,
    is_new: bool,
    timeout: float,
    output: str,
) -> None:
    """Submit the command in FILE (JSON; - is standard input).

    An input_ref or output_ref without a scheme is a path relative to FILE's folder, and is sent as a file:// URI.

    The same command submitted twice is the same job, however it ended; --new makes a new one.
    """
    from lucius.cli.jobs.envelope import read_envelope_file

    if is_new and idempotency_key is not None:
        raise click.UsageError("--new makes a key of its own; leave out --idempotency-key")
    envelope = read_envelope_file(file)
    if is_new:
        idempotency_key = uuid.uuid4().hex
    if idempotency_key is not None:
        envelope["idempotency_key"] = idempotency_key
    with connection.open() as client:
        accepted, replayed = client.run(job_calls.submit_envelope(envelope))
        if output == "text":
            note = " (not a new job: the same command was submitted before)" if replayed else ""
            show_sentence(f"Job {accepted.get('jobId')} {accepted.get('status')}{note}")
            if replayed:
                show_old_job(accepted, str(file), datetime.now(UTC))
        elif not watching:
            show_json(accepted)
        if watching:
            follow(client, str(accepted.get("jobId")), timeout, output)


@click.command()
@file_argument
@output_option
@click.pass_obj
def validate(connection: Connection, file: Path, output: str) -> None:
    """Check the command in FILE without submitting it.

    Shows its protocol, steps, lane and mode, or every fault with its location (exit code 3). FILE is read as by submit.
    """
    from lucius.cli.jobs.envelope import read_envelope_file

    envelope = read_envelope_file(file)
    with connection.open() as client:
        answer = client.run(job_calls.validate(envelope))
    if output == "json":
        show_json(answer)
        raise click.exceptions.Exit(EXIT_OK if answer.get("valid") else EXIT_REFUSED)
    name = "Standard input" if str(file) == "-" else str(file)
    if not answer.get("valid"):
        raise Invalid(name, answer.get("errors"))
    from lucius.cli.jobs.render import validity_lines

    show_lines([f"{name} is a valid command.", *validity_lines(answer)])


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
        follow(client, job_id, timeout, output)


@click.command("list")
@click.option("--tenant", help="Only this tenant's jobs.")
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only jobs in this state.")
@click.option("--type", "request_type", help="Only this request type.")
@click.option("--from", "created_from", metavar="TIME", help="Created at this time (ISO 8601) or later.")
@click.option("--to", "created_to", metavar="TIME", help="Created before this time.")
@click.option("--signature", "error_signature", help="Only jobs that failed for this reason (error_signature).")
@click.option("--correlation-id", help="Only jobs with this correlation id.")
@click.option("--key", "idempotency_key", help="Only the job accepted under this idempotency key.")
@click.option("--payload", metavar="FIELD=VALUE", help="Only jobs with this value in a searchable field.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=LIST_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@output_option
@click.pass_obj
def list_jobs(connection: Connection, /, limit: int, cursor: str, output: str, **filters: str | None) -> None:
    """List jobs, newest first."""
    tenant_id = filters.pop("tenant")
    with connection.open() as client:
        page = client.run(job_calls.jobs(tenant_id=tenant_id, **filters, limit=limit, cursor=cursor))
    if output == "json":
        show_json(page)
        return
    from lucius.cli.jobs.render import job_table

    if page["items"]:
        show_table(job_table(page["items"], datetime.now(UTC)))
    else:
        click.echo("No jobs.", err=True)
    say_more(page["next"])


@click.command()
@job_argument
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=EVENTS_DEFAULT, show_default=True)
@click.option("--cursor", default="", help="Continue an earlier list.")
@output_option
@click.pass_obj
def events(connection: Connection, job_id: str, limit: int, cursor: str, output: str) -> None:
    """Show a job's audit trail: every change and every callback."""
    with connection.open() as client:
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


@click.command()
@job_or_filter("cancel")
@click.option("--force", is_flag=True, help="End a JOB now, whatever its step does; needs a --reason.")
@output_option
@click.pass_obj
def cancel(connection: Connection, job_id: str, reason: str | None, force: bool, output: str) -> None:
    """Cancel a JOB, or all jobs that match. A step in progress may finish; nothing new starts.

    With --force the job ends at once, for a step that hangs: its service is told to stop, and a result that still comes
    is recorded as late.
    """
    if force and not (reason or "").strip():
        raise click.UsageError("--force needs a --reason, which is kept in the job's audit trail")
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
@click.option("--watch", "watching", is_flag=True, help="Show the new job's progress until it ends.")
@timeout_option
@output_option
@click.pass_obj
def redrive(
    connection: Connection, job_id: str, reason: str | None, watching: bool, timeout: float, output: str
) -> None:
    """Start a new job where a failed or cancelled one ended.

    With filters instead of a JOB: for all that match. Jobs that were redriven before are left out, and cancelled ones
    unless --status names them.
    """
    with connection.open() as client:
        new_job = client.run(
            job_calls.operate(job_id, "redrive", _because(reason), patience_seconds=OPERATION_PATIENCE_SECONDS)
        )
        if output == "text":
            show_sentence(f"Job {new_job.get('jobId')} {new_job.get('status')}, a redrive of {job_id}")
        elif not watching:
            show_json(new_job)
        if watching:
            follow(client, str(new_job.get("jobId")), timeout, output)


def show_old_job(accepted: dict[str, Any], file: str, now: datetime) -> None:
    """How the job of a command that was submitted before has ended, and how to run it again."""
    job_id, status = text_of(accepted.get("jobId")), text_of(accepted.get("status"))
    error, ago = error_text(accepted.get("error")), distance(accepted.get("completed_at"), now)
    if ago:
        show_sentence(f"It ended {status} {ago}" + (f" with {error}" if error else "") + ".")
    commands = {f"lucius submit {shlex.quote(file)} --new": "runs the command again, as a new job"}
    if status in ("FAILED_FINAL", "CANCELLED"):
        commands[f"lucius redrive {job_id}"] = "continues it where it ended"
    show_lines(command_lines(commands.items()))


COMMANDS = (submit, validate, get, why, watch, list_jobs, events, cancel, pause, resume, redrive)


def _because(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"reason": reason}


def operate(connection: Connection, job_id: str, verb: str, output: str, body: dict[str, Any] | None = None) -> None:
    with connection.open() as client:
        answer = client.run(job_calls.operate(job_id, verb, body, patience_seconds=OPERATION_PATIENCE_SECONDS))
    if output == "json":
        show_json(answer)
    else:
        show_line(f"Job {answer.get('jobId') or job_id} {answer.get('status') or 'accepted'}")


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

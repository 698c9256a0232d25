"""`lucius submit`: a command from a file, from flags, or like that of another job."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.completing import complete_commands, complete_jobs, complete_tenants
from lucius.cli.failures import EXIT_OK, EXIT_REFUSED, Invalid
from lucius.cli.ids import find_job
from lucius.cli.jobs.flags import FORMATS
from lucius.cli.jobs.waiting import follow, timeout_option
from lucius.cli.output.formatting import distance, error_text, text_of
from lucius.cli.output.printing import note_output, output_option, show_json, show_lines, show_sentence
from lucius.cli.output.program import command_lines
from lucius.cli.times import future_time
from lucius.client.calls import jobs as job_calls

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession, Connection

F = TypeVar("F", bound=Callable[..., Any])


def command_options(command: F) -> F:
    """How a command is given, besides a file."""
    for option in reversed(
        (
            click.option("--like", metavar="JOB", shell_complete=complete_jobs, help="The command of this job."),
            click.option("--tenant", "tenant_id", shell_complete=complete_tenants, help="For this tenant."),
            click.option("--input", "input_ref", metavar="REF", help="The input: a URI, or a path on this machine."),
            click.option(
                "-p", "--payload", "parameters", multiple=True, metavar="NAME=VALUE",
                help="A value of the payload: sis.prompt_set=default. JSON if it can be read as such, or else text; "
                "repeated for one name, a list.",
            ),
            click.option("--mode", help="DEFAULT or BURST."),
            click.option("--doc-id", help="The document's id."),
            click.option("--correlation-id", help="To find the job by."),
            click.option(
                "--not-before", callback=future_time, metavar="TIME",
                help="Start no earlier (ISO 8601), or than this long from now: 90s, 1h, 7d.",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("source", metavar="[FILE|REQUEST_TYPE]", required=False, shell_complete=complete_commands)
@command_options
@click.option("--watch", "watching", is_flag=True, help="Show progress until the job ends; exit code 1 if it fails.")
@click.option("--idempotency-key", help="Overrides the key in the file; the same key means the same job.")
@click.option("--new", "is_new", is_flag=True, help="Make a new job, even if the same command was submitted before.")
@timeout_option
@click.option(
    "--output",
    "-o",
    metavar="REF|text|json|yaml",
    help="Where the job's output goes: a URI, or a path on this machine; or text, json or yaml: how the answer is "
    "shown. May be given for both.",
    multiple=True,
)
@click.pass_obj
def submit(
    connection: Connection,
    /,
    source: str | None,
    watching: bool,
    idempotency_key: str | None,
    is_new: bool,
    timeout: float,
    output: tuple[str, ...],
    **given: Any,
) -> None:
    """Submit a command: one in a FILE, or of a REQUEST_TYPE.

    FILE is JSON (- is standard input). Flags replace what it says; with a REQUEST_TYPE they say everything.

    \b
    lucius submit command.json
    lucius submit OCR_EMBEDDING_SIS --tenant acme --input in.pdf --output out.json -p sis.prompt_set=default
    lucius submit --like 019a1f2e-7c3b -p sis.prompt_set=short

    Refs without a scheme are paths: those in FILE relative to its folder, those in flags to this one. They are sent as
    file:// URIs.

    The same command submitted twice is the same job, however it ended; --new makes a new one, and so does --like.
    """
    if is_new and idempotency_key is not None:
        raise click.UsageError("--new makes a key of its own; leave out --idempotency-key")
    output_ref, form = _read_output(output)
    note_output(form)
    with connection.open() as client:
        envelope = _read_command(client, source, given, output_ref)
        if is_new or (given["like"] and idempotency_key is None):
            idempotency_key = uuid.uuid4().hex
        if idempotency_key is not None:
            envelope["idempotency_key"] = idempotency_key
        accepted, replayed = client.run(job_calls.submit_envelope(envelope))
        if form == "text":
            note = " (not a new job: the same command was submitted before)" if replayed else ""
            show_sentence(f"Job {accepted.get('jobId')} {accepted.get('status')}{note}")
            if replayed:
                show_old_job(accepted, source, datetime.now(UTC))
        elif not watching:
            show_json(accepted)
        if watching:
            follow(client, str(accepted.get("jobId")), timeout, "text" if form == "text" else "json")


def _read_output(values: tuple[str, ...]) -> tuple[str | None, str]:
    """`--output` says where the job's output goes, and as for every command how the answer is shown."""
    refs = [value for value in values if value not in FORMATS]
    forms = [value for value in values if value in FORMATS]
    if len(refs) > 1 or len(forms) > 1:
        raise click.UsageError("--output is given twice for the same purpose")
    return (refs[0] if refs else None), (forms[0] if forms else "text")


def _read_command(
    client: ApiSession, source: str | None, given: dict[str, Any], output_ref: str | None
) -> dict[str, Any]:
    from lucius.cli.jobs.envelope import read_envelope_file, with_absolute_refs
    from lucius.cli.jobs.flags import with_flags

    flags = {name: given[name] for name in ("tenant_id", "mode", "doc_id", "correlation_id", "not_before")}
    refs = {"input_ref": given["input_ref"], "output_ref": output_ref}
    refs = with_absolute_refs({name: ref for name, ref in refs.items() if ref is not None}, Path.cwd())
    if (source is None) == (given["like"] is None):
        raise click.UsageError("Name a FILE or a REQUEST_TYPE, or a job with --like JOB.")
    base: dict[str, Any]
    if source is None:
        base = client.run(job_calls.command(find_job(client, given["like"])))
    elif source == "-" or Path(source).is_file():
        base = read_envelope_file(Path(source))
    elif any(sign in source for sign in "./\\"):
        raise click.UsageError(f"There is no file {source}.")
    else:
        base = {"schema_version": job_calls.SCHEMA_VERSION, "request_type": source, "payload": {}}
    if not any((*flags.values(), *refs.values(), *given["parameters"])):
        return base
    return with_flags(base, {**flags, **refs}, given["parameters"])


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@output_option
@click.pass_obj
def validate(connection: Connection, source: Path, output: str) -> None:
    """Check the command in FILE without submitting it.

    Shows its protocol, steps, lane and mode, or every fault with its location (exit code 3). FILE is read as by submit.
    """
    from lucius.cli.jobs.envelope import read_envelope_file

    envelope = read_envelope_file(source)
    with connection.open() as client:
        answer = client.run(job_calls.validate(envelope))
    if output == "json":
        show_json(answer)
        raise click.exceptions.Exit(EXIT_OK if answer.get("valid") else EXIT_REFUSED)
    name = "Standard input" if str(source) == "-" else str(source)
    if not answer.get("valid"):
        raise Invalid(name, answer.get("errors"))
    from lucius.cli.jobs.render import validity_lines

    show_lines([f"{name} is a valid command.", *validity_lines(answer)])


def show_old_job(accepted: dict[str, Any], source: str | None, now: datetime) -> None:
    """How the job of a command that was submitted before has ended, and how to run it again."""
    job_id, status = text_of(accepted.get("jobId")), text_of(accepted.get("status"))
    error, ago = error_text(accepted.get("error")), distance(accepted.get("completed_at"), now)
    if ago:
        show_sentence(f"It ended {status} {ago}" + (f" with {error}" if error else "") + ".")
    again = f"{shlex.quote(source)} --new" if source and Path(source).is_file() else f"--like {job_id}"
    commands = {f"lucius submit {again}": "runs the command again, as a new job"}
    if status in ("FAILED_FINAL", "CANCELLED"):
        commands[f"lucius redrive {job_id}"] = "continues it where it ended"
    show_lines(command_lines(commands.items()))

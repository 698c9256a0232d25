"""`lucius load`: the command line of `lucius.load`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    Invalid,
    TimedOut,
    Unusable,
    command_failed,
)
from lucius.cli.output.printing import show_json, show_lines
from lucius.client.addresses import is_loopback
from lucius.client.calls import jobs as job_calls
from lucius.client.keys import DATA_DEFAULT, DATA_VARIABLE
from lucius.load.plan import (
    DRAIN_SECONDS_DEFAULT,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    JOBS_MAX,
    RATE_MAX,
    REQUEST_TYPE_DEFAULT,
    SECONDS_MAX,
    SEED_MAX,
    TENANTS_MAX,
    LoadPlan,
    Mix,
    PlanError,
    read_work_ms,
)

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession, Connection
    from lucius.load.commands import Commands, Files
    from lucius.load.halt import Halt

FILES_BESIDE = 64
"""Open files that the program needs besides one for each job in flight."""
PERCENT = click.FloatRange(0.0, 100.0)
SHARES = ("fail_retryable", "fail_final", "rate_limit", "lose", "duplicate")


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--request-type", help=f"Without FILE: the request type. [{REQUEST_TYPE_DEFAULT}]")
@click.option(
    "--tenants",
    type=click.IntRange(1, TENANTS_MAX),
    metavar="N",
    help="Spread over the tenants load-1 to load-N. [FILE's tenant, or 1]",
)
@click.option("--jobs", type=click.IntRange(1, JOBS_MAX), metavar="N", help="How many. [1000; with --seconds 1000000]")
@click.option(
    "--seconds",
    type=click.FloatRange(0.0, SECONDS_MAX, min_open=True),
    metavar="S",
    help="Stop submitting after this time, or after --jobs, whichever comes first.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, IN_FLIGHT_MAX),
    default=IN_FLIGHT_DEFAULT,
    show_default=True,
    metavar="N",
    help="Maximum number of jobs submitted and not yet ended.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.0, RATE_MAX, min_open=True),
    metavar="R",
    help="Submit R jobs per second, each at its scheduled time. Latency is measured from that time, even if the server "
    "or --in-flight delayed the command: a slow server cannot hide it. Without --rate the next command is submitted "
    "when a job ends, so a slow server gets fewer.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0.0, SECONDS_MAX),
    default=DRAIN_SECONDS_DEFAULT,
    show_default=True,
    metavar="S",
    help="How long to wait for the rest, and before that for any job to be accepted or to end; then exit code 5.",
)
@click.option(
    "--play-services",
    is_flag=True,
    help="Simulate the services that the protocol names, for a server without any (lucius up --no-services). They "
    "answer every directive for these services, including those of other people's jobs.",
)
@click.option("--work-ms", metavar="A[-B]", help="Simulated: how long a step takes. [0] No heartbeats are sent.")
@click.option("--fail-retryable", type=PERCENT, metavar="P", help="Simulated: percentage of attempts that fail.")
@click.option("--fail-final", type=PERCENT, metavar="P", help="Simulated: percentage that fails permanently.")
@click.option(
    "--rate-limit", type=PERCENT, metavar="P", help="Simulated: percentage that is rate-limited, for a second."
)
@click.option(
    "--lose",
    type=PERCENT,
    metavar="P",
    help="Simulated: percentage that is ACKed and then silent until the lease expires. That takes 15 minutes by "
    "default: start the server with short leases (LUCIUS_LEASE_SECONDS, or the registry).",
)
@click.option("--duplicate", type=PERCENT, metavar="P", help="Simulated: percentage whose RESULT is sent twice.")
@click.option("--seed", type=click.IntRange(0, SEED_MAX), metavar="N", help="The same seed fails the same attempts.")
@click.option("--allow-remote", is_flag=True, help="Load a server that is not on this machine.")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The report's form."
)
@click.pass_obj
def load(connection: Connection, /, file: Path | None, request_type: str | None, output: str, **options: Any) -> None:
    """Put load on a running server, and report.

    Submits the command in FILE (read as by submit) repeatedly, or a small built-in one; each with its own idempotency
    key. The built-in command reads a sample that ships with LUCIUS and writes in the server's data folder
    ($LUCIUS_DATA, or .lucius); with --play-services its refs are never opened. Ctrl-C stops, waits at most 5 s, and
    reports.

    Exit code 0: every job has ended, including failed ones; 5: some have not.
    """
    plan = _plan(options)
    if file is not None and request_type is not None:
        raise click.UsageError("--request-type is for the built-in command; FILE has its own.")
    _refuse_remote(connection.url, options["allow_remote"])
    _check_open_files(plan.in_flight)
    from lucius.cli.jobs.envelope import read_envelope_file
    from lucius.load.commands import Commands, services_of
    from lucius.load.report import lines_of

    template = None if file is None else read_envelope_file(file)
    with connection.open() as client:
        command, protocol = _prepare(client, template, request_type or REQUEST_TYPE_DEFAULT, plan)
        files = _usable_files(client, command, plan) if template is None else None
        commands = Commands(command, plan.tenants, files)
        _check_valid(client, commands, template, command)
    report, halt = _run(connection, plan, commands, services_of(protocol))
    if output == "json":
        show_json(report)
    else:
        show_lines(lines_of(report))
    _end_with(report["ending"], halt, connection.url)


COMMANDS = (load,)


def _plan(options: dict[str, Any]) -> LoadPlan:
    shares = {name: options[name] for name in SHARES if options[name] is not None}
    try:
        mix = None
        if options["play_services"]:
            mix = Mix(work_ms=read_work_ms(options["work_ms"] or "0"), **shares)
        elif shares or options["work_ms"] is not None:
            raise PlanError(
                "--work-ms, --fail-retryable, --fail-final, --rate-limit, --lose and --duplicate are options of "
                "simulated services: pass --play-services too."
            )
        names = ("jobs", "seconds", "in_flight", "rate", "tenants", "drain_seconds", "seed")
        return LoadPlan(services=mix, **{name: options[name] for name in names if options[name] is not None})
    except PlanError as error:
        raise click.UsageError(str(error)) from error


def _prepare(
    client: ApiSession, template: dict[str, Any] | None, request_type: str, plan: LoadPlan
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The command to submit, and its protocol if needed."""
    from lucius.load.commands import built_in

    if template is None:
        protocol = client.run(job_calls.protocol(request_type))
        return built_in(request_type, protocol), protocol
    protocol = {} if plan.services is None else client.run(job_calls.protocol(str(template.get("request_type"))))
    return template, protocol


def _usable_files(client: ApiSession, command: dict[str, Any], plan: LoadPlan) -> Files | None:
    """Files for real services on this machine: the sample that ships with LUCIUS, and the server's data folder."""
    from lucius.load.commands import Commands, Files
    from lucius.platform.file_roots import FILES_FOLDER, SAMPLES

    if plan.services is not None or not is_loopback(client.transport.url):
        return None
    data = Path(os.environ.get(DATA_VARIABLE, "").strip() or DATA_DEFAULT).absolute()
    files = Files(SAMPLES / "minutes.txt", data / FILES_FOLDER)
    answer = client.run(job_calls.validate(Commands(command, plan.tenants, files).envelope(1)))
    if answer.get("valid"):
        return files
    click.echo(
        f"The server does not accept files in {data / FILES_FOLDER}, so these jobs have refs that no service can open, "
        "and services that read them fail. Set LUCIUS_DATA to the server's data folder, or pass a FILE.",
        err=True,
    )
    return None


def _check_valid(client: ApiSession, commands: Commands, template: dict[str, Any] | None, command: Any) -> None:
    """The server validates the first command, so that a fault is reported once and not for every job."""
    answer = client.run(job_calls.validate(commands.envelope(1)))
    if not answer.get("valid"):
        name = "FILE" if template else f"The built-in {command.get('request_type')} (pass a FILE of your own)"
        raise Invalid(name, answer.get("errors"))


def _run(
    connection: Connection, plan: LoadPlan, commands: Any, service_names: list[str]
) -> tuple[dict[str, Any], Halt]:
    from lucius.load.connections import Connections
    from lucius.load.run import run

    connections = Connections(connection.url, connection.key())
    return asyncio.run(run(plan, connections, commands, service_names, sys.stderr))


def _end_with(ending: str, halt: Halt, url: str) -> None:
    if halt.cause is not None:
        raise command_failed(url, halt.cause)
    if ending == "INCOMPLETE":
        raise TimedOut("not every job ended in time; they continue. --drain-seconds sets how long to wait.")
    raise click.exceptions.Exit(EXIT_INTERRUPTED if ending == "INTERRUPTED" else EXIT_OK)


def _refuse_remote(url: str, allowed: bool) -> None:
    if not allowed and not is_loopback(url):
        raise Unusable(
            f"{url} is not on this machine, and load is for servers that nobody else depends on.\n"
            "Check --url and LUCIUS_URL; if this is intended, pass --allow-remote."
        )


def _check_open_files(in_flight: int) -> None:
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < in_flight + FILES_BESIDE:
        raise Unusable(
            f"{in_flight} jobs in flight need {in_flight + FILES_BESIDE} open files, but this shell allows {allowed}: "
            "raise ulimit -n, or pass a lower --in-flight."
        )

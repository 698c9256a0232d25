"""`lucius load`: the command line of `lucius.load`."""

from __future__ import annotations

import asyncio
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

    Submits the command in FILE (read as by submit) repeatedly, or a small built-in one whose refs cannot be opened;
    each with its own idempotency key. Ctrl-C stops, waits at most 5 s, and reports.

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
    commands = Commands(command, plan.tenants)
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
    """The command to submit, and its protocol if needed.

    The server validates the first command, so that a fault is reported once and not for every job.
    """
    from lucius.load.commands import Commands, built_in

    protocol = {} if template is not None else client.run(job_calls.protocol(request_type))
    command = built_in(request_type, protocol) if template is None else template
    answer = client.run(job_calls.validate(Commands(command, plan.tenants).envelope(1)))
    if not answer.get("valid"):
        raise Invalid(
            "FILE" if template else f"The built-in {request_type} (pass a FILE of your own)", answer.get("errors")
        )
    if plan.services is not None and not protocol:
        protocol = client.run(job_calls.protocol(str(command.get("request_type"))))
    return command, protocol


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

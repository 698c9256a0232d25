"""`lucius contract test`: the command line of the contract kit."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from lucius.cli.failures import EXIT_JOB_FAILED, EXIT_OK, Unreachable, Unusable
from lucius.cli.output.printing import output_option

if TYPE_CHECKING:
    from lucius.contract.bus_bridge import BusPlan
    from lucius.contract.case import Case, Verdict

START_SECONDS = 60.0
START_SECONDS_MAX = 3_600.0
PACE_MIN, PACE_MAX = 0.5, 10.0
JSON_BYTES_MAX = 1_048_576
EXIT_TERMINATED = 143

file_type = click.Path(exists=True, dir_okay=False, path_type=Path)


def json_of(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Inline JSON, or @FILE."""
    if value is None:
        return None
    try:
        if value.startswith("@"):
            with Path(value[1:]).open("rb") as opened:
                return json.loads(opened.read(JSON_BYTES_MAX))
        return json.loads(value)
    except OSError as error:
        raise click.BadParameter(f"{value[1:]} cannot be read: {error.strerror}", context, parameter) from error
    except ValueError as error:
        raise click.BadParameter(f"this is not valid JSON: {error}", context, parameter) from error


def address_of(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int]:
    """Host and port of a URL; without one, a free loopback port."""
    if value is None:
        return "127.0.0.1", 0
    parts = urlsplit(value)
    try:
        port = parts.port or 0
    except ValueError:
        port = -1
    if parts.scheme != "http" or not parts.hostname or port < 0 or parts.path not in ("", "/"):
        raise click.BadParameter(f"{value!r} is not like http://127.0.0.1:8900", context, parameter)
    return parts.hostname, port


@click.group()
def contract() -> None:
    """Test a platform service against the contract."""


@contract.command("test")
@click.option("--service", required=True, help="The service's name, as it pulls.")
@click.option("--url", "address", callback=address_of, metavar="URL", help="Where to listen. [a free loopback port]")
@click.option(
    "--bus", "bus_url", metavar="URL", help="Deliver directives over this bus, such as nats://127.0.0.1:4222."
)
@click.option(
    "--callbacks",
    type=click.Choice(("http", "bus")),
    default="http",
    show_default=True,
    help="How the service answers.",
)
@click.option("--step-type", help="The directives' step_type. [the service's name in capitals]")
@click.option("--payload", callback=json_of, metavar="JSON|@FILE", help="The sample's payload. [{}]")
@click.option("--input", "input_path", type=file_type, help="The sample's input_ref. [a small text]")
@click.option("--previous", callback=json_of, metavar="JSON|@FILE", help="Artifacts of earlier steps, by step. [{}]")
@click.option("--not-last", is_flag=True, help="The step is not the last of its protocol: it writes no output_ref.")
@click.option("--slow-payload", callback=json_of, metavar="JSON|@FILE", help="A payload that takes a few seconds.")
@click.option("--slow-input", "slow_input_path", type=file_type, help="An input that takes a few seconds.")
@click.option("--only", multiple=True, metavar="CASE", help="Run only this case; repeatable.")
@click.option("--skip", multiple=True, metavar="CASE", help="Skip this case; repeatable.")
@click.option("--allow-not-run", is_flag=True, help="Cases that could not be run do not fail the run.")
@click.option("--junit", "junit_path", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit XML here.")
@click.option(
    "--start-seconds",
    type=click.FloatRange(0.0, START_SECONDS_MAX, min_open=True),
    default=START_SECONDS,
    show_default=True,
    help="How long the service may take until its first pull.",
)
@click.option(
    "--pace",
    type=click.FloatRange(PACE_MIN, PACE_MAX),
    default=1.0,
    show_default=True,
    help="Stretches work, leases and delays; above 1, for a slow machine, deadlines and silences too.",
)
@output_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def test(
    service: str,
    address: tuple[str, int],
    bus_url: str | None,
    callbacks: str,
    step_type: str | None,
    payload: Any,
    input_path: Path | None,
    previous: Any,
    not_last: bool,
    slow_payload: Any,
    slow_input_path: Path | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    allow_not_run: bool,
    junit_path: Path | None,
    start_seconds: float,
    pace: float,
    output: str,
    command: tuple[str, ...],
) -> int:
    """Act as the orchestrator for one service, and report what the service does wrong.

    COMMAND, after --, starts the service; the kit kills and restarts it in some cases. Without COMMAND the kit prints
    the environment to start the service with, and waits for it.
    """
    from lucius.contract import report
    from lucius.contract.bus_bridge import BusPlan
    from lucius.contract.directives import Sample
    from lucius.contract.runner import ContractPlan, NeverPulled, run
    from lucius.contract.shapes import KitUnusable

    if previous is not None and not isinstance(previous, dict):
        raise click.UsageError("--previous must be an object: artifacts by step id.")
    sample = Sample(
        service,
        step_type or service.upper(),
        {} if payload is None else payload,
        previous or {},
        input_path,
        slow_payload,
        slow_input_path,
        is_last=not not_last,
    )
    if callbacks == "bus" and bus_url is None:
        raise click.UsageError("--callbacks bus needs --bus: a service that answers there takes its directives there.")
    bus = None if bus_url is None else BusPlan(bus_url, callbacks, f"contract-{secrets.token_hex(6)}")
    plan = ContractPlan(sample, _chosen(only, skip, bus), command, *address, start_seconds, pace, bus)
    is_text = output == "text"
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    started = time.monotonic()

    def show(verdict: Verdict) -> None:
        for line in report.lines(verdict, colour) if is_text else []:
            click.echo(line, color=colour)

    # A build server ends its jobs with SIGTERM: the service must not outlive the kit then either.
    before = signal.signal(signal.SIGTERM, _end)
    try:
        verdicts = run(plan, lambda environ: _announce(environ, command), show)
    except KitUnusable as error:
        raise Unusable(str(error)) from error
    except NeverPulled as error:
        raise Unreachable(f"the service {service} never pulled: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, before)
    passed = report.has_passed(verdicts, allow_not_run)
    if junit_path is not None:
        _write(junit_path, report.as_junit(service, verdicts, allow_not_run))
    if is_text:
        click.echo(report.summary(verdicts, time.monotonic() - started))
    else:
        click.echo(json.dumps(report.as_json(service, verdicts, passed), ensure_ascii=False, indent=2))
    return EXIT_OK if passed else EXIT_JOB_FAILED


COMMANDS = (contract,)


def _end(signal_number: int, frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)


def _chosen(only: tuple[str, ...], skip: tuple[str, ...], bus: BusPlan | None) -> list[Case]:
    from lucius.contract.cases import every_case, is_played

    cases = every_case()
    unknown = [name for name in (*only, *skip) if name not in {case.id for case in cases}]
    if unknown:
        known = ", ".join(case.id for case in cases)
        raise click.UsageError(f"there is no case {', '.join(unknown)}; the cases are {known}")
    chosen = [case for case in cases if (not only or case.id in only) and case.id not in skip]
    if bus is not None:
        chosen = [case for case in chosen if is_played(case, True, bus.callbacks == "bus")]
    if not chosen:
        raise click.UsageError("--only and --skip leave no case to run")
    return chosen


def _announce(environ: dict[str, str], command: tuple[str, ...]) -> None:
    """On stderr, so that the report can be piped."""
    if command:
        click.echo(f"The kit listens on {environ['LUCIUS_ORCHESTRATOR_URL']}.", err=True)
        return
    click.echo("Start the service with this environment; the kit waits for its first pull:", err=True)
    for name, value in environ.items():
        if name.startswith("LUCIUS_"):
            click.echo(f"  export {name}={shlex.quote(value)}", err=True)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}") from error

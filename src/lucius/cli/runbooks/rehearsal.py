"""`lucius runbook plan` and `lucius runbook rehearse`: the command line of `lucius.runbooks.rehearsal`.

Neither needs a server: the runbook is a file, and its members are a CSV or generated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lucius.cli.failures import EXIT_OK, EXIT_REFUSED, CommandFailed, Unusable, printable
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import output_option, show_json, show_lines, show_sentences, show_table
from lucius.cli.output.tables import aligned
from lucius.cli.runbooks.files import member_fault, read_moment
from lucius.cli.serve.server import server_packages

if TYPE_CHECKING:
    from lucius.runbooks.core.definition.calendar import Freeze
    from lucius.runbooks.core.source_members import Members
    from lucius.runbooks.rehearsal.behaviour import Behaviour
    from lucius.runbooks.rehearsal.plan import RehearsalPlan
    from lucius.runbooks.rehearsal.report import Report

F = TypeVar("F", bound=Callable[..., Any])

RUNBOOK_BYTES_MAX = 262_144
CSV_BYTES_MAX = 67_108_864
BATCHES_SHOWN_MAX = 10
MISSES_SHOWN_MAX = 20
COUNT_MAX = 100_000
SEED_MAX = 2**32 - 1
MILLIS_A_DAY = 86_400_000

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Faulty(CommandFailed):
    """A runbook with faults, each with its line."""

    exit_code = EXIT_REFUSED


def instant_of(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A time in ISO 8601; UTC without an offset."""
    found = read_moment(context, parameter, value)
    return None if found is None else round(found.timestamp() * 1000)


def shared_options(command: F) -> F:
    for option in (
        output_option,
        click.option("--now", callback=instant_of, metavar="T", help="Start from this time. [plan: now; rehearse: an "
                     "hour before the first phase]"),
        click.option("--start", callback=instant_of, metavar="T", help="A single batch that starts at this time, "
                     "such as 2026-12-01T08:00Z. [by the runbook's batch_time_column]"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("file", type=FILE)
@click.option("--members", "csv", type=FILE, required=True, metavar="CSV", help="The members.")
@shared_options
@click.option("--limit", type=click.IntRange(0, 1_000), default=3, show_default=True, metavar="N",
              help="Show the first N members with every step.")  # fmt: skip
@click.option("--member", "keys", multiple=True, metavar="KEY", help="Show this member instead; repeatable.")
def plan(
    file: Path, csv: Path, start: int | None, now: int | None, output: str, limit: int, keys: tuple[str, ...]
) -> None:
    """Show what will happen to each member, and when. Needs no server.

    Reads the runbook in FILE and its members from a CSV. Shows each batch and phase with its time, how long a phase may
    take if everything times out and whether it would still end before the next, and for the first members each step
    with its parameters. Exit code 3 if variables have no value or rows cannot be used.
    """
    with refusals(file, csv):
        from lucius.runbooks.rehearsal.plan import make_plan
        from lucius.runbooks.rehearsal.report import to_json

        content = read_file(file, RUNBOOK_BYTES_MAX)
        members = members_of(content, csv, start)
        of_files = freezes_of(content)
        made = make_plan(content, members, start, now if now is not None else now_millis(), keys, limit, of_files)
    if output == "json":
        show_json(to_json(made))
    else:
        show_plan(made)
    raise click.exceptions.Exit(EXIT_REFUSED if made.faults else EXIT_OK)


@click.command()
@click.argument("file", type=FILE)
@click.option("--members", "csv", type=FILE, metavar="CSV", help="The members.")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), metavar="N", help="Generate N members instead.")
@shared_options
@click.option("--seed", type=click.IntRange(0, SEED_MAX), default=1, show_default=True, metavar="N",
              help="The same seed gives the same rehearsal.")  # fmt: skip
@click.option("--duration", metavar="D", help="How long a job usually takes. [30s]")
@click.option("--fail", metavar="P", help="Share of jobs that fail. [2%]")
@click.option("--throttle", metavar="P", help="Share of jobs that are throttled. [1%]")
@click.option("--lost", metavar="P", help="Share of jobs that are never answered, so that their step times out. [0.5%]")
@click.option("--slow", metavar="P", help="Share of steps that take 20 times as long. [5%]")
@click.option("--poll-rounds", type=click.IntRange(0, 10_000), metavar="N",
              help="How many times a polled step is still running. [4]")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 100_000), metavar="N", help="Concurrent jobs per worker_id. [50]")
@click.option("--behaviour", type=FILE, metavar="YAML", help="These options by function, and workers by worker_id.")
@click.option("--csv", "csv_out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write every member that would miss a window to FILE.")  # fmt: skip
def rehearse(
    file: Path,
    csv: Path | None,
    count: int | None,
    start: int | None,
    now: int | None,
    output: str,
    seed: int,
    behaviour: Path | None,
    csv_out: Path | None,
    **mix: Any,
) -> None:
    """Run a runbook on a virtual clock, with simulated workers. Uses no server.

    The real scheduler and orchestrator take the members of a CSV, or generated ones, through every phase in seconds,
    while jobs fail, are throttled, run long or are lost as the options say. Shows the timeline to expect and the
    members that would miss a window: their steps had not ended when the next phase was due, or at the batch's start.
    """
    if (csv is None) == (count is None):
        raise click.UsageError("Pass either --members CSV or --count N.")
    began = time.monotonic()
    with refusals(file, csv):
        import asyncio

        from lucius.runbooks.core.definition.reading import read_runbook
        from lucius.runbooks.rehearsal import rehearsal
        from lucius.runbooks.rehearsal.members import made_up_members
        from lucius.runbooks.rehearsal.report import to_json
        from lucius.runbooks.rehearsal.windows import usual_start

        content = read_file(file, RUNBOOK_BYTES_MAX)
        runbook = read_runbook(content)
        if start is None and (count is not None or runbook.source is None or runbook.source.batch_time_column is None):
            start = usual_start(runbook, now if now is not None else now_millis())
        if csv is not None:
            members = members_of(content, csv, start)
        else:
            members = made_up_members(runbook, count or 0, start or 0)
        chosen = behaviour_of(behaviour, mix)
        of_files = freezes_of(content)
        report = asyncio.run(rehearsal.rehearse(content, members, start, chosen, seed, now=now, of_files=of_files))
    if csv_out is not None:
        write_misses(csv_out, report)
    if output == "json":
        show_json(to_json(report))
    else:
        show_report(report, time.monotonic() - began, csv_out)


# --- Input -----------------------------------------------------------------------------------------------------------


@contextmanager
def refusals(file: Path, members: Path | None) -> Iterator[None]:
    """Converts errors of the rehearsal into errors of the command."""
    with server_packages():
        from lucius.runbooks.core.definition.reading import RunbookInvalid
        from lucius.runbooks.rehearsal.behaviour import BehaviourInvalid
        from lucius.runbooks.rehearsal.inside import RehearsalFailed
        from lucius.runbooks.sources.limits import SourceError
    try:
        with server_packages():
            yield
    except RunbookInvalid as error:
        lines = [f"{file}:{fault.line}: {fault.message}" for fault in error.faults]
        raise Faulty("\n".join(printable(line) for line in [f"{file} is not a valid runbook:", *lines])) from error
    except SourceError as error:
        found = error.faults or [str(error)]
        lines = [printable(f"the members: {one}") if members is None else member_fault(members, one) for one in found]
        raise Unusable("\n".join(lines)) from error
    except BehaviourInvalid as error:
        raise Unusable(printable(f"the behaviour: {error}")) from error
    except RehearsalFailed as error:
        raise CommandFailed(printable(f"the rehearsal stopped: {error}")) from error


def read_file(file: Path, bytes_max: int) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(bytes_max + 1)
    except OSError as error:
        raise Unusable(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise Unusable(f"{file} has more than {bytes_max} bytes")
    return content


def members_of(content: bytes, csv: Path, start: int | None) -> Members:
    from lucius.runbooks.core.definition.reading import read_runbook
    from lucius.runbooks.rehearsal.members import csv_members

    return csv_members(read_file(csv, CSV_BYTES_MAX), read_runbook(content), start)


def freezes_of(content: bytes) -> list[Freeze]:
    """In the calendar files that the runbook names, by variables of this command's environment."""
    from lucius.runbooks.core.definition.reading import read_runbook
    from lucius.runbooks.sources.calendars import read_calendars

    return read_calendars(content, read_runbook(content).calendar, os.environ, (), now_millis())


def behaviour_of(file: Path | None, mix: dict[str, Any]) -> Behaviour:
    from lucius.runbooks.rehearsal.behaviour import parse_options, read_behaviour

    return read_behaviour(b"{}" if file is None else read_file(file, RUNBOOK_BYTES_MAX), parse_options(mix))


def now_millis() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


def write_misses(file: Path, report: Report) -> None:
    from lucius.cli.runbooks.rehearsal_tables import miss_rows
    from lucius.runbooks.sources.csv_text import write_csv

    try:
        file.write_text(write_csv(*miss_rows(report.misses)), "utf-8", newline="")
    except OSError as error:
        raise Unusable(f"{file} cannot be written: {error.strerror}") from error


# --- Output ----------------------------------------------------------------------------------------------------------


def show_plan(plan: RehearsalPlan) -> None:
    from lucius.cli.runbooks import rehearsal_tables as tables

    show_lines(aligned(tables.plan_facts(plan)))
    for batch in plan.batches[:BATCHES_SHOWN_MAX]:
        show_lines(["", tables.batch_title(batch), ""])
        show_table(tables.phase_table(batch))
    if len(plan.batches) > BATCHES_SHOWN_MAX:
        more = counted(len(plan.batches) - BATCHES_SHOWN_MAX, "more batch", "more batches")
        show_lines(["", f"… and {more}: see --output json."])
    if waits := tables.planned_waits(plan.batches) + tables.approval_sentences(plan.batches):
        show_sentences(["", *waits[:BATCHES_SHOWN_MAX]])
    if too_short := tables.window_sentences(plan.batches):
        show_sentences(["", *too_short[:BATCHES_SHOWN_MAX]])
    show_lines(["", "Steps" + (" (at worst: of the first batch)" if len(plan.batches) > 1 else ""), ""])
    show_table(tables.step_table(plan.batches[0]))
    for member in plan.shown:
        show_lines(["", f"Member {text_of(member.member)}, batch of {tables.at_text(member.batch_start)} UTC", ""])
        show_table(tables.member_table(member))
    if len(plan.shown) < plan.members:
        show_lines(["", f"{len(plan.shown)} of {counted(plan.members, 'member')}; --limit and --member show others."])
    if plan.faults:
        show_lines(["", f"{counted(len(plan.faults), 'fault')}:"])
        show_sentences([f"  {text_of(fault)}" for fault in plan.faults])


def show_report(report: Report, took_seconds: float, csv_out: Path | None) -> None:
    from lucius.cli.runbooks import rehearsal_tables as tables

    show_lines(aligned(tables.report_facts(report, took_seconds)))
    for batch in report.batches[:BATCHES_SHOWN_MAX]:
        show_lines([""])
        show_sentences([tables.batch_sentence(batch)])
        show_lines([""])
        show_table(tables.timeline_table(batch))
    if len(report.batches) > BATCHES_SHOWN_MAX:
        left_out = counted(len(report.batches) - BATCHES_SHOWN_MAX, "more batch", "more batches")
        show_lines(["", f"… and {left_out}: see --output json."])
    if approvals := tables.approval_sentences(report.batches):
        show_sentences(["", *approvals[:BATCHES_SHOWN_MAX], "The rehearsal takes approvals as given in time."])
    if waits := tables.rehearsed_waits(report.batches):
        show_sentences(["", *waits[:BATCHES_SHOWN_MAX]])
    show_lines([""])
    show_table(tables.worker_table(report))
    show_lines([""])
    show_sentences([*(tables.hold_sentence(hold) for hold in report.holds), tables.miss_sentence(report)])
    if report.misses:
        show_lines([""])
        shown = tables.most_severe(report.misses, MISSES_SHOWN_MAX)
        show_table(tables.miss_table(shown, len(report.batches) > 1), note_lines_max=2)
        more = len(report.misses) - MISSES_SHOWN_MAX
        if csv_out is not None:
            show_lines(["", f"All {len(report.misses):,} are in {csv_out}."])
        elif more > 0:
            show_lines(["", f"… and {more:,} more: --csv FILE writes them all."])
    if report.faults:
        show_lines(["", f"{counted(len(report.faults), 'row')} of the CSV left out:"])
        show_sentences([f"  {text_of(fault)}" for fault in report.faults])

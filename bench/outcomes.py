"""What was measured, as `bench/results/latest.json` and as the tables of `docs/benchmarks.md`.

A run of some parts replaces those parts alone: the page's table always has the newest figures of each part, and says
for each when and with how many rounds it was measured.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec

from bench.part import Measured, Options, Row
from bench.processes import ROOT
from bench.report import Rows, markdown, replace_between

PAGE = ROOT / "docs" / "benchmarks.md"
LATEST = ROOT / "bench" / "results" / "latest.json"
SUMMARY = "summary"
HEADER = ("measure", "figure", "processor", "beside it, in the same run", "ratio", "goal", "reached")


class Machine(msgspec.Struct, kw_only=True):
    cores: int
    memory_gb: int
    system: str
    python: str
    sqlite: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.memory_gb} GB, {self.system}, Python {self.python}, SQLite {self.sqlite}"


class Outcome(msgspec.Struct, kw_only=True):
    """Of one part: what it has found, or why it has not."""

    measured_at: str
    rounds: int
    seconds: float
    took_seconds: float
    load_average: float
    """When it began: a machine with other work says little."""
    machine: Machine
    found: Measured | None = None
    error: str | None = None


Outcomes = dict[str, Outcome]


def machine() -> Machine:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 1e9),
        system=platform.system(),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
    )


def outcome(
    options: Options, took_seconds: float, load_average: float, found: Measured | None, error: str | None
) -> Outcome:
    return Outcome(
        measured_at=f"{datetime.now(UTC):%Y-%m-%d}",
        rounds=options.rounds,
        seconds=options.seconds,
        took_seconds=round(took_seconds, 1),
        load_average=round(load_average, 1),
        machine=machine(),
        found=found,
        error=error,
    )


def table(outcomes: Outcomes) -> Rows:
    rows: Rows = [HEADER]
    for name, one in outcomes.items():
        if one.found is None:
            rows.append((f"**{name}**: not measured", one.error or "", *[""] * 5))
            continue
        rows.append((f"**{name}** ({when(one)})", *[""] * 6))
        rows += [cells(row) for row in one.found.rows]
    return rows


def when(one: Outcome) -> str:
    rounds = "1 round" if one.rounds == 1 else f"{one.rounds} rounds"
    return f"{one.measured_at}, {rounds} of {one.seconds:g} s, load {one.load_average:g} at its beginning"


def cells(row: Row) -> tuple[str, ...]:
    reached = "" if row.reached is None else "yes" if row.reached else "no"
    return (row.measure, row.figure, row.processor, row.beside, row.ratio, row.goal, reached)


def summary(outcomes: Outcomes) -> str:
    machines = {str(one.machine): None for one in outcomes.values()}
    return f"Measured on {'; '.join(machines)}.\n\n{markdown(table(outcomes))}"


def read_latest(path: Path = LATEST) -> Outcomes:
    return msgspec.json.decode(path.read_bytes(), type=Outcomes) if path.exists() else {}


def keep(new: Outcomes, order: list[str], latest: Path = LATEST, page: Path = PAGE) -> None:
    """A part that failed keeps its earlier figures, if it has any: the command says that it failed."""
    known = read_latest(latest)
    known |= {name: one for name, one in new.items() if one.found is not None or name not in known}
    known = {name: known[name] for name in order if name in known}
    latest.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    for name, one in new.items():
        if one.found is not None:
            replace_between(page, name, one.found.detail)
    replace_between(page, SUMMARY, summary(known))

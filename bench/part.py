"""What a part of the benchmark is: a name, what it measures, and a function that answers with rows of the one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from bench.processes import BenchError
from bench.report import Rows, markdown

ROUNDS, SECONDS = 3, 4.0
QUICK_ROUNDS, QUICK_SECONDS = 1, 1.5


class Options(NamedTuple):
    rounds: int
    seconds: float
    """Of each load; the load generator then waits for what is in flight."""
    quick: bool
    """Whether fewer jobs do as well: the figures are not kept."""
    disk: Path
    """Where the data is; each part removes what it has made."""
    before: Path | None = None
    """The program of another version, to be measured in the same rounds."""
    before_name: str = "the version before"
    choices: tuple[str, ...] = ()
    """Of a part with several sides, those that are wanted; all if there are none."""


class Row(msgspec.Struct, omit_defaults=True):
    """A line of the one table. What stands beside a figure was measured in the same run."""

    measure: str
    figure: str
    processor: str = ""
    """A job's, or whatever is counted."""
    beside: str = ""
    """The limit or the peer, and its figure."""
    ratio: str = ""
    goal: str = ""
    reached: bool | None = None


class Measured(msgspec.Struct):
    """What a part has found."""

    rows: list[Row]
    detail: str
    """Markdown, between the part's marks in `docs/benchmarks.md`."""
    data: Any
    """Every round's figures."""


class Part(NamedTuple):
    name: str
    """As in `--only`; the page has the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
    measures: str
    run: Callable[[Options], Measured]
    expected_seconds: Callable[[Options], float]
    """About how long it takes on two cores."""
    choices: tuple[str, ...] = ()
    needs_before: bool = False


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def at_least(figure: float, goal: float, digits: int = 0) -> tuple[str, bool]:
    return f"≥ {goal:,.{digits}f}", figure >= goal


def at_most(figure: float, goal: float, unit: str = "ms") -> tuple[str, bool]:
    return f"≤ {goal:g} {unit}", figure <= goal


def share_at_least(share: float, goal: float) -> tuple[str, bool]:
    return f"≥ {goal:.0%}", share >= goal


def share_at_most(share: float, goal: float) -> tuple[str, bool]:
    return f"≤ {goal:.0%}", share <= goal


def median_ratio(figures: Sequence[float], others: Sequence[float]) -> float:
    """Of what stands side by side in each round, so that a slow moment weighs on both."""
    return median(one / other for one, other in zip(figures, others, strict=True))


def alternating(rounds: int, names: Sequence[str]) -> list[list[str]]:
    """The order in which each round measures its sides: every other round backwards."""
    return [list(names) if at % 2 else list(reversed(names)) for at in range(rounds)]


def rounds_of(options: Options, what: str) -> str:
    count = "one round" if options.rounds == 1 else f"{options.rounds} alternating rounds"
    return f"Medians of {count} of {options.seconds:g} s, {what}."


def detail(told: str, *tables: Rows) -> str:
    return "\n\n".join([told, *(markdown(table) for table in tables)])


def chosen(options: Options, names: Sequence[str]) -> list[str]:
    return [name for name in names if not options.choices or name in options.choices]


def require_before(options: Options) -> Path:
    if options.before is None:
        raise BenchError("this part compares with another version: name its program with --before")
    return options.before

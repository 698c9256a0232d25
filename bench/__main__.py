"""`python -m bench`: every measure in one command and one table, each figure beside its limit or peer of the same run.

Without --quick it replaces the tables of `docs/benchmarks.md` and `bench/results/latest.json`; with --only those of the
named parts. Another version of LUCIUS is measured in the same rounds with --before.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from traceback import format_exc

from bench import outcomes, part
from bench.harness import HarnessOptions
from bench.part import Options, Part
from bench.parts import PARTS
from bench.prefill import PrefillError
from bench.processes import ROOT, BenchError
from bench.profiling import profile
from bench.report import aligned

PROFILED_IN_FLIGHT = 200


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    lines = "\n".join(
        f"  {one.name:10} {one.measures}"
        + (f" (some of it: {one.name}:{','.join(one.choices)})" if one.choices else "")
        for one in PARTS
    )
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=f"parts:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="PART", help="measure these parts")
    parser.add_argument("--without", nargs="+", metavar="PART", default=[], help="leave these parts out")
    parser.add_argument("--quick", action="store_true", help="a look: one short round of everything; keeps no figures")
    parser.add_argument("--rounds", type=int, help=f"alternating rounds ({part.ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"of each load ({part.SECONDS:g})")
    parser.add_argument("--before", type=Path, metavar="PROGRAM", help="another version's lucius, to compare with")
    parser.add_argument("--before-name", default="the version before", help="what the page calls that version")
    parser.add_argument("--disk", type=Path, default=outcomes.LATEST.parent, help="folder for data, removed afterwards")
    parser.add_argument("--profile", action="store_true", help="only profile the server; prints where the time goes")
    parser.add_argument("--list", action="store_true", help="only list the parts and how long each takes")
    return parser.parse_args(arguments)


def options_of(given: argparse.Namespace) -> Options:
    return Options(
        rounds=given.rounds or (part.QUICK_ROUNDS if given.quick else part.ROUNDS),
        seconds=given.seconds or (part.QUICK_SECONDS if given.quick else part.SECONDS),
        quick=given.quick,
        disk=given.disk.resolve(),
        before=given.before and given.before.absolute(),
        before_name=given.before_name,
    )


def wanted_parts(
    only: Sequence[str] | None, without: Sequence[str], has_before: bool
) -> list[tuple[Part, tuple[str, ...]]]:
    """Each with the sides that are wanted of it."""
    known = {one.name: one for one in PARTS}
    found: dict[str, tuple[str, ...]] = {}
    for text in only or [one.name for one in PARTS if has_before or not one.needs_before]:
        name, _, sides = text.partition(":")
        choices = tuple(sides.split(",")) if sides else ()
        if name not in known or not set(choices) <= set(known[name].choices):
            raise BenchError(f"there is no part {text}; --list lists them")
        if known[name].needs_before and not has_before:
            raise BenchError(f"{name} compares with another version: name its program with --before")
        found[name] = choices
    if unknown := set(without) - set(known):
        raise BenchError(f"there is no part {', '.join(sorted(unknown))}; --list lists them")
    return [(known[name], choices) for name, choices in found.items() if name not in without]


def measure(parts: Sequence[tuple[Part, tuple[str, ...]]], options: Options) -> outcomes.Outcomes:
    """A part that fails does not cost the others their figures."""
    expected = [one.expected_seconds(options) for one, _ in parts]
    found: outcomes.Outcomes = {}
    pace, began = 1.0, time.monotonic()
    for at, (one, choices) in enumerate(parts):
        left = sum(expected[at:]) * pace
        say(f"[{at + 1}/{len(parts)}] {one.name}: {one.measures} (about {minutes(left)} left in all)")
        load_average, started_at = os.getloadavg()[0], time.monotonic()
        measured, error = None, None
        try:
            measured = one.run(options._replace(choices=choices))
        except (BenchError, PrefillError) as failure:
            error = str(failure)
        except Exception:
            error = format_exc()
        if error is not None:
            say(f"  {one.name} failed: {error}")
            error = error.strip().splitlines()[-1].replace("|", "/")[:200]
        ended_at = time.monotonic()
        found[one.name] = outcomes.outcome(options, ended_at - started_at, load_average, measured, error)
        pace = (ended_at - began) / sum(expected[: at + 1])
    say(f"measured in {minutes(time.monotonic() - began)}")
    return found


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse_arguments(arguments)
    options = options_of(given)
    # Whoever ends this process ends what it started: the exit goes through every `with`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if given.profile:
            print(profile(HarnessOptions(), options.disk, inflight=PROFILED_IN_FLIGHT, seconds=options.seconds))
            return 0
        parts = wanted_parts(given.only, given.without, options.before is not None)
    except BenchError as error:
        say(f"bench: {error}")
        return 1
    if given.list:
        for one, _ in parts:
            print(f"{one.name:10} {minutes(one.expected_seconds(options)):>6}  {one.measures}")
        return 0
    found = measure(parts, options)
    print(aligned(outcomes.table(found)))
    is_whole = {one.name for one, choices in parts if not choices}
    if is_whole and not options.quick:
        outcomes.keep({name: one for name, one in found.items() if name in is_whole}, [one.name for one in PARTS])
        say(f"kept in {outcomes.LATEST.relative_to(ROOT)} and {outcomes.PAGE.relative_to(ROOT)}")
    return 1 if any(one.found is None for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

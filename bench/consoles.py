"""The part `consoles`: what open consoles cost a loaded server, in alternating rounds.

A round is one server on an empty ledger, loaded three times: without consoles, with streams as consoles open them, and
with consoles that also read what changed. The order changes from round to round; ratios are taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.harness import Harness, HarnessOptions, clean, open_harness
from bench.part import Measured, Options, Part, Row, detail, rounds_of, say, share_at_least, share_at_most
from bench.processes import BenchError, Process, python_module, scratch_folder
from bench.report import Rows

CONSOLES = 100
INFLIGHT = 100
CPU_GOAL, RATE_GOAL = 1.10, 0.90
WARM_UP_JOBS = 500
OPEN_SECONDS_MAX = 90.0
NONE, STREAMS, READING = "without consoles", "their streams alone", "consoles that read what changed"
KINDS = (NONE, STREAMS, READING)

Run = tuple[float, float]
"""The server's processor a job in milliseconds, and jobs a second."""
CPU, RATE = range(2)


@contextmanager
def clients(kind: str, port: int, folder: Path) -> Iterator[None]:
    if kind == NONE:
        yield
        return
    more = ["--reads"] if kind == READING else []
    output = folder / "consoles.log"
    command = python_module("bench.console_clients", "--port", str(port), "--consoles", str(CONSOLES), *more)
    with Process("the consoles", command, output) as process:
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        while not output.read_text().startswith("open"):
            process.require_running()
            if time.monotonic() > deadline:
                raise BenchError(f"the consoles did not open:\n{output.read_text()[-2_000:]}")
            time.sleep(0.05)
        yield
        process.require_running()
    if "events 0 " in output.read_text() or "events" not in output.read_text():
        raise BenchError(f"the consoles saw nothing:\n{output.read_text()[-2_000:]}")
    say(f"  {kind}: {output.read_text().splitlines()[-1]}")


def load(harness: Harness, kind: str, seconds: float, folder: Path) -> Run:
    with clients(kind, harness.port, folder):
        cpu = (run := clean(harness.load(INFLIGHT, 1_000_000, seconds))).cpu_ms_per_job
    assert cpu is not None, "a clean run has it"
    return cpu.server, run.jobs_per_second


def measure(options: Options) -> list[dict[str, Run]]:
    found = []
    for at in range(options.rounds):
        with scratch_folder("consoles", options.disk) as folder, open_harness(folder, HarnessOptions()) as harness:
            harness.load(INFLIGHT, WARM_UP_JOBS, 1.0)
            order = KINDS[at % len(KINDS) :] + KINDS[: at % len(KINDS)]
            found.append({kind: load(harness, kind, options.seconds, folder) for kind in order})
        told = ", ".join(f"{kind} {cpu:.3f} ms, {rate:,.0f} jobs/s" for kind, (cpu, rate) in found[-1].items())
        say(f"round {at + 1}: {told}")
    return found


def ratios(found: list[dict[str, Run]], kind: str, at: int) -> list[float]:
    """Of each round: this figure beside that of the same server without consoles, the lowest first."""
    return sorted(one[kind][at] / one[NONE][at] for one in found)


def figure(found: list[dict[str, Run]], kind: str, at: int) -> float:
    return median(one[kind][at] for one in found)


def rows(found: list[dict[str, Run]]) -> Rows:
    of_none = "of that without consoles"
    made: Rows = [("", "server's processor a job", of_none, "jobs/s", of_none)]
    for kind in KINDS:
        told = ["" if kind == NONE else _spread(ratios(found, kind, at)) for at in (CPU, RATE)]
        cpu, rate = figure(found, kind, CPU), figure(found, kind, RATE)
        made.append((kind, f"{cpu:.2f} ms", told[CPU], f"{rate:,.0f}", told[RATE]))
    return made


def _spread(of_rounds: list[float]) -> str:
    return f"{median(of_rounds):.0%} ({of_rounds[0]:.0%} to {of_rounds[-1]:.0%})"


def summary_rows(found: list[dict[str, Run]]) -> list[Row]:
    """Of each kind what the server spends on a job, and what is left of its throughput: the goals are those of consoles
    that read what changed."""
    made = []
    for kind in (STREAMS, READING):
        cpu, rate = figure(found, kind, CPU), figure(found, kind, RATE)
        shares = [median(ratios(found, kind, at)) for at in (CPU, RATE)]
        words = f"{CONSOLES} open consoles, {kind}"
        spent = Row(f"server's processor a job with {words}", f"{cpu:.2f} ms", ratio=f"{shares[CPU]:.0%}")
        spent.beside = f"without, {figure(found, NONE, CPU):.2f} ms"
        left = Row(f"jobs/s with {words}", f"{rate:,.0f}", f"{cpu:.2f} ms", ratio=f"{shares[RATE]:.0%}")
        left.beside = f"without, {figure(found, NONE, RATE):,.0f}/s"
        if kind == READING:
            spent.goal, spent.reached = share_at_most(shares[CPU], CPU_GOAL)
            left.goal, left.reached = share_at_least(shares[RATE], RATE_GOAL)
        made += [spent, left]
    return made


def run(options: Options) -> Measured:
    found = measure(options)
    told = rounds_of(
        options,
        f"{CONSOLES} consoles on the overview, {INFLIGHT} jobs in flight; ratios are medians of the rounds' own, in"
        " brackets the lowest and the highest",
    )
    return Measured(summary_rows(found), detail(told, rows(found)), found)


PART = Part(
    "consoles",
    "open consoles on a loaded server, beside the server without them",
    run,
    lambda options: options.rounds * (17 + 3.3 * options.seconds),
)

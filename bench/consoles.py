"""The part `consoles`: what open consoles cost a loaded server, in alternating rounds.

A round is one server on an empty ledger, loaded three times: without consoles, with streams as consoles open them, and
with consoles that also read what changed. The order changes from round to round; the ratio is taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.harness import Harness, HarnessOptions, clean, open_harness
from bench.part import Measured, Options, Part, Row, detail, rounds_of, say, share_at_most
from bench.processes import BenchError, Process, python_module, scratch_folder
from bench.report import Rows

CONSOLES = 100
INFLIGHT = 100
RATIO_GOAL = 1.10
WARM_UP_JOBS = 500
OPEN_SECONDS_MAX = 90.0
NONE, STREAMS, READING = "without consoles", "their streams alone", "consoles that read what changed"
KINDS = (NONE, STREAMS, READING)

Run = tuple[float, float]
"""The server's processor a job in milliseconds, and jobs a second."""


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


def ratio(found: list[dict[str, Run]], kind: str) -> float:
    return median(one[kind][0] / one[NONE][0] for one in found)


def rows(found: list[dict[str, Run]]) -> Rows:
    made: Rows = [("", "server's processor a job", "of that without consoles", "jobs/s")]
    for kind in KINDS:
        ratios = sorted(one[kind][0] / one[NONE][0] for one in found)
        told = "" if kind == NONE else f"{median(ratios):.0%} ({ratios[0]:.0%} to {ratios[-1]:.0%})"
        cpu, rate = (median(one[kind][at] for one in found) for at in range(2))
        made.append((kind, f"{cpu:.2f} ms", told, f"{rate:,.0f}"))
    return made


def run(options: Options) -> Measured:
    found = measure(options)
    without = median(one[NONE][0] for one in found)
    rows_found = []
    for kind in (STREAMS, READING):
        cpu, rate = (median(one[kind][at] for one in found) for at in range(2))
        share = ratio(found, kind)
        beside = f"without, {without:.2f} ms of processor"
        measure_of = f"jobs/s with {CONSOLES} open consoles, {kind}"
        made = Row(measure_of, f"{rate:,.0f}", f"{cpu:.2f} ms", beside, f"{share:.0%}")
        if kind == READING:
            made.goal, made.reached = share_at_most(share, RATIO_GOAL)
        rows_found.append(made)
    told = rounds_of(
        options,
        f"{CONSOLES} consoles on the overview, {INFLIGHT} jobs in flight; in brackets the lowest and highest ratio",
    )
    return Measured(rows_found, detail(told, rows(found)), found)


PART = Part(
    "consoles",
    "open consoles on a loaded server, beside the server without them",
    run,
    lambda options: options.rounds * (17 + 3.3 * options.seconds),
)

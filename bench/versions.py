"""The part `versions`: this program against another version of it, in alternating rounds.

Each round is a server of its own on an empty ledger, the other version's and this one's, in turn first. The machine
changes speed while they run, so the ratio is taken within each round, and processor time decides.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.harness import LUCIUS, HarnessOptions, clean, open_harness
from bench.part import Measured, Options, Part, Row, detail, require_before, rounds_of, say
from bench.processes import scratch_folder
from bench.report import Rows

WARM_UP_JOBS = 500
INFLIGHT = (1, 10, 100, 300)

Run = tuple[float, float, float]
"""The server's processor a job, of that the event loop's thread, and jobs a second."""


def measure_once(program: Path, inflight: int, options: Options) -> Run:
    with scratch_folder("version", options.disk) as folder, open_harness(folder, HarnessOptions(program)) as harness:
        harness.load(inflight, WARM_UP_JOBS, 1.0)
        cpu = (run := clean(harness.load(inflight, 1_000_000, options.seconds))).cpu_ms_per_job
    assert cpu is not None, "a clean run has it"
    return cpu.server, cpu.event_loop, run.jobs_per_second


def measure(before: Path, options: Options) -> dict[int, list[tuple[Run, Run]]]:
    """By jobs in flight, what each round gave: before, now."""
    found: dict[int, list[tuple[Run, Run]]] = {}
    for at in range(options.rounds):
        for inflight in INFLIGHT:
            if at % 2:
                now = measure_once(LUCIUS, inflight, options)
                was = measure_once(before, inflight, options)
            else:
                was = measure_once(before, inflight, options)
                now = measure_once(LUCIUS, inflight, options)
            found.setdefault(inflight, []).append((was, now))
            say(f"round {at + 1}, {inflight} in flight: before {was}, now {now}")
    return found


def rows(found: dict[int, list[tuple[Run, Run]]]) -> Rows:
    made: Rows = [("in flight", "server's processor a job", "its event loop's thread", "jobs/s")]
    for inflight, pairs in found.items():
        cells = [str(inflight)]
        for at, digits in enumerate((2, 2, 0)):
            was, now = median(one[at] for one, _ in pairs), median(one[at] for _, one in pairs)
            ratio = median(now[at] / was[at] for was, now in pairs)
            unit = "" if at == len(pairs[0][0]) - 1 else " ms"
            cells.append(f"{was:,.{digits}f} → {now:,.{digits}f}{unit} ({ratio:.0%})")
        made.append(tuple(cells))
    return made


def rows_of(found: dict[int, list[tuple[Run, Run]]], name: str) -> list[Row]:
    made = []
    for inflight, pairs in found.items():
        was, now = median(one[2] for one, _ in pairs), median(one[2] for _, one in pairs)
        cpu = median(one[0] for _, one in pairs)
        ratio = median(one[0] / other[0] for other, one in pairs)
        beside = f"{name}, {was:,.0f}"
        told = f"{ratio:.0%} of its processor a job"
        made.append(Row(f"jobs/s, at most {inflight} in flight", f"{now:,.0f}", f"{cpu:.2f} ms", beside, told))
    return made


def run(options: Options) -> Measured:
    found = measure(require_before(options), options)
    told = f"Against {options.before_name}: {rounds_of(options, 'in brackets the median of their ratios')}"
    return Measured(rows_of(found, options.before_name), detail(told, rows(found)), found)


PART = Part(
    "versions",
    "the embedded default beside another version of it (--before)",
    run,
    lambda options: options.rounds * len(INFLIGHT) * 2 * (6 + 1.2 * options.seconds),
    needs_before=True,
)

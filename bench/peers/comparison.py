"""The part `peers`: three-step work on other orchestrators and on LUCIUS, in alternating rounds.

Each runs three steps that do nothing, one after another, each recorded durably before the next begins. The peers are
installed from the package registries by name into a folder that is gone afterwards. Rounds alternate because the
machine changes speed while they run: quote ratios, and processor time a job before jobs a second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import temporal
from bench.harness import HarnessOptions, clean, clean_alone, open_harness
from bench.part import Measured, Options, Part, Row, alternating, chosen, detail, median_ratio, rounds_of, say
from bench.peers import restate
from bench.peers.peer import PEERS, Figures, Peer, install, measure
from bench.processes import BenchError, scratch_folder
from bench.report import Rows

OURS, RESTATE, TEMPORAL = "LUCIUS", "Restate", "Temporal"
NAMES = (RESTATE, TEMPORAL, *(peer.name for peer in PEERS))
INFLIGHT = 100
ALONE_JOBS = 100
WARM_UP_JOBS = 500

Side = Callable[[Path, int, float], Figures]


def lucius(folder: Path, inflight: int, seconds: float) -> Figures:
    with open_harness(folder, HarnessOptions()) as harness:
        harness.load(inflight, WARM_UP_JOBS, restate.WARM_UP_SECONDS)
        alone = clean_alone(harness.alone(ALONE_JOBS, warm_up=20))
        cpu = (run := clean(harness.load(inflight, 1_000_000, seconds))).cpu_ms_per_job
    assert cpu is not None, "a clean run has it"
    return Figures(run.jobs_per_second, cpu.server + cpu.services, alone.p50_ms)


def bare_temporal(folder: Path, inflight: int, seconds: float) -> Figures:
    pace = temporal.Pace(jobs=1_000_000, seconds=seconds, jobs_alone=20)
    with temporal.temporal_server(folder) as server:
        side = temporal.measure_bare(server, pace)
    return Figures(side.jobs_per_second, side.cpu_ms, side.p50_ms)


def restate_with(program: Path, modules: Path) -> Side:
    def side(folder: Path, inflight: int, seconds: float) -> Figures:
        with restate.open_restate(program, folder, modules) as server:
            alone, _ = restate.measure_restate(server, 1, 1.0)
            rate, cpu_ms = restate.measure_restate(server, inflight, seconds)
        return Figures(rate, cpu_ms, 1000 / alone)

    return side


def peer_with(peer: Peer, python: Path) -> Side:
    def side(folder: Path, inflight: int, seconds: float) -> Figures:
        return measure(peer, python, folder, inflight, seconds, ALONE_JOBS)

    return side


def settings() -> dict[str, str]:
    """What is said of each in the table."""
    described = {
        OURS: "embedded default: SQLite written through, each step sent to a service in another process over HTTP",
        RESTATE: (
            f"{restate.SERVER_VERSION}, SDK for Node {restate.SDK_VERSION}, a handler of three local steps;"
            " alone is the mean"
        ),
        TEMPORAL: (
            f"a bare workflow of three activities on the development server with a file, {temporal.INFLIGHT} in flight"
        ),
    }
    return described | {peer.name: peer.settings for peer in PEERS}


def sides_of(names: list[str], folder: Path) -> dict[str, Side]:
    """The peers are installed; one that cannot be is left out."""
    sides: dict[str, Side] = {OURS: lucius}
    if RESTATE in names:
        try:
            sides[RESTATE] = restate_with(restate.install(folder), folder)
        except BenchError as error:
            say(f"{RESTATE} is left out: {error}")
    if TEMPORAL in names:
        sides[TEMPORAL] = bare_temporal
    if wanted := [peer for peer in PEERS if peer.name in names]:
        try:
            python = install(folder)
            sides |= {peer.name: peer_with(peer, python) for peer in wanted}
        except BenchError as error:
            say(f"{', '.join(peer.name for peer in wanted)} are left out: {error}")
    return sides


def compare(options: Options, names: list[str]) -> dict[str, list[Figures]]:
    """A peer that fails once is left out from then on, and its figures with it."""
    with scratch_folder("peers", options.disk) as folder:
        sides = sides_of(names, folder)
        found: dict[str, list[Figures]] = {name: [] for name in sides}
        for at, order in enumerate(alternating(options.rounds, list(sides))):
            for name in order:
                if name not in found:
                    continue
                try:
                    with scratch_folder("run", options.disk) as run:
                        figures = sides[name](run, INFLIGHT, options.seconds)
                except BenchError as error:
                    if name == OURS:
                        raise
                    say(f"{name} is left out: {error}")
                    del found[name]
                    continue
                found[name].append(figures)
                told = f"{figures.jobs_per_second:,.0f} jobs/s, {figures.cpu_ms:.2f} ms of processor a job"
                say(f"round {at + 1}, {name}: {told}, alone {figures.p50_ms:.1f} ms")
    return found


def table(found: dict[str, list[Figures]]) -> Rows:
    described = settings()
    made: Rows = [("", "three-step jobs/s", "LUCIUS is", "processor a job", "one alone, p50", "what ran")]
    for name, figures in found.items():
        rate, cpu, alone = (median(values) for values in zip(*figures, strict=True))
        ratio = f"{rate_ratio(found, name):.1f} ×"
        made.append((name, f"{rate:,.0f}", ratio, f"{cpu:.2f} ms", f"{alone:.1f} ms", described[name]))
    return made


def rate_ratio(found: dict[str, list[Figures]], name: str) -> float:
    ours, theirs = ([one.jobs_per_second for one in found[which]] for which in (OURS, name))
    return median_ratio(ours, theirs)


def rows_of(found: dict[str, list[Figures]]) -> list[Row]:
    rate, cpu, alone = (median(values) for values in zip(*found[OURS], strict=True))
    made = []
    for name, figures in found.items():
        if name == OURS:
            continue
        theirs = [median(values) for values in zip(*figures, strict=True)]
        beside = f"{name}, {theirs[0]:,.0f}, {theirs[1]:.2f} ms of processor, {theirs[2]:.1f} ms alone"
        figure, ratio = f"{rate:,.0f}, {alone:.1f} ms alone", f"{rate_ratio(found, name):.1f} ×"
        made.append(Row(f"three-step jobs/s, beside {name}", figure, f"{cpu:.2f} ms", beside, ratio))
    return made


def run(options: Options) -> Measured:
    names = chosen(options, NAMES)
    found = compare(options, names)
    told = rounds_of(options, f"at most {INFLIGHT} jobs in flight")
    if missing := [name for name in names if name not in found]:
        told += f" Not measured, because they failed: {', '.join(missing)}."
    return Measured(rows_of(found), detail(told, table(found)), found)


PART = Part(
    "peers",
    "the same work on other orchestrators, which are installed for it",
    run,
    lambda options: 40 + options.rounds * (60 + 8 * options.seconds),
    choices=NAMES,
)

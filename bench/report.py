"""The report: as aligned text, as JSON, and as the tables between the marks in `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import Report

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

JOBS_PER_SECOND_GOAL = 1_600
CPU_MS_GOAL, EVENT_LOOP_MS_GOAL = 0.75, 0.45
P50_MS_GOAL, P99_MS_GOAL = 4.5, 10
BIG_CPU_RATIO_GOAL = 1.05
BYTES_PER_JOB_GOAL = 4_000
MEMORY_MB_GOAL = 200

Rows = list[tuple[str, ...]]


def goal_rows(report: Report) -> Rows:
    rows: Rows = [("measure", "measured", "goal", "reached")]
    for run in report.load:
        reached = run.jobs_per_second >= JOBS_PER_SECOND_GOAL
        what = f"three-step jobs/s, at most {run.inflight_max} in flight"
        rows.append((what, f"{run.jobs_per_second:,.0f}", f"{JOBS_PER_SECOND_GOAL:,}", yes_or_no(reached)))
    costs = [run.cpu_ms_per_job for run in report.load if run.cpu_ms_per_job is not None]
    for what, spent, goal in (
        ("server's processor a job", median(cpu.server for cpu in costs), CPU_MS_GOAL),
        ("of that, the event loop's thread", median(cpu.event_loop for cpu in costs), EVENT_LOOP_MS_GOAL),
    ):
        rows.append((what, f"{spent:.2f} ms", f"≤ {goal} ms", yes_or_no(spent <= goal)))
    alone = report.alone
    for name, value, goal in (("p50", alone.p50_ms, P50_MS_GOAL), ("p99", alone.p99_ms, P99_MS_GOAL)):
        rows.append((f"one job alone, {name}", f"{value:.2f} ms", f"< {goal} ms", yes_or_no(value < goal)))
    if report.big is not None:
        share, size = report.big.cpu_ratio, report.big.bytes_per_job
        what = f"processor a job with {report.big.filled_jobs:,} finished jobs, of that with none"
        rows.append((what, f"{share:.0%}", f"≤ {BIG_CPU_RATIO_GOAL:.0%}", yes_or_no(share <= BIG_CPU_RATIO_GOAL)))
        reached = size <= BYTES_PER_JOB_GOAL
        rows.append(
            ("bytes a finished job, indexes included", f"{size:,.0f}", f"≤ {BYTES_PER_JOB_GOAL:,}", yes_or_no(reached))
        )
    peak = report.memory_peak_mb
    rows.append(("server memory, peak", f"{peak:.0f} MB", f"< {MEMORY_MB_GOAL} MB", yes_or_no(peak < MEMORY_MB_GOAL)))
    return rows


def bare_rows(report: Report) -> Rows:
    bare, best = report.bare, report.best_jobs_per_second
    rates = (
        ("empty FastAPI POST, pydantic body", bare.fastapi_posts_per_second, "requests/s"),
        ("empty Starlette POST", bare.starlette_posts_per_second, "requests/s"),
        ("SQLite, one row a commit", bare.sqlite_commits_per_second, "commits/s"),
        ("SQLite, 100 rows a commit", bare.sqlite_grouped_rows_per_second, "rows/s"),
    )
    rows: Rows = [("limit, same run, same client", "rate", f"{best:,.0f} jobs/s are")]
    rows += [(name, f"{rate:,.0f} {unit}", f"{best / rate:.1%}" if rate else "") for name, rate, unit in rates]
    return rows


def run_rows(report: Report) -> Rows:
    rows: Rows = [
        (
            "run",
            "jobs",
            "seconds",
            "jobs/s",
            "in flight, mean",
            "accepted in, p50 / p99",
            "CPU a job: server",
            "its event loop",
            "services",
            "load",
        )
    ]
    named = [(f"{run.inflight_max} in flight", run) for run in report.load]
    if report.big is not None:
        for at, (empty, filled) in enumerate(zip(report.big.empty, report.big.filled, strict=True), 1):
            named += [(f"empty ledger, round {at}", empty), (f"filled ledger, round {at}", filled)]
    for name, run in named:
        cpu = run.cpu_ms_per_job
        spent = [""] * 4
        if cpu is not None:
            spent = [f"{value:.2f} ms" for value in (cpu.server, cpu.event_loop, cpu.services, cpu.load)]
        accepted = f"{run.accept_p50_ms:.1f} / {run.accept_p99_ms:.1f} ms"
        figures = (f"{run.jobs:,}", f"{run.seconds:.1f}", f"{run.jobs_per_second:,.0f}", f"{run.inflight_mean:.0f}")
        rows.append((name, *figures, accepted, *spent))
    return rows


def yes_or_no(reached: bool) -> str:
    return "yes" if reached else "no"


def aligned(rows: Rows) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def markdown(rows: Rows) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(rows[0]), line(["---"] * len(rows[0])), *map(line, rows[1:])])


def headline(report: Report) -> str:
    machine, big = report.machine, report.big
    text = (
        f"Measured {report.measured_at} on {machine.cores} cores, {machine.memory_gb} GB, {machine.system},"
        f" Python {machine.python}, SQLite {machine.sqlite}; {report.alone.jobs:,} jobs one at a time"
        f" (p90 {report.alone.p90_ms:.2f} ms, longest {report.alone.max_ms:.1f} ms);"
        f" the client spends {report.bare.client_us_per_post:.0f} µs of processor on a request."
    )
    if big is not None:
        rows = sum(big.filled_rows.values())
        text += f" The filled ledger: {big.filled_jobs:,} jobs, {rows:,} rows added, {big.file_mb:,.0f} MB."
    return text + (" A quick run: too short to quote." if report.quick else "")


def verdict(report: Report) -> str:
    if report.spoilt:
        return "SPOILT, these figures count for nothing: " + "; ".join(report.spoilt)
    return "Every job that was accepted was looked up afterwards, and had succeeded."


def as_text(report: Report) -> str:
    tables = (aligned(rows(report)) for rows in (goal_rows, bare_rows, run_rows))
    return "\n\n".join([headline(report), *tables, verdict(report)])


def as_markdown(report: Report) -> str:
    tables = (markdown(rows(report)) for rows in (goal_rows, bare_rows, run_rows))
    return "\n\n".join([headline(report), *tables, verdict(report)])


def write_json(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def write_page(report: Report, path: Path) -> None:
    replace_between(path, (BEGIN, END), as_markdown(report))


def replace_between(path: Path, marks: tuple[str, str], content: str) -> None:
    """Only what lies between the marks is replaced."""
    before, begin, rest = path.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{path.name} has no lines {marks[0]} and {marks[1]}")
    path.write_text(f"{before}{begin}\n{content}\n{end}{after}")

"""The part `million`: the speed on a ledger that holds a million finished jobs, beside the speed on an empty one."""

from __future__ import annotations

import http.client
import json
import shutil
from pathlib import Path
from statistics import median

import msgspec

from bench.figures import LoadResult, server_cpu
from bench.harness import Harness, HarnessOptions, clean, open_harness
from bench.load import TENANTS, Envelopes
from bench.part import Measured, Options, Part, Row, at_most, detail, rounds_of, say, share_at_most
from bench.prefill import Template, prefill
from bench.processes import API_KEY, BenchError, scratch_folder
from bench.report import Rows

BYTES_PER_JOB = 12_000
"""What a finished job may take on the disk, generously."""
WARM_UP_JOBS = 500
JOBS_MAX = 1_000_000
INFLIGHT = 200
JOBS, QUICK_JOBS = 1_000_000, 20_000
CPU_RATIO_GOAL = 1.05
BYTES_PER_JOB_GOAL = 4_000
MEMORY_MB_GOAL = 200


class Filled(msgspec.Struct, kw_only=True):
    jobs: int
    rows: dict[str, int]
    file_mb: float
    empty: list[LoadResult]
    filled: list[LoadResult]
    memory_peak_mb: float

    @property
    def cpu_ratios(self) -> list[float]:
        """Processor a job with the filled ledger, of that with the empty one, in each round."""
        return [one / other for one, other in zip(server_cpu(self.filled), server_cpu(self.empty), strict=True)]

    @property
    def bytes_per_job(self) -> float:
        return self.file_mb * 1e6 / self.jobs


def compare(options: Options, jobs: int) -> Filled:
    """Runs alternate, so that whatever else the machine does falls on both alike. Empty is a new file each round."""
    disk = options.disk
    if shutil.disk_usage(disk).free < jobs * BYTES_PER_JOB:
        raise BenchError(f"{jobs:,} jobs may need {jobs * BYTES_PER_JOB / 1e9:.0f} GB of disk: leave out this part")
    empty: list[LoadResult] = []
    filled: list[LoadResult] = []
    memory_peak_mb = 0.0
    with scratch_folder("filled", disk) as folder:
        with open_harness(folder, HarnessOptions()) as harness:
            templates = [finished_job(harness) for _ in range(TENANTS)]
        file = ledger_file(folder)
        say(f"filling a ledger with {jobs:,} finished jobs")
        rows = prefill(file, templates, jobs)
        size_mb = round(file.stat().st_size / 1e6, 1)
        say(f"{sum(rows.values()):,} rows, {size_mb:,.0f} MB")
        for at in range(options.rounds):
            for side in ("empty", "filled") if at % 2 else ("filled", "empty"):
                if side == "empty":
                    with scratch_folder("empty", disk) as fresh, open_harness(fresh, HarnessOptions()) as harness:
                        empty.append(run_once(harness, options.seconds))
                else:
                    with open_harness(folder, HarnessOptions()) as harness:
                        filled.append(run_once(harness, options.seconds))
                        memory_peak_mb = max(memory_peak_mb, harness.server.memory_peak_mb())
            one, other = empty[-1], filled[-1]
            say(f"round {at + 1}: empty {one.jobs_per_second:,.0f}, filled {other.jobs_per_second:,.0f} jobs/s")
    return Filled(jobs=jobs, rows=rows, file_mb=size_mb, empty=empty, filled=filled, memory_peak_mb=memory_peak_mb)


def run(options: Options) -> Measured:
    found = compare(options, QUICK_JOBS if options.quick else JOBS)
    ratios = sorted(found.cpu_ratios)
    ratio, size, memory = median(ratios), found.bytes_per_job, found.memory_peak_mb
    costs = [median(server_cpu(runs)) for runs in (found.empty, found.filled)]
    name = f"{found.jobs:,} finished jobs"
    rows = [
        Row(
            f"the server's processor a job, with {name}",
            f"{costs[1]:.2f} ms",
            "",
            f"empty ledger, {costs[0]:.2f} ms",
            f"{ratio:.0%}",
            *share_at_most(ratio, CPU_RATIO_GOAL),
        ),
        Row(
            "bytes a finished job, indexes included",
            f"{size:,.0f}",
            "",
            "",
            "",
            *at_most(size, BYTES_PER_JOB_GOAL, "B"),
        ),
        Row(
            f"the server's memory with {name}, peak",
            f"{memory:.0f} MB",
            "",
            "",
            "",
            *at_most(memory, MEMORY_MB_GOAL, "MB"),
        ),
    ]
    table: Rows = [("ledger", "jobs/s", "server's processor a job", "accepted in, p50 / p99")]
    for what, runs in (("empty", found.empty), (name, found.filled)):
        rate, cpu = median(run.jobs_per_second for run in runs), median(server_cpu(runs))
        p50, p99 = median(run.accept_p50_ms for run in runs), median(run.accept_p99_ms for run in runs)
        table.append((what, f"{rate:,.0f}", f"{cpu:.2f} ms", f"{p50:.1f} / {p99:.1f} ms"))
    told = rounds_of(options, f"at most {INFLIGHT} jobs in flight, servers just started")
    filled = f"The filled ledger has {sum(found.rows.values()):,} rows and {found.file_mb:,.0f} MB."
    spread = f"Ratios of processor a job: {', '.join(f'{one:.0%}' for one in ratios)}."
    return Measured(rows, detail(f"{told} {filled} {spread}", table), found)


def run_once(harness: Harness, seconds: float) -> LoadResult:
    harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
    return clean(harness.load(INFLIGHT, JOBS_MAX, seconds))


ENVELOPES = Envelopes()


def finished_job(harness: Harness) -> Template:
    """One job through the running server, and its end waited for."""
    body = ENVELOPES.next()
    connection = http.client.HTTPConnection("127.0.0.1", harness.port, timeout=60)
    headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/commands", body, headers)
        accepted = json.loads(connection.getresponse().read())
        connection.request("GET", f"/v1/jobs/{accepted['jobId']}?wait_seconds=30", headers=headers)
        job = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if job["status"] != "SUCCEEDED":
        raise BenchError(f"the job to clone is {job['status']}")
    return Template(job["jobId"], json.loads(body)["idempotency_key"])


def ledger_file(folder: Path) -> Path:
    """The SQLite file of a data folder, whatever it is called."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size > 0:
            with path.open("rb") as file:
                if file.read(16) == b"SQLite format 3\0":
                    return path
    raise BenchError("the server left no SQLite file in its data folder")


PART = Part(
    "million",
    "the same with a million finished jobs in the ledger, beside an empty one",
    run,
    lambda options: (10 if options.quick else 240) + options.rounds * (14 + 3 * options.seconds),
)

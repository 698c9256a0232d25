"""The speed on a ledger that already holds a million finished jobs, against the speed on an empty one."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.figures import BigResult, LoadResult
from bench.harness import Harness, HarnessOptions, open_harness
from bench.load import TENANTS, Envelopes
from bench.prefill import Template, prefill
from bench.processes import API_KEY, BenchError, scratch_folder

BYTES_PER_JOB = 12_000
"""What a finished job may take on the disk, generously."""
WARM_UP_JOBS = 500
INFLIGHT = 200


def compare(
    options: HarnessOptions,
    disk: Path,
    *,
    filled_jobs: int,
    rounds: int,
    jobs: int,
    seconds: float,
    say: Callable[[str], None],
) -> BigResult:
    """Runs alternate, so that whatever else the machine does falls on both alike. Empty is a new file each round."""
    if shutil.disk_usage(disk).free < filled_jobs * BYTES_PER_JOB:
        raise BenchError(
            f"{filled_jobs:,} jobs may need {filled_jobs * BYTES_PER_JOB / 1e9:.0f} GB of disk; see --no-big"
        )
    empty: list[LoadResult] = []
    filled: list[LoadResult] = []
    memory_peak_mb = 0.0
    with scratch_folder("filled", disk) as folder:
        with open_harness(folder, options) as harness:
            templates = [finished_job(harness) for _ in range(TENANTS)]
        file = ledger_file(folder)
        say(f"filling a ledger with {filled_jobs:,} finished jobs")
        rows = prefill(file, templates, filled_jobs)
        size_mb = round(file.stat().st_size / 1e6, 1)
        say(f"  {sum(rows.values()):,} rows, {size_mb:,.0f} MB")
        for _ in range(rounds):
            with scratch_folder("empty", disk) as fresh, open_harness(fresh, options) as harness:
                empty.append(run_once(harness, jobs, seconds))
            with open_harness(folder, options) as harness:
                filled.append(run_once(harness, jobs, seconds))
                memory_peak_mb = max(memory_peak_mb, harness.server.memory_peak_mb())
            say(f"  empty {empty[-1].jobs_per_second:,.0f} jobs/s, filled {filled[-1].jobs_per_second:,.0f} jobs/s")
    return BigResult(
        filled_jobs=filled_jobs,
        filled_rows=rows,
        file_mb=size_mb,
        empty=empty,
        filled=filled,
        memory_peak_mb=memory_peak_mb,
    )


def run_once(harness: Harness, jobs: int, seconds: float) -> LoadResult:
    harness.load(INFLIGHT, WARM_UP_JOBS, seconds)
    return harness.load(INFLIGHT, jobs, seconds)


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

"""The part `large-batch`: what a batch of 10,000 members × 25 steps costs whoever looks at it or cancels it.

No worker takes its jobs, so the first step of every member is sent and the others wait. Measured over HTTP on the
embedded default: the batch shown, the list that it is in, the call that cancels it, the longest that another call waits
meanwhile, and how long it takes until every step that no worker has is cancelled.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from bench.part import Measured, Options, Part, Row, detail
from bench.processes import API_KEY, BenchError, scratch_folder
from bench.report import Rows
from bench.runbook_worker import WORKER_ID
from bench.runbooks import embedded

MEMBERS, QUICK_MEMBERS = 10_000, 500
STEPS = 25
LOOKS = 5
SECONDS_MAX = 300.0
RUNBOOK = "\n".join(
    [
        "name: large",
        "data_source: {type: manual, primary_key: Upn}",
        "phases:",
        "  - name: work",
        "    offset: T-0",
        "    steps:",
        *(f"      - {{name: s{number}, worker_id: {WORKER_ID}, function: Do-Nothing}}" for number in range(STEPS)),
    ]
)


def timed(client: httpx.Client, method: str, path: str, body: Any = None) -> tuple[Any, float]:
    began = time.perf_counter()
    response = client.request(method, path, json=body)
    if response.status_code >= 400:
        raise BenchError(response.text)
    return response.json(), (time.perf_counter() - began) * 1000


def best(client: httpx.Client, path: str) -> float:
    return min(timed(client, "GET", path)[1] for _ in range(LOOKS))


def wait_until(client: httpx.Client, path: str, status: str, steps: int) -> tuple[float, float]:
    """Until that many steps of the phase have this status: seconds, and the slowest look in milliseconds."""
    began, slowest = time.monotonic(), 0.0
    while time.monotonic() - began < SECONDS_MAX:
        batch, took = timed(client, "GET", path)
        slowest = max(slowest, took)
        if sum(one["counts"][status] for one in batch["phase_list"][0]["steps"]) >= steps:
            return time.monotonic() - began, slowest
        time.sleep(0.02)
    raise BenchError(f"{path}: not {steps} steps are {status} after {SECONDS_MAX:.0f} s: {batch['waiting_for']}")


def measure(folder: Path, members: int) -> dict[str, float]:
    """Milliseconds."""
    with embedded(folder, has_worker=False) as deployed:
        headers = {"Authorization": f"Bearer {API_KEY}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{deployed.port}", headers=headers, timeout=120) as client:
            timed(client, "POST", "/v1/runbooks", {"yaml": RUNBOOK})
            csv = "Upn\n" + "".join(f"user{number}@example.test\n" for number in range(members))
            made, _ = timed(client, "POST", "/v1/batches", {"runbook": "large", "csv": csv})
            path = f"/v1/batches/{made['batch_id']}"
            wait_until(client, path, "dispatched", members)
            running = best(client, path)
            cpu = deployed.main.cpu_seconds()
            _, cancelling = timed(client, "POST", f"{path}:cancel")
            seconds, slowest = wait_until(client, path, "cancelled", members * (STEPS - 1))
            cpu = deployed.main.cpu_seconds() - cpu
            return {
                f"the batch shown while it runs, best of {LOOKS}": running,
                "the call that cancels it": cancelling,
                "the slowest look at it until all is cancelled": slowest,
                "until all is cancelled": seconds * 1000 + cancelling,
                "processor of the server until then": cpu * 1000,
                f"the batch shown once it is cancelled, best of {LOOKS}": best(client, path),
                f"the list of batches, best of {LOOKS}": best(client, "/v1/batches"),
            }


def run(options: Options) -> Measured:
    members = QUICK_MEMBERS if options.quick else MEMBERS
    with scratch_folder("large-batch", options.disk) as folder:
        found = measure(folder, members)
    told = f"{members:,} members × {STEPS} steps, of which each member's first is sent and the others wait."
    rows = [Row(f"a batch of {members * STEPS:,} steps: {what}", f"{ms:,.0f} ms") for what, ms in found.items()]
    table: Rows = [("measure", "ms"), *((what, f"{ms:,.0f}") for what, ms in found.items())]
    return Measured(rows, detail(told, table), found)


PART = Part(
    "large-batch",
    "a batch of 10,000 members × 25 steps: shown, cancelled, listed",
    run,
    lambda options: 10 if options.quick else 60,
)

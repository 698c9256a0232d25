"""Neighbours: how much longer one tenant's jobs take while another floods the server with lists over a large ledger.

`measure_lists` does it; `python -m tests.attack.neighbours --jobs 200000` prints it. One server and the flood run as
processes of their own, on loopback, for a number of jobs and seconds that is given.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from bench.prefill import Template, prefill
from msgspec import Struct
from tests.attack import background
from tests.attack.http_floods import LIST_FILTERS
from tests.attack.http_probe import STEPS_BACK
from tests.crash.processes import API_KEY, Process, free_port

from lucius.ledgers.sql import SqlLedger
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock

FLOOD_KEY = "lk_of_the_tenant_that_floods"
FLOOD_CONNECTIONS = 16
FLOOD_SECONDS_MAX = 600.0
UNDER_WAY = "the flood is under way"
LEAD_SECONDS = 1.0
"""From then until anything is measured."""
WARM_UP_JOBS = 20
CALL_SECONDS_MAX = 60.0


class Latencies(Struct, frozen=True):
    """Milliseconds."""

    submit_p50: float
    submit_p95: float
    completion_p50: float
    completion_p95: float


class Figures(Struct, frozen=True):
    quiet: Latencies
    flooded: Latencies
    lists: dict[str, int]
    """Answers to the flood, by status."""


# --- The ledger ------------------------------------------------------------------------------------------------------


async def make_templates(path: Path) -> list[Template]:
    """A few jobs of the tenant that floods, to be cloned: most succeeded, some failed, one type is rare."""
    templates = []
    async with SqliteDatabase(path) as database:
        await upgrade(database)
        driver = LedgerDriver(SqlLedger(database), ManualClock())
        for place, (type_, fails) in enumerate([*[("OCR", False)] * 8, ("OCR", True), ("SIS", False)]):
            key = f"template-{place}"
            job = await driver.create(key=key, tenant_id="flood", request_type=type_, steps=["ocr"])
            await (driver.fail(job) if fails else driver.succeed(job))
            templates.append(Template(job.job_id, key))
    return templates


def make_ledger(path: Path, jobs: int) -> None:
    prefill(path, asyncio.run(make_templates(path)), jobs)


# --- The flood -------------------------------------------------------------------------------------------------------


async def flood(port: int) -> Counter[str]:
    """Ask for lists, one after another on each connection, and read the answers away, until told to stop."""
    statuses: Counter[str] = Counter()
    wanted = itertools.cycle(LIST_FILTERS)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def ask(session: aiohttp.ClientSession) -> None:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/v1/jobs?{next(wanted)}") as answer:
                    await answer.read()
                    statuses[str(answer.status)] += 1
            except (aiohttp.ClientError, TimeoutError):
                statuses["no answer"] += 1

    async with _session(FLOOD_KEY) as session:
        asking = [asyncio.create_task(ask(session)) for _ in range(FLOOD_CONNECTIONS)]
        print(UNDER_WAY, flush=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), FLOOD_SECONDS_MAX)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return statuses


def _session(key: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=CALL_SECONDS_MAX),
        headers={"Authorization": f"Bearer {key}"},
    )


# --- The neighbour ---------------------------------------------------------------------------------------------------


async def one_job(session: aiohttp.ClientSession, url: str, number: int) -> tuple[float, float]:
    """Submit a job of one step, do its step, and see it succeeded: milliseconds to accept it, and in all."""

    async def post(path: str, body: Any, **headers: str) -> Any:
        async with session.post(f"{url}{path}", json=body, headers=headers) as answer:
            assert answer.status in (200, 202), (path, answer.status, await answer.text())
            return await answer.json()

    began = time.perf_counter()
    command = {
        "schema_version": "1", "tenant_id": "neighbour", "request_type": "OCR", "payload": {},
        "input_ref": f"s3://in/{number}", "output_ref": f"s3://out/{number}", "idempotency_key": f"neighbour-{number}",
    }  # fmt: skip
    job_id = (await post("/v1/commands", command))["jobId"]
    submitted = time.perf_counter()
    [directive] = (await post("/v1/directives:pull", {"service": "ocr", "max": 1, "wait_seconds": 30}))["directives"]
    assert directive["jobId"] == job_id
    ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
    token = {"Lucius-Callback-Token": directive["callback_token"]}
    await post("/v1/callbacks/ack", ids, **token)
    await post("/v1/callbacks/result", {**ids, "status": "SUCCEEDED", "artifacts": {"n": 1}}, **token)
    async with session.get(f"{url}/v1/jobs/{job_id}?wait_seconds=30") as answer:
        assert (await answer.json())["status"] == "SUCCEEDED"
    return (submitted - began) * 1000, (time.perf_counter() - began) * 1000


async def many_jobs(port: int, numbers: Iterator[int], count: int) -> Latencies:
    async with _session(API_KEY) as session:
        taken = [await one_job(session, f"http://127.0.0.1:{port}", next(numbers)) for _ in range(count)]
    submits, completions = (sorted(column) for column in zip(*taken, strict=True))
    return Latencies(
        submit_p50=_quantile(submits, 0.5), submit_p95=_quantile(submits, 0.95),
        completion_p50=_quantile(completions, 0.5), completion_p95=_quantile(completions, 0.95),
    )  # fmt: skip


def _quantile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


# --- Both ------------------------------------------------------------------------------------------------------------


def measure_lists(
    folder: Path, jobs: int, rounds: int, tries: int = 1, is_enough: Callable[[Figures], bool] = lambda _: True
) -> Figures:
    """Latencies of `rounds` jobs without the flood and as many with it, over a ledger of `jobs` finished jobs. Measured
    again, both, until it `is_enough`, at most so many times."""
    data = folder / "data"
    data.mkdir(parents=True)
    make_ledger(data / "lucius.db", jobs)
    keys = folder / "keys.yaml"
    digest = hashlib.sha256(FLOOD_KEY.encode()).hexdigest()
    keys.write_text(f'- name: flood\n  sha256: "{digest}"\n  tenants: [flood]\n  roles: [read]\n')
    keys.chmod(0o600)
    settings = {"LUCIUS_API_KEYS_FILE": str(keys), "LUCIUS_LOG_LEVEL": "WARNING"}
    words = ("up", "--no-services", "--data", str(data))
    with Process(*words, settings=settings, folder=folder, port=free_port()) as server:
        assert server.port is not None
        numbers = itertools.count()
        asyncio.run(many_jobs(server.port, numbers, WARM_UP_JOBS))
        for _ in range(tries):
            quiet = asyncio.run(many_jobs(server.port, numbers, rounds))
            flooded, answered = _flooded(server.port, numbers, rounds)
            figures = Figures(quiet, flooded, answered)
            print(f"\n{figures}")
            if is_enough(figures):
                break
    return figures


def _flooded(port: int, numbers: Iterator[int], rounds: int) -> tuple[Latencies, dict[str, int]]:
    command = [sys.executable, "-m", "tests.attack.neighbours", "--flood", str(port)]
    flooding = background.start(STEPS_BACK, command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert flooding.stdout is not None
    try:
        assert flooding.stdout.readline().decode().strip() == UNDER_WAY
        time.sleep(LEAD_SECONDS)
        flooded = asyncio.run(many_jobs(port, numbers, rounds))
    finally:
        flooding.terminate()
        answered, _ = flooding.communicate(timeout=CALL_SECONDS_MAX)
    return flooded, json.loads(answered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000, help="finished jobs in the ledger")
    parser.add_argument("--rounds", type=int, default=100, help="jobs whose latency is measured, with and without")
    parser.add_argument("--flood", type=int, metavar="PORT", help="only flood the server on this port")
    options = parser.parse_args()
    if options.flood is not None:
        print(json.dumps(asyncio.run(flood(options.flood))))
        return
    with tempfile.TemporaryDirectory(prefix="lucius-neighbours-") as folder:
        print(
            msgspec.json.format(msgspec.json.encode(measure_lists(Path(folder), options.jobs, options.rounds))).decode()
        )


if __name__ == "__main__":
    main()

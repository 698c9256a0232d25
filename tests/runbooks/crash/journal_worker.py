"""A worker process that writes down every call, on the disk, before it answers: `journal_worker.py JOURNAL http|bus`.

Its functions are idempotent by `step_key`, as functions should be: what the journal has of a step, from any life of the
worker, decides what the next call does. Each call is one line; `effect` is true in the one that does the work.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucius.functions import Fail, FunctionWorker, HttpSource, Job, StillRunning, read_settings

FLAKY_EVERY = 5
"""Every fifth member's change fails once."""


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        self._calls: dict[str, list[str]] = {}
        """The dispatches of each step, in the order in which they came first."""
        self._effects: set[str] = set()
        for line in path.read_text().splitlines():
            said = json.loads(line)
            if "function" in said:
                self._remember(said)

    def dispatch(self, job: Job, is_effect: bool, **about: Any) -> int:
        """Which dispatch of its step this is, counted from 0. `is_effect`: it does the work, if that is not done."""
        calls = self._calls.get(job.step_key, [])
        place = calls.index(job.job_id) if job.job_id in calls else len(calls)
        does = is_effect and job.step_key not in self._effects
        said = {"job": job.job_id, "key": job.step_key, "function": job.function_name, "effect": does, **about}
        self.write(said)
        self._remember(said)
        return place

    def write(self, said: dict[str, Any]) -> None:
        """One write, so that a kill leaves the whole line or nothing of it."""
        os.write(self._file, (json.dumps(said) + "\n").encode())
        os.fdatasync(self._file)

    def _remember(self, said: dict[str, Any]) -> None:
        calls = self._calls.setdefault(said["key"], [])
        if said["job"] not in calls:
            calls.append(said["job"])
        if said["effect"]:
            self._effects.add(said["key"])

    def is_first(self, job: Job) -> bool:
        calls = self._calls.get(job.step_key, [])
        return not calls or calls[0] == job.job_id


def is_flaky(member: str) -> bool:
    return int(member.rpartition("-")[2]) % FLAKY_EVERY == 0


def make_worker(worker_id: str, journal: Journal) -> FunctionWorker:
    worker = FunctionWorker(worker_id)

    @worker.function("Prepare", quick=True)
    def prepare(job: Job, Upn: str, phase: str) -> dict[str, Any]:
        journal.dispatch(job, True, member=Upn, phase=phase)
        return {"token": f"{Upn}/{phase}"}

    @worker.function("Change", quick=True)
    def change(job: Job, Upn: str, phase: str, token: str) -> dict[str, Any]:
        fails = phase == "two" and (Upn.startswith("broken") or (is_flaky(Upn) and journal.is_first(job)))
        place = journal.dispatch(job, not fails, member=Upn, phase=phase)
        if token != f"{Upn}/{phase}":
            raise Fail(f"the token {token} is another's")
        if fails:
            raise Fail(f"no, at dispatch {place}")
        return {}

    @worker.function("Watch", quick=True)
    def watch(job: Job, Upn: str, phase: str) -> dict[str, Any]:
        place = journal.dispatch(job, True, member=Upn, phase=phase)
        return {} if place else StillRunning()

    @worker.function("Undo", quick=True)
    def undo(job: Job, Upn: str) -> dict[str, Any]:
        journal.dispatch(job, True, member=Upn, phase="")
        return {}

    return worker


class NotingSource(HttpSource):
    """Writes down what came of each result."""

    def __init__(self, worker_id: str, journal: Journal) -> None:
        super().__init__(worker_id, read_settings())
        self._journal = journal

    async def answer(self, results: Sequence[dict[str, Any]], /) -> list[Any]:
        outcomes = await super().answer(results)
        for one in outcomes:
            self._journal.write({"answered": one["jobId"], "outcome": one.get("outcome") or one["code"]})
        return outcomes


async def over_http(worker: FunctionWorker, journal: Journal) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with NotingSource(worker.worker_id, journal) as source:
        print("the worker is running", flush=True)
        await worker.serve(stop, read_settings(wait_seconds=2.0), source=source)


def main() -> None:
    path, way = sys.argv[1:]
    journal = Journal(Path(path))
    worker = make_worker(f"{way}-pool", journal)
    if way == "http":
        asyncio.run(over_http(worker, journal))
        return
    from lucius.roles import run_bus_worker  # A worker over HTTP needs none of this.
    from lucius.settings import read_settings as read_server_settings

    run_bus_worker(read_server_settings(), worker)


if __name__ == "__main__":
    main()

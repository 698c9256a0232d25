"""Record the histories that `test_replay.py` replays: `python -m tests.temporal.record_histories [shape …]`.

A real Temporal server is started, one job is driven through each shape, and the history of each of its runs is written
to `histories/`. A stored history stands for jobs that are in flight when a new release is rolled out, so:

- Run it for a new shape, by its name, and once for all of them when a release is made.
- Do not run it to make `test_replay.py` pass again. If a history no longer replays, a job in flight would stand still:
  keep the old way for old jobs, by `rules_version` in `decide`, or by `workflow.patched` in the workflow.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory
from tests.temporal.shapes import (
    HISTORIES,
    INSIDE,
    OUTSIDE,
    TemporalHarness,
    harness_in_memory,
    harness_on_sqlite,
    start_server,
)

SHAPE_SECONDS_MAX = 120.0


def main() -> int:
    names = sys.argv[1:] or [*OUTSIDE, *INSIDE]
    unknown = [name for name in names if name not in OUTSIDE | INSIDE]
    if unknown:
        print(f"there is no shape {', '.join(unknown)}; there are {', '.join(OUTSIDE | INSIDE)}", file=sys.stderr)
        return 2
    HISTORIES.mkdir(exist_ok=True)
    with contextmanager(start_server)() as address:
        for name in names:
            for path in asyncio.run(asyncio.wait_for(record(address, name), SHAPE_SECONDS_MAX)):
                print(path.name, flush=True)
    return 0


async def record(address: str, name: str) -> list[Path]:
    if name in OUTSIDE:
        async with harness_in_memory(address) as harness:
            return await recorded(harness, name)
    with tempfile.TemporaryDirectory() as folder:
        async with harness_on_sqlite(address, Path(folder)) as harness:
            return await recorded(harness, name)


async def recorded(harness: TemporalHarness, name: str) -> list[Path]:
    job_id = await (OUTSIDE | INSIDE)[name](harness)
    await harness.over(job_id)
    runs = await harness.runs(job_id)
    names = [name] if len(runs) == 1 else [f"{name}_{at}" for at in range(1, len(runs) + 1)]
    return [write(HISTORIES / f"{each}.json", run) for each, run in zip(names, runs, strict=True)]


def write(path: Path, history: WorkflowHistory) -> Path:
    stored = {"workflow_id": history.workflow_id, "history": nameless(json.loads(history.to_json()))}
    path.write_text(json.dumps(stored, indent=1) + "\n")
    return path


def nameless(value: Any) -> Any:
    """Without what names the machine it was recorded on: process identities, and the queues called after them."""
    if isinstance(value, list):
        return [nameless(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "TASK_QUEUE_KIND_STICKY":
        value = value | {"name": "recorder-sticky"}
    return {key: "recorder" if key == "identity" else nameless(item) for key, item in value.items()}


if __name__ == "__main__":
    sys.exit(main())

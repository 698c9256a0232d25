"""A service on the platform kit that is made to be killed: run as a script, it serves one name and leaves traces.

    python mortal_service.py <service> <journal> <marks> <work seconds, least> <most>

With LUCIUS_TEST_SERVER_BUS it is on the bus of the server's own settings.

The journal is shared by all replicas and holds one line for each side effect, `jobId stepId attempt_no lease_id`,
written when that effect begins, halfway through the work. The marks are this replica's own: `+ key` when a step
function begins and `- key` when it is about to return. Each line is one write, so a kill leaves it whole or not at all.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from lucius import settings
from lucius.platform import Directive, PlatformService, Workspace
from lucius.roles import run_bus_service


class Trace:
    """A file that grows by whole lines, whoever else writes to it."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, line: str) -> None:
        os.write(self._handle, f"{line}\n".encode())


class MortalWork:
    def __init__(self, journal: Path, marks: Path, seconds_min: float, seconds_max: float) -> None:
        self._journal = Trace(journal)
        self._marks = Trace(marks)
        self._seconds = (seconds_min, seconds_max)

    def plain(self, directive: Directive, workspace: Workspace) -> dict[str, Any]:
        key, halves = self._begin(directive)
        time.sleep(halves[0])
        self._journal.add(key)
        time.sleep(halves[1])
        return self._end(directive, workspace, key)

    async def awaited(self, directive: Directive, workspace: Workspace) -> dict[str, Any]:
        key, halves = self._begin(directive)
        await asyncio.sleep(halves[0])
        self._journal.add(key)
        await asyncio.sleep(halves[1])
        return self._end(directive, workspace, key)

    def _begin(self, directive: Directive) -> tuple[str, tuple[float, float]]:
        key = " ".join(str(part) for part in directive.key)
        seconds, share = random.uniform(*self._seconds), random.uniform(0.3, 0.7)
        self._marks.add(f"+ {key}")
        return key, (seconds * share, seconds * (1 - share))

    def _end(self, directive: Directive, workspace: Workspace, key: str) -> dict[str, Any]:
        written = workspace.write(f"{directive.step_id}/output.txt", key)
        self._marks.add(f"- {key}")
        return {"of": key, "ref": written.as_uri()}


def main() -> None:
    name, journal, marks, seconds_min, seconds_max = sys.argv[1:]
    work = MortalWork(Path(journal), Path(marks), float(seconds_min), float(seconds_max))
    service = PlatformService(name)
    service.step(name.upper())(work.awaited if name == "embedding" else work.plain)
    if os.environ.get("LUCIUS_TEST_SERVER_BUS"):
        run_bus_service(settings.read_settings(), service)
    else:
        service.run()


if __name__ == "__main__":
    main()

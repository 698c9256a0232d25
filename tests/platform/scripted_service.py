"""A service on the platform kit that the tests start as a process of its own, to stop it or to kill it.

python scripted_service.py <file that the work writes its beginning to>
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from lucius.platform import Directive, PlatformService, Workspace

BEGUN = Path(sys.argv[1])
STUCK_SECONDS = 120.0

service = PlatformService("played")


def begin(directive: Directive) -> None:
    with BEGUN.open("a") as file:
        file.write(f"{directive.job_id}\n")


@service.step("WORK")
def quick(directive: Directive, workspace: Workspace) -> dict[str, Any]:
    begin(directive)
    return {"job": directive.job_id, "text": "söme ☃ text"}


@service.step("STUCK")
def stuck(directive: Directive, workspace: Workspace) -> None:
    """Looks at nothing and cannot be stopped."""
    begin(directive)
    time.sleep(STUCK_SECONDS)


@service.step("STUCK_ASYNC")
async def stuck_async(directive: Directive, workspace: Workspace) -> None:
    """Waits for a thread that cannot be stopped."""
    begin(directive)
    await asyncio.to_thread(time.sleep, STUCK_SECONDS)


@service.step("SHORT")
def short(directive: Directive, workspace: Workspace) -> None:
    begin(directive)
    time.sleep(1.0)


if __name__ == "__main__":
    service.run()

"""A worker as a process of its own, for the tests; what it begins goes to the file named."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from lucius.functions import FunctionWorker

worker = FunctionWorker("scripted")
begun = Path(sys.argv[1])


def tell(name: str) -> None:
    with begun.open("a") as file:
        file.write(f"{name}\n")


@worker.function("Short")
def short(n: int) -> dict[str, int]:
    tell("Short")
    time.sleep(1.0)
    return {"n": n}


@worker.function("Stuck")
def stuck(n: int) -> None:
    tell("Stuck")
    time.sleep(600)


@worker.function("Stuck-Awaited")
async def stuck_awaited(n: int) -> None:
    tell("Stuck-Awaited")
    await asyncio.to_thread(time.sleep, 600)


worker.run()

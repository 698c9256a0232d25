"""What every peer's program does around its own three steps: keep jobs in flight, and print the result as JSON.

These programs run in an environment of their own, which has the peer and nothing of this project.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable

WARM_UP_SECONDS = 1.5
SLACK_SECONDS = 60.0

OneJob = Callable[[str], Awaitable[object]]
"""Runs the job of this name to its end."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="of the server that keeps the peer's state")
    parser.add_argument("--inflight", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--alone", type=int, default=100, help="jobs that are run one at a time")
    return parser.parse_args()


async def measure(one: OneJob, wanted: argparse.Namespace) -> None:
    """A warm-up, jobs one at a time, and then as many as are allowed in flight; prints the result."""
    await keep(one, wanted.inflight, WARM_UP_SECONDS, "warm-up")
    took = []
    for number in range(wanted.alone):
        started_at = time.perf_counter()
        await one(f"alone-{number}")
        took.append((time.perf_counter() - started_at) * 1000)
    took.sort()
    print("measuring", flush=True)
    started_at = time.perf_counter()
    jobs = await keep(one, wanted.inflight, wanted.seconds, "load")
    seconds = time.perf_counter() - started_at
    print(json.dumps({"jobs": jobs, "seconds": seconds, "p50_ms": took[len(took) // 2]}), flush=True)


async def keep(one: OneJob, inflight: int, seconds: float, prefix: str) -> int:
    """How many jobs ended; all that were begun are waited for."""
    done, until = 0, time.perf_counter() + seconds

    async def keep_one(number: int) -> None:
        nonlocal done
        at = 0
        while time.perf_counter() < until:
            at += 1
            await one(f"{prefix}-{number}-{at}")
            done += 1

    async with asyncio.timeout(seconds + SLACK_SECONDS):
        await asyncio.gather(*(keep_one(number) for number in range(inflight)))
    return done

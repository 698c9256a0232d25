"""A PostgreSQL server of the benchmark's own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from bench.processes import BenchError, Process, environment
from lucius.profiles.postgres import plan_postgres

READY_SECONDS_MAX = 60.0


@contextmanager
def postgres_server(folder: Path) -> Iterator[tuple[Process, str]]:
    """Its process and its URL."""
    planned = plan_postgres(folder / "postgres", environment())
    command = list(planned.plan.command)
    if planned.plan.user:  # It refuses to run as root: its files belong to another user, who runs it.
        user = planned.plan.user
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    with Process("postgres", command, folder / "postgres.log", stop_signal=signal.SIGINT) as process:
        end = time.monotonic() + READY_SECONDS_MAX
        while not _answers(planned.url):
            process.require_running()
            if time.monotonic() > end:
                raise BenchError(f"PostgreSQL is not ready after {READY_SECONDS_MAX:.0f} s:\n{process.tail()}")
            time.sleep(0.1)
        yield process, planned.url


def _answers(url: str) -> bool:
    async def connect() -> None:
        await (await asyncpg.connect(url, timeout=5)).close()

    try:
        asyncio.run(connect())
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return False
    return True

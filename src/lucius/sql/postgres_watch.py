"""Notices a PostgreSQL server that no longer answers or no longer takes writes, and when there is one again.

A transaction that takes long may only be slow, so the watch asks the server, on another connection, whether it answers
at all. If it does not, every transaction fails, and so does every new one until a server can be written to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from lucius.sql.database import DatabaseUnavailable
from lucius.sql.postgres_hosts import Hosts

log = logging.getLogger("lucius.sql")

LOOK_SECONDS = 0.5
SLOW_SECONDS = 2.0
"""A transaction that takes longer makes the watch ask whether its server still answers."""
ANSWER_SECONDS = 4.0
"""A server that takes longer to answer is given up. With the two above, a caller waits no longer than 7 s."""


class ServerWatch:
    def __init__(self, name: str, hosts: Hosts, on_lost: Callable[[], None], on_found: Callable[[], Awaitable[None]]):
        """`on_lost` must end every transaction under way."""
        self._name = name
        self._hosts = hosts
        self._on_lost = on_lost
        self._on_found = on_found
        self._problem: str | None = None
        self._lost_at = 0.0
        self._refused = 0
        self._began_at: dict[object, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name=f"watch of {self._name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Raises `DatabaseUnavailable` while no server is known that could be written to."""
        if self._problem is not None:
            self._refused += 1
            raise DatabaseUnavailable(f"{self._name}: {self._problem}")
        key = object()
        self._began_at[key] = time.monotonic()
        try:
            yield
        finally:
            del self._began_at[key]

    def lose(self, problem: str) -> None:
        if self._problem is not None:
            return
        self._problem, self._lost_at, self._refused = problem, time.monotonic(), 0
        log.warning("%s: %s; looking for a server that can be written to", self._name, problem)
        self._on_lost()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._problem is not None:
                    await self._find()
                elif self._is_slow():
                    await self._hosts.check_current(ANSWER_SECONDS)
            except Exception as error:
                self.lose(str(error) or type(error).__name__)

    def _is_slow(self) -> bool:
        oldest = next(iter(self._began_at.values()), None)
        return oldest is not None and time.monotonic() - oldest > SLOW_SECONDS

    async def _find(self) -> None:
        (await self._hosts.connect()).terminate()
        await self._on_found()
        self._problem = None
        log.warning(
            "%s can be written to again after %.1f s; %d transactions were refused meanwhile",
            self._name, time.monotonic() - self._lost_at, self._refused,
        )  # fmt: skip

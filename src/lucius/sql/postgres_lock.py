"""The shared lock by which a program shows that it uses a PostgreSQL database; see `programs`.

The lock belongs to a connection of its own and ends with it, so it is taken again whenever that connection is lost. By
then the database may have been upgraded beyond what this program can work with, so that is checked again too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg

from lucius.sql.programs import HOLD_LOCK

log = logging.getLogger("lucius.sql")

CHECK_SECONDS = 5.0
"""How often the connection is used, so that a lost one is noticed and nothing on its way takes it for idle."""
ANSWER_SECONDS = 4.0
RETRY_SECONDS = 0.5


class ProgramLock:
    def __init__(
        self,
        name: str,
        version: int,
        connect: Callable[[], Awaitable[Any]],
        check: Callable[[Any], Awaitable[str | None]],
    ) -> None:
        """`check` says why the program must not use the database any more, if so."""
        self.problem: str | None = None
        self._name = name
        self._version = version
        self._connect = connect
        self._check = check
        self._connection: Any = None
        self._taking = asyncio.Lock()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Take the lock unless it is held. Raises what connecting raises."""
        async with self._taking:
            if self._connection is not None and not self._connection.is_closed():
                return
            connection = await self._connect()
            try:
                await connection.fetchval(HOLD_LOCK, self._version, timeout=ANSWER_SECONDS)
                if self._connection is not None:
                    await self._look(connection)
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
            connection.add_termination_listener(lambda _: self._lost.set())

    def keep(self) -> None:
        """From now on, take the lock again whenever it is lost."""
        self._task = asyncio.create_task(self._keep(), name=f"lock on {self._name}")

    def drop(self) -> None:
        """Let go of the connection, which no longer leads to a server that is of use."""
        if self._connection is not None:
            self._connection.terminate()

    async def release(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=ANSWER_SECONDS)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def _keep(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._lost.wait()
            self._lost.clear()
            try:
                await self.take()
                if self.problem is None:
                    await self._connection.fetchval("SELECT 1", timeout=ANSWER_SECONDS)
                else:
                    await self._look(self._connection)
            except Exception as error:  # Whatever it was, only another try can help.
                log.debug("%s: the lock of this program is not held: %s", self._name, error)
                self.drop()
                await asyncio.sleep(RETRY_SECONDS)

    async def _look(self, connection: Any) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            problem = await self._check(connection)
        if problem is not None and self.problem is None:
            log.error("%s %s; it is not used until LUCIUS is upgraded and restarted", self._name, problem)
        self.problem = problem

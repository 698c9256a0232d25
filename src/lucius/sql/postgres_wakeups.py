"""Wakeups over PostgreSQL's LISTEN and NOTIFY, on one connection of their own.

Names gather while a notification is on its way, and then leave together. Notifying is a transaction that all others of
the server queue up behind, so it is never part of a turn, and it does not wait for the disk. What a process sends comes
back to itself: that proves that names arrive. Behind a pooler that gives each transaction another connection, or that
drops notifications, nothing comes back, and everybody polls as if there were no wakeups.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from lucius.sql.wakeups import Wakeups

log = logging.getLogger("lucius.sql")

PING_SECONDS = 5.0
"""How often a process that has nothing to tell shows that it is there, and that its names arrive."""
ANSWER_SECONDS = 4.0
"""Names that take longer to come back do not arrive."""
PEER_SECONDS = 3 * PING_SECONDS
"""Nobody is told anything while no other process has been heard of for so long."""
GATHER_SECONDS = 0.003
"""The least time from one notification to the next."""
RETRY_SECONDS = 0.5
UNHEARD_RETRY_SECONDS = 30.0
"""Whoever connects and then hears nothing is probably behind a pooler, and will go on hearing nothing."""
NAMES_MAX = 10_000
"""More names than this at once mean everything."""
PAYLOAD_BYTES_MAX = 7_900
"""PostgreSQL takes fewer than 8,000."""
CHANNEL_BYTES_MAX = 63
EVERYTHING = "*"
"""A name: whoever waits for anything should look."""

NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS given (payload)"


class _Unheard(Exception):
    """What was sent did not come back."""


class _Listener(NamedTuple):
    kind: str
    wake: Callable[[str], object]
    wake_all: Callable[[], None]


class PostgresWakeups(Wakeups):
    def __init__(self, name: str, connect: Callable[[], Awaitable[Any]], is_on: bool = True) -> None:
        """`connect` makes a connection of the kind that commits without waiting for the disk."""
        self._name = name
        self._connect = connect
        self._is_on = is_on
        self._token = secrets.token_hex(4)
        """By which this process knows its own notifications: behind a proxy it need not know its own process id."""
        self._peers: dict[str, float] = {}
        """When each other process was last heard of."""
        self._listeners: list[_Listener] = []
        self._pending: set[str] = set()
        self._arrived = asyncio.Event()
        self._unheard_since: float | None = None
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None

    def tell(self, names: Iterable[str]) -> None:
        if self._connection is None or not self._peers:
            return  # Whoever comes later looks at everything; so does everybody once this process is connected again.
        self._pending.update(names)
        if len(self._pending) > NAMES_MAX:
            self._pending = {EVERYTHING}
        self._arrived.set()

    def listen(self, kind: str, wake: Callable[[str], object], wake_all: Callable[[], None]) -> Callable[[], None]:
        listener = _Listener(kind, wake, wake_all)
        self._listeners.append(listener)
        if self._is_on and self._task is None:
            self.is_used = True
            self._task = asyncio.create_task(self._run(), name=f"wakeups of {self._name}")

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def drop(self) -> None:
        """Let go of the connection, which no longer leads to a server that is of use."""
        if self._connection is not None:
            self._connection.terminate()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- The connection ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause = RETRY_SECONDS
            try:
                await self._session()
            except _Unheard:
                pause = UNHEARD_RETRY_SECONDS
                self._failed("what it sends with NOTIFY does not come back; a pooler must use session pooling")
            except Exception as error:  # Whatever it was, only another try can help.
                self._failed(str(error) or type(error).__name__)
            await asyncio.sleep(pause)

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            schema = await connection.fetchval("SELECT current_schema()", timeout=ANSWER_SECONDS)
            channel = f"lucius.{schema}".encode()[:CHANNEL_BYTES_MAX].decode(errors="ignore")
            connection.add_termination_listener(lambda _: self._arrived.set())
            async with asyncio.timeout(ANSWER_SECONDS):
                await connection.add_listener(channel, self._received)
            self._unheard_since = None
            # Others may have missed what this process did while it was not connected.
            self._connection, self._pending = connection, {EVERYTHING}
            await self._send_forever(connection, channel)
        finally:
            self._connection = None
            connection.terminate()

    async def _send_forever(self, connection: Any, channel: str) -> None:
        ping_at = 0.0
        while True:
            now = time.monotonic()
            if connection.is_closed():
                raise ConnectionError("the connection was closed")
            if self._unheard_since is not None and now - self._unheard_since > ANSWER_SECONDS:
                raise _Unheard
            names, self._pending = self._pending, set()
            self._arrived.clear()
            if names or now >= ping_at:
                self._unheard_since = self._unheard_since or now
                ping_at = now + PING_SECONDS
                await connection.execute(NOTIFY, channel, list(self._payloads(names)), timeout=ANSWER_SECONDS)
                self._forget_peers(now)
                await asyncio.sleep(GATHER_SECONDS)
            until = ping_at if self._unheard_since is None else self._unheard_since + ANSWER_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await self._arrived.wait()

    def _payloads(self, names: Iterable[str]) -> Iterator[str]:
        line = self._token
        for name in names:
            if len(line) + len(name) >= PAYLOAD_BYTES_MAX:
                yield line
                line = self._token
            line += f" {name}"
        yield line

    def _forget_peers(self, now: float) -> None:
        for token in [token for token, heard_at in self._peers.items() if now - heard_at > PEER_SECONDS]:
            del self._peers[token]

    # --- What is heard -----------------------------------------------------------------------------------------------

    def _received(self, connection: Any, process_id: int, channel: str, payload: object) -> None:
        token, *names = str(payload).split(" ")
        if token == self._token:
            self._unheard_since = None
            if not self.is_working:
                self._works()
            return
        if token not in self._peers:
            self._pending.add(EVERYTHING)  # It may have looked before it could hear what was told then.
            self._arrived.set()
        self._peers[token] = time.monotonic()
        for name in names:
            if name == EVERYTHING:
                self._wake_all()
            else:
                for listener in self._listeners:
                    if name.startswith(listener.kind):
                        listener.wake(name[len(listener.kind) :])

    def _wake_all(self) -> None:
        for listener in self._listeners:
            listener.wake_all()

    def _works(self) -> None:
        log.info("%s: processes wake each other by LISTEN and NOTIFY", self._name)
        self.is_working, self.problem = True, None
        self._wake_all()

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s: this process is not woken by others, and polls instead: %s", self._name, problem)
        self.is_working, self.problem = False, problem

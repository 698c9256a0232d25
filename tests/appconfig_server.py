"""The App Configuration stand-in in a thread with a loop of its own, for tests that start LUCIUS as a process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lucius.testing.appconfig.server import AppConfigServer

T = TypeVar("T")
SECONDS = 15.0


class AppConfigThread:
    """`run` does something in the server's own loop: every access to it goes that way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.server = AppConfigServer()
        self._loop = loop

    @property
    def settings(self) -> dict[str, str]:
        """With which LUCIUS reads its registry here."""
        return {"LUCIUS_REGISTRY": "appconfig://", "LUCIUS_APPCONFIG_CONNECTION": self.server.connection_string}

    def run(self, call: Callable[[], T]) -> T:
        async def inside() -> T:
            return call()

        return self._wait(inside())

    def put(self, key: str, value: str, label: str | None = None) -> None:
        self.run(lambda: self.server.put(key, value, label))

    def start(self) -> None:
        self._wait(self.server.start())

    def stop(self) -> None:
        """An outage; key-values are there again after `start`."""
        self._wait(self.server.stop())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)


@contextmanager
def running() -> Iterator[AppConfigThread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="App Configuration stand-in", daemon=True)
    thread.start()
    served = AppConfigThread(loop)
    served.start()
    try:
        yield served
    finally:
        served.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()

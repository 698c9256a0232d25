"""An event loop in a thread of its own, for work that may block it without blocking anybody else.

What is handed over while the other side is busy is handed over together: waking a loop in another thread costs a system
call and a change of threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from lucius.kit.threads import DaemonThreads

T = TypeVar("T")

log = logging.getLogger("lucius.kit")


class WorkLoop(Generic[T]):
    def __init__(self, threads_max: int) -> None:
        """Create it in the event loop that starts work. `threads_max` is for all calls of `asyncio.to_thread`."""
        self._callers = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads(threads_max))
        self._to_start: deque[tuple[Coroutine[Any, Any, T], asyncio.Future[T]]] = deque()
        self._is_starting = False
        self._ended: deque[tuple[asyncio.Task[T], asyncio.Future[T]]] = deque()
        self._is_ending = False
        threading.Thread(target=_run, args=(self._loop,), name="lucius-steps", daemon=True).start()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Its outcome, in the caller's event loop, once it has really ended. To be called there."""
        outcome: asyncio.Future[T] = self._callers.create_future()
        self._to_start.append((work, outcome))
        if not self._is_starting:
            self._is_starting = True
            self._loop.call_soon_threadsafe(self._start_all)
        return outcome

    def stop(self) -> None:
        """Cancels what is still at work, and does not wait for it."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _start_all(self) -> None:
        # Reset first: what is added from here on is either seen below or scheduled anew.
        self._is_starting = False
        while self._to_start:
            work, outcome = self._to_start.popleft()
            task = self._loop.create_task(work)
            task.add_done_callback(lambda done, outcome=outcome: self._end(done, outcome))  # type: ignore[misc]

    def _end(self, task: asyncio.Task[T], outcome: asyncio.Future[T]) -> None:
        self._ended.append((task, outcome))
        if not self._is_ending and not self._callers.is_closed():
            self._is_ending = True
            self._callers.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        self._is_ending = False
        while self._ended:
            task, outcome = self._ended.popleft()
            if outcome.done():
                continue
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _ran_until_stopped(loop):
            pass
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _ran_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        # Raised by a task that a step function started; the work of other steps continues.
        log.exception("a task of a step function tried to exit the process")
        return False
    return True

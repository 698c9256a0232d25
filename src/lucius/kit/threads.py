"""Threads that do not keep a service from stopping.

The threads of an ordinary executor are joined when the process exits, so a hanging call would keep it alive. These are
abandoned.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` only by type, because an event loop accepts nothing else; it starts its own threads."""

    def __init__(self, count_max: int) -> None:
        super().__init__(count_max)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < self._max_workers:
            self._started += 1
            threading.Thread(target=self._work, name=f"lucius-steps-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Idle threads end; busy ones are not waited for, whatever `wait` says."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, call  # Release them before waiting for the next job.
            self._idle.release()


_WORK = DaemonThreads(sys.maxsize)
"""As many as work at once, which callers limit; those that are idle are used again, because starting one takes longer
than most other things that are done for an attempt."""


def in_thread(work: Callable[[], T], label: str) -> asyncio.Future[T]:
    """Run in a daemon thread: work that does not end must not keep the process from exiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def conclude(done: Future[T]) -> None:
        if future.done():
            return
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)

    def run() -> None:
        threading.current_thread().name = f"lucius {label}"
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:  # A future does not accept these.
            done.set_exception(RuntimeError(f"the function raised {type(error).__name__}: {error}".rstrip(": ")))
        except BaseException as error:
            done.set_exception(error)
        with contextlib.suppress(RuntimeError):  # The event loop has closed.
            loop.call_soon_threadsafe(conclude, done)

    _WORK.submit(run)
    return future

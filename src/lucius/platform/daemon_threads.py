"""Threads for what async steps hand to `asyncio.to_thread`.

The threads of an ordinary executor are joined when the process ends, so one call that hangs would keep a service from
stopping. These are left behind.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Job = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` by name only, because an event loop takes nothing else; it starts no thread of that."""

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
        """Idle threads end; those at work are not waited for, whatever is asked."""
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
            del job, future, call  # What was handed over is not kept until the next job comes.
            self._idle.release()

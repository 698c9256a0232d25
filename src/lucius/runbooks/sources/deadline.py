"""Runs blocking work in its own thread, with a deadline for the event loop's wait.

A hanging driver cannot be killed, so its thread may have to be abandoned. After a few abandoned threads no new one is
started until one of them has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from lucius.runbooks.sources.limits import SourceError

T = TypeVar("T")

THREAD_NAME = "lucius-source"
MARGIN_SECONDS = 5.0
"""The database stops a query itself at its deadline; the loop intervenes this much later, then waits as long again."""
PAUSE_SECONDS = 0.1
ABANDONED_MAX = 4
_abandoned: set[threading.Thread] = set()


class Stop:
    """Tells a read to stop: the read polls it, and a waiting driver is interrupted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due = monotonic() + seconds
        self._requested = False
        self._wake: Callable[[], object] | None = None

    def wakes(self, wake: Callable[[], object] | None) -> None:
        """Set the function that interrupts the driver, callable from another thread."""
        self._wake = wake

    def is_due(self) -> bool:
        return self._requested or monotonic() >= self._due

    def check(self) -> None:
        if self.is_due():
            raise self.error()

    def pause(self, seconds: float) -> None:
        """Sleep this long, but not beyond the deadline. Raises SourceError."""
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            self.check()
            sleep(min(left, PAUSE_SECONDS))

    def error(self) -> SourceError:
        return SourceError(
            f"the query ran longer than {self.seconds:g} s and was stopped: "
            "make it faster or raise LUCIUS_SOURCE_QUERY_SECONDS"
        )

    def request(self) -> None:
        self._requested = True
        if self._wake is not None:
            self._wake()


async def in_thread(work: Callable[[Stop], T], seconds: float) -> T:
    """Returns or raises what the work does; SourceError when it took too long."""
    _abandoned.difference_update([thread for thread in _abandoned if not thread.is_alive()])
    if len(_abandoned) >= ABANDONED_MAX:
        raise SourceError(
            f"{ABANDONED_MAX} earlier reads hang in their database drivers and cannot be stopped: "
            "check those databases, or restart this process"
        )
    stop = Stop(seconds)
    thread, done = _started(lambda: work(stop))
    try:
        async with asyncio.timeout(seconds + MARGIN_SECONDS):
            return await asyncio.shield(done)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        _abandoned.add(thread)
        _started(stop.request)
        raise
    return await _stopped(stop, thread, done)


async def _stopped(stop: Stop, thread: threading.Thread, done: asyncio.Future[T]) -> T:
    _abandoned.add(thread)
    # Interrupting a driver may itself wait for the network.
    _started(stop.request)
    try:
        async with asyncio.timeout(MARGIN_SECONDS):
            return await asyncio.shield(done)
    except TimeoutError:
        raise SourceError(f"{stop.error()}; its driver did not stop, so its thread was abandoned") from None


def _started(work: Callable[[], T]) -> tuple[threading.Thread, asyncio.Future[T]]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    # Errors after the deadline are ignored: nothing waits for the outcome any more.
    done.add_done_callback(lambda future: future.cancelled() or future.exception())

    def settle(outcome: T | None, fault: BaseException | None) -> None:
        if done.done():
            return
        if fault is not None:
            done.set_exception(fault)
        else:
            done.set_result(outcome)  # type: ignore[arg-type]

    def run() -> None:
        outcome: T | None = None
        fault: BaseException | None = None
        try:
            outcome = work()
        except BaseException as raised:
            fault = raised
        try:
            loop.call_soon_threadsafe(settle, outcome, fault)
        except RuntimeError:
            return  # The loop has closed, and nothing waits for the outcome.

    # A daemon thread: a hanging driver must not keep the process from exiting.
    thread = threading.Thread(target=run, name=THREAD_NAME, daemon=True)
    thread.start()
    return thread, done

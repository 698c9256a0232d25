"""Threads that take orders from the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any


class _Order:
    __slots__ = ("act", "done", "is_waited_for", "lock", "outcome", "performed")

    def __init__(self, act: Callable[[], Any], done: Callable[[Any], None], is_waited_for: bool) -> None:
        self.act = act
        self.done = done
        self.outcome: Any = None
        self.is_waited_for = is_waited_for
        """The event loop stands still until it is performed; nobody need wake it."""
        self.performed = threading.Event()
        self.lock = threading.Lock()


class Threads:
    """A few threads that share one queue of orders, and report to the event loop how each went."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def do(self, act: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `act` in a thread, and `done` in the event loop with its result or with what it raised."""
        self._orders.put(_Order(act, done, is_waited_for=False))

    def do_now(self, act: Callable[[], Any], done: Callable[[Any], None], seconds_max: float) -> None:
        """The same, for what is over sooner than the event loop could be woken: it stands still meanwhile, but no
        longer than `seconds_max`."""
        order = _Order(act, done, is_waited_for=True)
        self._orders.put(order)
        if not order.performed.wait(seconds_max):
            with order.lock:
                order.is_waited_for = order.performed.is_set()
        if order.is_waited_for:
            done(order.outcome)

    def stop(self) -> None:
        """Finish every order, then end."""
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order.outcome = order.act()
            except Exception as error:  # Without this thread nobody would ever be answered again.
                order.outcome = error
            with order.lock:
                order.performed.set()
                is_waited_for = order.is_waited_for
            if not is_waited_for and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(order.done, order.outcome)

"""Starts requests a few at a time, with senders in turn.

Otherwise a client that sends two thousand requests at once would have all of them started in one turn of the event
loop, and everybody else would wait. Only a few start in each turn, of a crowd only one; the others wait in a queue per
sender, and senders are served round-robin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

STARTS_PER_TURN = 4
CROWD = 64
"""With more requests waiting than this, only one starts in each turn. One that is under way takes many turns, for each
answer of a database, and each should be short."""


class Intake:
    def __init__(self) -> None:
        self._left = STARTS_PER_TURN
        self._is_counting = False
        self._count = 0
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """In the order in which senders are served next."""

    def start(self, sender: Callable[[], str], begin: Callable[[], None]) -> None:
        """Begin a request now or in one of the next turns; its sender matters only if it has to wait."""
        if self._left:
            self._left -= 1
            begin()
        else:
            self._waiting.setdefault(sender(), deque()).append(begin)
            self._count += 1
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        most = self._left = 1 if self._count > CROWD else STARTS_PER_TURN
        while self._left and self._waiting:
            sender = next(iter(self._waiting))
            requests = self._waiting.pop(sender)
            self._left -= 1
            self._count -= 1
            begin = requests.popleft()
            if requests:
                self._waiting[sender] = requests  # Behind every other sender.
            begin()
        self._is_counting = self._left < most
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next_turn)

"""Tenants take turns: the messages that wait in one queue, one of each tenant after the other.

This is deficit round robin in which every message costs the same, so nobody has a deficit to carry over. A tenant's own
messages stay in order. A tenant that had nothing to deliver in the last round goes before those that did, with one
message; then it takes turns like them. So whoever sends now and then waits for no flood, however many tenants have one.
It cannot starve them: within a round, nobody goes first twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class TenantTurns(Generic[T]):
    def __init__(self, is_waiting: Callable[[T], bool]) -> None:
        """`is_waiting`: false for a message that has left the queue meanwhile; it is skipped, and costs no turn."""
        self._is_waiting = is_waiting
        self._waiting: dict[str, deque[T]] = {}
        """By tenant of this round, also of those that have nothing left."""
        self._newcomers: deque[str] = deque()
        self._turns: deque[str] = deque()

    def __iter__(self) -> Iterator[T]:
        for messages in self._waiting.values():
            yield from messages

    def add(self, tenant: str, message: T) -> None:
        self._of(tenant).append(message)

    def add_first(self, tenant: str, message: T) -> None:
        """Before this tenant's other messages."""
        self._of(tenant).appendleft(message)

    def next(self) -> T | None:
        """Take out the message whose turn it is."""
        while self._newcomers or self._turns:
            tenant = (self._newcomers or self._turns).popleft()
            found = self._first_waiting(self._waiting[tenant])
            if found is not None:
                self._turns.append(tenant)
                return found
            del self._waiting[tenant]  # It was served a round ago, or not at all.
        return None

    def _first_waiting(self, messages: deque[T]) -> T | None:
        while messages:
            message = messages.popleft()
            if self._is_waiting(message):
                return message
        return None

    def _of(self, tenant: str) -> deque[T]:
        messages = self._waiting.get(tenant)
        if messages is None:
            messages = self._waiting[tenant] = deque()
            self._newcomers.append(tenant)
        return messages

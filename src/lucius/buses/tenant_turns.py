"""Tenants take turns: the messages that wait in one queue, one of each tenant after the other.

This is deficit round robin in which every message costs the same, so nobody has a deficit to carry over. A tenant's own
messages stay in order. One that comes (back) with a message waits for one message of each tenant that waits already,
however many those have.
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
        while self._turns:
            tenant = self._turns[0]
            messages = self._waiting[tenant]
            found = self._first_waiting(messages)
            if messages:
                self._turns.rotate(-1)
            else:
                self._turns.popleft()
                del self._waiting[tenant]
            if found is not None:
                return found
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
            self._turns.append(tenant)
        return messages

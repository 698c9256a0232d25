"""Duplicate detection: which message ids an entity accepted within its window. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class DuplicateWindow:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._seen: OrderedDict[Any, tuple[float, int]] = OrderedDict()

    def first_number(self, message_id: Any, now: float) -> int | None:
        """The sequence number of the message with this id that was accepted before, if it is a duplicate."""
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest][0] > now - self.seconds:
                break
            del self._seen[oldest]
        seen = self._seen.get(message_id)
        return None if seen is None else seen[1]

    def remember(self, message_id: Any, sequence_number: int, now: float) -> None:
        self._seen[message_id] = (now, sequence_number)

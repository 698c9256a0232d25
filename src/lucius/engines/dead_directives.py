"""Directives that the bus has given up on: each counts as a missed ACK at once, and not when its ack deadline passes.

What this misses, because more died than it looks at or because the process was away, the ack deadline finds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lucius.domain.inputs import DirectiveDied
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.time import Instant
from lucius.ports.bus import Bus, DeadLetter, DeliveryRef
from lucius.ports.observer import Observer

LOOKED_AT = 50
"""Dead letters that a look takes in, the newest first."""
LOOKED_AT_MAX = 500
"""So many, if all of those are new."""

Tell = Callable[[str, DirectiveDied], Awaitable[object]]


class DeadDirectives:
    def __init__(self, bus: Bus, tell: Tell, observer: Observer) -> None:
        self._bus = bus
        self._tell = tell
        self._observer = observer
        self._seen: set[tuple[DeliveryRef, Instant]] = set()

    async def look(self) -> int:
        """Tell the jobs of those that are new; how many there were. Raises `BusUnavailable`."""
        letters = await self._bus.dead_letters(LOOKED_AT)
        if len(letters) == LOOKED_AT and not any(_key(letter) in self._seen for letter in letters):
            letters = await self._bus.dead_letters(LOOKED_AT_MAX)
        new = [letter for letter in letters if _key(letter) not in self._seen]
        told = [found for letter in new if (found := _about(letter)) is not None]
        for job_id, fact in told:
            await self._tell(job_id, fact)
        self._seen = {_key(letter) for letter in letters}
        if told:
            self._observer.swept("dead directive", len(told))
        return len(told)


def _key(letter: DeadLetter) -> tuple[DeliveryRef, Instant]:
    return letter.ref, letter.dead_at


def _about(letter: DeadLetter) -> tuple[str, DirectiveDied] | None:
    """The attempt whose directive this is; None if it is something else."""
    if letter.ref.topic not in LANE_TOPICS:
        return None
    job_id, step_id, attempt_no = (letter.properties.get(name) for name in ("jobId", "stepId", "attempt_no"))
    if not isinstance(job_id, str) or not isinstance(step_id, str) or not isinstance(attempt_no, int):
        return None
    return job_id, DirectiveDied(step_id, attempt_no, letter.reason)

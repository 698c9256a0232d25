"""The clock port: time and everything fresh, so that tests and simulations can bring their own."""

from __future__ import annotations

from typing import Protocol

from lucius.domain.time import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall-clock time, UTC. May jump; nothing breaks if it does."""
        ...

    def job_id(self) -> str:
        """A new UUIDv7: ids sort by the time they were made, so that every table grows at its end."""
        ...

    def lease_id(self) -> str:
        """A random id that was never used before."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...

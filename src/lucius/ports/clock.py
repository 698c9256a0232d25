"""The clock port: time, new ids and jitter, so that tests and simulations can provide their own."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from lucius.domain.time import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall-clock time, UTC. May jump; nothing breaks if it does."""
        ...

    @property
    def skew_seconds(self) -> float:
        """How far the machine's clock is ahead of `now`, or of the clock that it is compared with; 0 if of none."""
        ...

    def job_id(self) -> str:
        """A new UUIDv7: ids sort by creation time, so that rows are appended at the end of every index."""
        ...

    def lease_id(self) -> str:
        """A new random id."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class TimeReading(NamedTuple):
    """A server's time, and when it was read on this process's monotonic clock."""

    at: Instant
    monotonic_at: float
    error_seconds: float
    """Maximum distance between the server's reading and `monotonic_at`."""

"""The port of lanes over time: how long the oldest message of each had waited, once a minute, for all processes."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class LaneSample(Struct, frozen=True):
    minute: int
    """Since 1970."""
    oldest_seconds: tuple[float, ...]
    """By lane; 0 where nothing waits."""


class LaneSamples(Protocol):
    """Every method raises `DatabaseUnavailable`."""

    async def add(self, sample: LaneSample, oldest_minute: int) -> None:
        """Keep a sample, unless this minute has one, and delete those before `oldest_minute`."""
        ...

    async def since(self, minute: int) -> list[LaneSample]:
        """From this minute on, in order."""
        ...

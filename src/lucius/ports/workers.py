"""The port of sightings: who has asked for work, and when."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from lucius.domain.time import Instant


class WorkerKind(StrEnum):
    SERVICE = "service"
    """A platform service, which pulls directives."""
    WORKER = "worker"
    """A function worker, which pulls jobs of runbooks."""


class Sighting(Struct, frozen=True, kw_only=True):
    """One instance of a service or function worker."""

    kind: WorkerKind
    name: str
    """The service, or the worker id."""
    instance: str
    """What the instance calls itself; otherwise the name of its key."""
    version: str | None = None
    in_work: int | None = None
    """How many it works on, as far as it has told."""
    first_seen_at: Instant
    last_seen_at: Instant


class Failures(Struct, frozen=True, kw_only=True):
    """How often an instance failed in one minute."""

    kind: WorkerKind
    name: str
    instance: str
    minute: int
    """Since the epoch."""
    failures: int


class Workers(Protocol):
    """Every method raises `DatabaseUnavailable` if it cannot be carried out."""

    async def write(self, sightings: Sequence[Sighting]) -> None:
        """Record each, unless a later one of the same instance is recorded. `first_seen_at` stays as it was first
        written."""
        ...

    async def newest(self, limit: int) -> list[Sighting]:
        """Those seen last."""
        ...

    async def forget(self, seen_before: Instant, kept_max: int) -> int:
        """Delete instances last seen before this time, and all but about `kept_max` of the others; returns the
        number."""
        ...

    async def add_failures(self, counted: Sequence[Failures]) -> None:
        """Add to what is counted for the same instance and minute."""
        ...

    async def failures(self, since_minute: int) -> dict[tuple[WorkerKind, str, str], int]:
        """How often each instance failed since then, by kind, name and instance."""
        ...

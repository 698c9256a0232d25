"""What a process that rehearses is told, and what it tells."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.calendar import Freeze

MISSES_KEPT_MAX = 500
"""Members that miss a window, in a report that the server keeps."""


class RehearsalTask(Struct, frozen=True, kw_only=True):
    yaml: str
    of_files: list[Freeze] = []
    """Freezes of the version's calendar files."""
    csv: str | None
    count: int
    """Members to make up if there is no CSV."""
    start: Instant | None
    now: Instant
    seed: int
    options: dict[str, Any]
    """Of `read_behaviour`."""
    members_max: int


class RehearsalDone(Struct, frozen=True, kw_only=True):
    report: Any = None
    code: str | None = None
    """Of the error, if there is no report."""
    error: str | None = None


def read_task(content: bytes) -> RehearsalTask:
    return msgspec.json.decode(content, type=RehearsalTask)


def read_done(content: bytes) -> RehearsalDone:
    return msgspec.json.decode(content, type=RehearsalDone)

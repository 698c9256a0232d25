"""The grid of a batch: members × steps, one character a cell."""

from __future__ import annotations

from collections.abc import Mapping

from lucius.runbooks.core.states import (
    CANCELLED,
    DISPATCHED,
    FAILED,
    PENDING,
    POLL_TIMEOUT,
    POLLING,
    ROLLED_BACK,
    SUCCEEDED,
)

NO_STEP = "."
"""The phase has not begun for this member."""
RETRYING = "w"
"""The step waits for its next attempt, whatever its status is."""
CELLS: Mapping[str, str] = {
    PENDING: "p",
    DISPATCHED: "d",
    POLLING: "l",
    SUCCEEDED: "s",
    FAILED: "f",
    POLL_TIMEOUT: "t",
    ROLLED_BACK: "r",
    CANCELLED: "c",
}
"""The character of each status of a step."""
MEANINGS: Mapping[str, str] = {
    NO_STEP: "not begun",
    **{cell: status.replace("_", " ") for status, cell in CELLS.items()},
    RETRYING: "waiting for its retry",
}

MEMBER_ACTIVE, MEMBER_FAILED, MEMBER_HELD, MEMBER_REMOVED = "a", "f", "h", "r"
MEMBER_MEANINGS: Mapping[str, str] = {
    MEMBER_ACTIVE: "active",
    MEMBER_FAILED: "failed",
    MEMBER_HELD: "held",
    MEMBER_REMOVED: "removed",
}
"""The character of each state of a member."""
KEY_CHARS_SHOWN = 80
"""Longer keys of members are cut in the grid."""


def shown(status: str, retries: bool) -> str:
    """The character of a step; `retries`: whether it waits for its next attempt."""
    return RETRYING if retries else CELLS[status]

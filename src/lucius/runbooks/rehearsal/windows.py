"""When phases become due, when they should have ended, and how long they take at worst. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.model import Phase, Runbook, Step
from lucius.runbooks.core.due_times import due_at

THE_START = "the batch's start"
MILLIS_OF_DAY = 86_400_000


class Window(Struct, frozen=True):
    phase: Phase
    due_at: Instant
    until_at: Instant | None
    """When the next phase becomes due; for a phase before the start, at the latest the start. The last has none."""
    until: str | None
    """What happens then, in words."""

    def seconds_from(self, begins_at: Instant) -> int | None:
        return None if self.until_at is None else max(self.until_at - begins_at, 0) // 1000


def windows(runbook: Runbook, start: Instant) -> list[Window]:
    found = []
    for place, phase in enumerate(runbook.phases):
        due = due_at(start, phase.offset_minutes)
        later = [one for one in runbook.phases[place + 1 :] if one.offset_minutes < phase.offset_minutes]
        ends = [(due_at(start, one.offset_minutes), f"phase {one.name}") for one in later[:1]]
        if phase.offset_minutes > 0:
            ends.append((start, THE_START))
        until_at, until = min(ends, key=lambda end: end[0]) if ends else (None, None)
        found.append(Window(phase, due, until_at, until))
    return found


def step_worst_seconds(step: Step, members: int = 1, max_parallel: int | None = None) -> int:
    """If every attempt runs to its timeout, and a poll that begins with the last response runs to its own.

    With `max_parallel` the members take turns; those waiting for a poll free their slot.
    """
    turns = 1 if max_parallel is None else -(-members // max_parallel)
    retries = step.retry.max_retries
    tries = step.timeout_seconds * (retries + 1) + step.retry.interval_seconds * retries
    return tries * max(turns, 1) + (step.poll.timeout_seconds if step.poll else 0)


def steps_worst_seconds(
    runbook: Runbook, steps: Sequence[Step], members: int = 1, max_parallel: int | None = None
) -> int:
    """Of consecutive steps; a step that fails at the end of its time may be followed by a rollback."""
    longest = passed = 0
    for step in steps:
        passed += step_worst_seconds(step, members, max_parallel)
        rollback = runbook.rollbacks.get(step.on_failure or "", ())
        longest = max(longest, passed + sum(step_worst_seconds(one) for one in rollback))
    return longest


def usual_start(runbook: Runbook, now: Instant) -> Instant:
    """The first midnight late enough for the first phase."""
    lead = max(max(phase.offset_minutes for phase in runbook.phases), 0) * 60_000
    return ((now + lead) // MILLIS_OF_DAY + 1) * MILLIS_OF_DAY

"""Forecast against actual: the phases of a batch beside those of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lucius.console.phase_chart import read
from lucius.domain.time import Instant
from lucius.runbooks.core.answers import BatchPhase, BatchWhole
from lucius.runbooks.core.states import FAILURES, SKIPPED


class PhaseForecast(Struct, frozen=True, kw_only=True):
    phase: str
    status: str
    expected_end: Instant | None
    """In the rehearsal, as far from the batch's start as it was there."""
    actual_end: Instant | None
    late_seconds: float | None
    """How much later than expected it ended; negative if earlier."""
    expected_seconds: float | None
    actual_seconds: float | None
    expected_failed: int
    actual_failed: int


def compare_phases(batch: BatchWhole, expected: Mapping[str, Any]) -> list[PhaseForecast]:
    shift = read(batch["start"]) - read(expected["start"])
    by_name = {phase["phase"]: phase for phase in expected["phases"]}
    return [
        _line(phase, by_name[phase["phase"]], shift)
        for phase in batch["phase_list"]
        if phase["phase"] in by_name and phase["status"] != SKIPPED
    ]


def _line(phase: BatchPhase, expected: Mapping[str, Any], shift: int) -> PhaseForecast:
    expected_end = None if expected["ended_at"] is None else read(expected["ended_at"]) + shift
    actual_end = None if phase["completed_at"] is None else read(phase["completed_at"])
    late = None if expected_end is None or actual_end is None else (actual_end - expected_end) / 1000
    counts = [step["counts"] for step in phase["steps"]]
    return PhaseForecast(
        phase=phase["phase"],
        status=phase["status"],
        expected_end=expected_end,
        actual_end=actual_end,
        late_seconds=late,
        expected_seconds=_seconds(expected["began_at"], expected["ended_at"]),
        actual_seconds=_seconds(phase["dispatched_at"], phase["completed_at"]),
        expected_failed=expected["failed"] + expected["rolled_back"],
        actual_failed=sum(count for step in counts for status, count in step.items() if status in FAILURES),
    )


def _seconds(first: str | None, last: str | None) -> float | None:
    return None if first is None or last is None else (read(last) - read(first)) / 1000

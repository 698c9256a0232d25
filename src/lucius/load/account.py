"""Counts the events of a run. Pure: times are arguments, in seconds of one monotonic clock."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

PERCENTILES = (50, 90, 95, 99)


class Samples:
    """Keeps every sample, so percentiles are exact."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._sorted = True

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        self._values.append(value)
        self._sorted = False

    def percentile(self, percent: float) -> float | None:
        """By nearest rank: a measured value that this percentage of samples does not exceed."""
        if not self._values:
            return None
        if not self._sorted:
            # Sorting is cheap when repeated: the sorted part is a single run for this algorithm.
            self._values.sort()
            self._sorted = True
        return self._values[max(0, math.ceil(percent / 100 * len(self._values)) - 1)]

    def in_milliseconds(self) -> dict[str, float | int | None]:
        fields: dict[str, float | int | None] = {"count": len(self)}
        for name, percent in (*((f"p{number}", number) for number in PERCENTILES), ("max", 100)):
            value = self.percentile(percent)
            fields[name] = None if value is None else round(value * 1_000, 2)
        return fields


class Account:
    """`meant_at` is when a command should be sent. Waiting behind others and rejections count toward its latency."""

    def __init__(self) -> None:
        self.submitted = 0
        self.accepted = 0
        self.retries = 0
        self.in_flight_max = 0
        self.ended: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.retried_calls: Counter[str] = Counter()
        self.acceptance = Samples()
        self.whole = Samples()
        self.looks = Samples()
        """Times between two polls for ended jobs."""
        self.first_at: float | None = None
        self.last_end_at: float | None = None
        self.progress_at: float | None = None

    @property
    def ended_total(self) -> int:
        return sum(self.ended.values())

    @property
    def in_flight(self) -> int:
        return self.accepted - self.ended_total

    def submit(self, at: float) -> None:
        if self.submitted == self.ended_total:
            # Nothing was in flight before, so the time until now is not a stall.
            self.progress_at = at
        self.submitted += 1
        self.first_at = at if self.first_at is None else self.first_at

    def accept(self, meant_at: float, at: float) -> None:
        self.accepted += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        self.acceptance.add(at - meant_at)
        self.progress_at = at

    def end(self, status: str, retries: int, meant_at: float, at: float) -> None:
        self.ended[status] += 1
        self.retries += retries
        self.whole.add(at - meant_at)
        self.last_end_at = self.progress_at = at

    def refuse(self, code: str) -> None:
        """A command was rejected; it is sent again."""
        self.refused[code] += 1

    def retry_call(self, code: str) -> None:
        """Another call (a read, a pull, a batch of callbacks) failed; it is repeated."""
        self.retried_calls[code] += 1

    def stalled_seconds(self, now: float) -> float:
        """How long jobs have been in flight without any being accepted or ended."""
        if self.submitted == self.ended_total or self.progress_at is None:
            return 0.0
        return now - self.progress_at

    def seconds(self) -> float:
        """From the first submission to the last end."""
        return 0.0 if self.first_at is None or self.last_end_at is None else self.last_end_at - self.first_at

    def jobs_per_second(self) -> float:
        seconds = self.seconds()
        return self.ended_total / seconds if seconds > 0 else 0.0


class ServicesAccount:
    """Directives and callbacks of the simulated services."""

    def __init__(self) -> None:
        self.directives: Counter[str] = Counter()
        self.others = 0
        self.verdicts: Counter[str] = Counter()
        self.duplicates = 0
        self.outcomes: dict[str, Counter[str]] = {"ACK": Counter(), "RESULT": Counter()}

    def as_dict(self) -> dict[str, Any]:
        return {
            "directives": sum(self.directives.values()),
            "directives_by_service": dict(sorted(self.directives.items())),
            "directives_of_others": self.others,
            "verdicts": dict(sorted(self.verdicts.items())),
            "results_sent_twice": self.duplicates,
            "callbacks": {kind: dict(sorted(counted.items())) for kind, counted in self.outcomes.items()},
        }

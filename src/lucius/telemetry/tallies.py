"""Tallies: counters, gauges and histograms as plain dictionaries, which the Prometheus library reads when it renders.

The library's own metrics take a lock for every observation; LUCIUS observes from one thread, many times per job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SERIES_MAX = 2_000
"""Maximum series of one metric; further label values are counted under `other`."""

Labels = tuple[str, ...]


class Counter:
    """`of` lists label values that are shown from the start, at zero."""

    def __init__(self, name: str, text: str, labels: Labels = (), of: Iterable[Labels] = ()) -> None:
        self.name = f"{name}_total"
        self._family = (name, text)
        self._labels = labels
        self._counts: dict[Labels, float] = dict.fromkeys(of if labels else [()], 0)

    def add(self, count: float = 1, labels: Labels = ()) -> None:
        counts = self._counts
        if labels in counts:
            counts[labels] += count
            return
        if len(counts) >= SERIES_MAX:
            labels = ("other",) * len(self._labels)
        counts[labels] = counts.get(labels, 0) + count

    def metric(self) -> Metric:
        family = CounterMetricFamily(*self._family, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        return family


class Gauge:
    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name = name
        self._family = (name, text)
        self._labels = labels
        self._values: dict[Labels, float] = {}

    def set(self, value: float, labels: Labels = ()) -> None:
        if labels in self._values or len(self._values) < SERIES_MAX:
            self._values[labels] = value

    def clear(self) -> None:
        """Clear the values, so that nothing is shown."""
        self._values.clear()

    def metric(self) -> Metric:
        family = GaugeMetricFamily(*self._family, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Histogram:
    """With at most one label."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], label: str | None = None) -> None:
        self.name = name
        self._family = (name, text)
        self._bounds = tuple(bounds)
        self._labels = () if label is None else (label,)
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        if label is None:
            self._add_series("")

    def observe(self, value: float, label: str = "") -> None:
        counts = self._counts.get(label)
        if counts is None:
            label = label if len(self._counts) < SERIES_MAX else "other"
            counts = self._counts.get(label) or self._add_series(label)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[label] += value

    def _add_series(self, label: str) -> list[int]:
        self._sums[label] = 0.0
        self._counts[label] = [0] * (len(self._bounds) + 1)
        return self._counts[label]

    def metric(self) -> Metric:
        family = HistogramMetricFamily(*self._family, labels=self._labels)
        for label, counts in self._counts.items():
            total = 0
            buckets = []
            for bound, count in zip((*map(repr, map(float, self._bounds)), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, float(total)))
            family.add_metric((label,) if self._labels else (), buckets, self._sums[label])
        return family


T = TypeVar("T", Counter, Gauge, Histogram)


class Tallies(Collector):
    """All tallies, for a registry of the Prometheus library."""

    def __init__(self) -> None:
        self._tallies: list[Counter | Gauge | Histogram] = []

    def counter(self, name: str, text: str, labels: Labels = (), of: Iterable[Labels] = ()) -> Counter:
        return self._add(Counter(name, text, labels, of))

    def gauge(self, name: str, text: str, labels: Labels = ()) -> Gauge:
        return self._add(Gauge(name, text, labels))

    def histogram(self, name: str, text: str, bounds: Sequence[float], label: str | None = None) -> Histogram:
        return self._add(Histogram(name, text, bounds, label))

    def _add(self, tally: T) -> T:
        self._tallies.append(tally)
        return tally

    def collect(self) -> Iterator[Metric]:
        return (tally.metric() for tally in self._tallies)

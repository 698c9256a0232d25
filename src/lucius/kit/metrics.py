"""Metrics shared by services and workers. Every series has the name of its service or worker as a label."""

from __future__ import annotations

from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

WORK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, float("inf"))


M = TypeVar("M", Counter, Histogram)


class KitMetrics:
    def __init__(self, prefix: str, label: str, value: str) -> None:
        self._registry = CollectorRegistry()
        self._prefix = prefix
        self._label = label
        self._value = value
        self._series: dict[tuple[Any, ...], Any] = {}

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", meaning, (self._label, *labels), registry=self._registry)

    def gauge(self, name: str, meaning: str) -> Gauge:
        """The one series of a gauge without other labels."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, (self._label,), registry=self._registry)
        return gauge.labels(self._value)

    def histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        labels = (self._label, *labels)
        return Histogram(f"{self._prefix}_{name}", meaning, labels, buckets=WORK_BUCKETS, registry=self._registry)

    def series(self, metric: M, *labels: str) -> M:
        """The series with these labels. Kept, because looking one up in the library takes longer than counting."""
        key = (metric, *labels)
        found: M | None = self._series.get(key)
        if found is None:
            found = self._series[key] = metric.labels(self._value, *labels)
        return found

    def render(self) -> bytes:
        return generate_latest(self._registry)

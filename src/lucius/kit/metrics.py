"""Metrics shared by services and workers. Every series has the name of its service or worker as a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

WORK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, float("inf"))


class KitMetrics:
    def __init__(self, prefix: str, label: str, value: str) -> None:
        self._registry = CollectorRegistry()
        self._prefix = prefix
        self._label = label
        self._value = value

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", meaning, (self._label, *labels), registry=self._registry)

    def gauge(self, name: str, meaning: str) -> Gauge:
        """The one series of a gauge without other labels."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, (self._label,), registry=self._registry)
        return gauge.labels(self._value)

    def histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        labels = (self._label, *labels)
        return Histogram(f"{self._prefix}_{name}", meaning, labels, buckets=WORK_BUCKETS, registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)

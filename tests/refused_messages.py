"""What `/metrics` counts of messages that nobody can use."""

from __future__ import annotations

from lucius.telemetry.metrics import MetricsObserver

NAME = "lucius_messages_refused"


def refused(metrics: MetricsObserver) -> dict[tuple[str, str], float]:
    """By topic and code."""
    return {
        (sample.labels["topic"], sample.labels["code"]): sample.value
        for family in metrics.registry.collect()
        if family.name == NAME
        for sample in family.samples
        if sample.name == f"{NAME}_total"
    }

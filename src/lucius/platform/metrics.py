"""What a service counts. Every series carries the service's name; none carries a tenant's, as there is no bound."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lucius.platform.orchestrator import Answer, Callback

WORK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, float("inf"))


class Metrics:
    def __init__(self, service: str) -> None:
        self._registry = registry = CollectorRegistry()
        self._service = service
        label = ("service",)
        self._directives = Counter(
            "lucius_platform_directives", "Directives received.", (*label, "seen"), registry=registry
        )
        self._attempts = Counter(
            "lucius_platform_attempts", "Attempts ended.", (*label, "step_type", "outcome"), registry=registry
        )
        self._work = Histogram(
            "lucius_platform_work_seconds",
            "How long attempts were in work.",
            (*label, "step_type"),
            buckets=WORK_BUCKETS,
            registry=registry,
        )
        self._callbacks = Counter(
            "lucius_platform_callbacks", "Callbacks answered.", (*label, "kind", "answer"), registry=registry
        )
        self._in_work = Gauge("lucius_platform_in_work", "Attempts in work.", label, registry=registry)
        self._owed = Gauge("lucius_platform_results_owed", "RESULTs not yet answered.", label, registry=registry)

    def directive(self, seen: str) -> None:
        self._directives.labels(self._service, seen).inc()

    def attempt(self, step_type: str, outcome: str, seconds: float) -> None:
        self._attempts.labels(self._service, step_type, outcome).inc()
        self._work.labels(self._service, step_type).observe(seconds)

    def callback(self, callback: Callback, answer: Answer) -> None:
        self._callbacks.labels(self._service, callback.kind, answer.code).inc()

    def in_work(self, count: int) -> None:
        self._in_work.labels(self._service).set(count)

    def owed(self, count: int) -> None:
        self._owed.labels(self._service).set(count)

    def render(self) -> bytes:
        return generate_latest(self._registry)

"""Metrics of a service. Every series has the service's name as a label; none has a tenant: those are unbounded."""

from __future__ import annotations

from collections.abc import Callable

from lucius.kit.metrics import KitMetrics
from lucius.platform.orchestrator import Callback, CallbackAnswer


class Metrics(KitMetrics):
    def __init__(self, service: str) -> None:
        super().__init__("lucius_platform", "service", service)
        self._directives = self.counter("directives", "Directives received.", "seen")
        self._attempts = self.counter("attempts", "Attempts ended.", "step_type", "outcome")
        self._work = self.histogram("work_seconds", "How long attempts were in work.", "step_type")
        self._callbacks = self.counter("callbacks", "Callbacks answered.", "kind", "answer")
        self._in_work = self.gauge("in_work", "Attempts in work.")
        self._owed = self.gauge("results_owed", "RESULTs not yet answered.")

    def watch(self, in_work: Callable[[], int], owed: Callable[[], int]) -> None:
        """These are asked whenever the metrics are read."""
        self._in_work.set_function(in_work)
        self._owed.set_function(owed)

    def directive(self, seen: str) -> None:
        self.series(self._directives, seen).inc()

    def attempt(self, step_type: str, outcome: str, seconds: float) -> None:
        self.series(self._attempts, step_type, outcome).inc()
        self.series(self._work, step_type).observe(seconds)

    def callback(self, callback: Callback, answer: CallbackAnswer) -> None:
        self.series(self._callbacks, callback.kind, answer.code).inc()

"""Metrics of a function worker. Every series has the worker id as a label; none has a member or a batch."""

from __future__ import annotations

from collections.abc import Iterable

from lucius.kit.metrics import KitMetrics

UNKNOWN = "unknown"
"""For all functions that the worker does not have: the names in jobs are unbounded."""


class Metrics(KitMetrics):
    def __init__(self, worker_id: str, functions: Iterable[str]) -> None:
        super().__init__("lucius_worker", "worker_id", worker_id)
        self._functions = frozenset(functions)
        self._jobs = self.counter("jobs", "Jobs ended.", "function", "outcome")
        self._work = self.histogram("work_seconds", "How long functions ran, throttled tries included.", "function")
        self._results = self.counter("results", "Results answered.", "answer")
        self._in_work = self.gauge("in_work", "Functions that run.")
        self._owed = self.gauge("results_owed", "Results not yet answered.")

    def job(self, function: str, outcome: str, seconds: float) -> None:
        name = function if function in self._functions else UNKNOWN
        self.series(self._jobs, name, outcome).inc()
        self.series(self._work, name).observe(seconds)

    def result(self, answer: str) -> None:
        self.series(self._results, answer).inc()

    def in_work(self, count: int) -> None:
        self._in_work.set(count)

    def owed(self, count: int) -> None:
        self._owed.set(count)

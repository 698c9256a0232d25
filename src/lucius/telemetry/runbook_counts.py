"""Metrics of runbooks: counters from orchestrator and scheduler, and gauges read from the tables."""

from __future__ import annotations

from lucius.ports.clock import Clock
from lucius.ports.database import Database
from lucius.sql.runbook_counts import read_counts
from lucius.telemetry.tallies import Tallies

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_STATUSES = ("dispatched", "succeeded", "failed", "poll_timeout", "rolled_back", "cancelled")
_OUTCOMES = ("APPLIED", "DUPLICATE", "STALE", "UNKNOWN", "FORGED")


class RunbookCounts:
    def __init__(self, tallies: Tallies, clock: Clock) -> None:
        self._clock = clock
        counter, histogram, gauge = tallies.counter, tallies.histogram, tallies.gauge
        self._steps = counter(
            "lucius_runbook_steps", "Steps that came to a status.", ("status",), [(one,) for one in _STATUSES]
        )
        self._steps_by_runbook = counter(
            "lucius_runbook_steps_by_runbook", "The same, by runbook.", ("runbook", "status")
        )
        self._batches_by_runbook = gauge(
            "lucius_runbook_batches_open_by_runbook", "Batches that have not ended, by runbook.", ("runbook",)
        )
        self._in_flight_by_runbook = gauge(
            "lucius_runbook_steps_in_flight_by_runbook", "Steps that a worker has, by runbook.", ("runbook",)
        )
        self._results = counter(
            "lucius_runbook_results", "Results from workers, by outcome.", ("outcome",), [(one,) for one in _OUTCOMES]
        )
        self._ticks = counter(
            "lucius_scheduler_ticks", "Rounds of the scheduler.", ("outcome",), [("ok",), ("failed",), ("not_leader",)]
        )
        self._tick_seconds = histogram(
            "lucius_scheduler_tick_seconds", "How long a round of the leader's took.", _SECONDS
        )
        self._reads = counter(
            "lucius_source_reads", "Readings of data sources.", ("outcome",), [("ok",), ("held",), ("failed",)]
        )
        self._read_seconds = histogram(
            "lucius_source_read_seconds", "How long reading a source took, with what followed from it.", _SECONDS
        )
        self._batches = gauge("lucius_runbook_batches_open", "Batches that have not ended.")
        self._in_flight = gauge("lucius_runbook_steps_in_flight", "Steps that a worker has.")
        self._backlog = gauge("lucius_runbook_outbox_backlog", "Messages not yet handed to the bus.")
        self._backlog_age = gauge("lucius_runbook_outbox_oldest_seconds", "Age of the oldest of them.")

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        self._steps.add(count, (status,))
        if runbook:
            self._steps_by_runbook.add(count, (runbook, status))

    def worker_answered(self, outcome: str) -> None:
        self._results.add(1, (outcome,))

    def ticked(self, outcome: str, seconds: float) -> None:
        self._ticks.add(1, (outcome,))
        if outcome != "not_leader":  # A scheduler that is not the leader only looks at the lease.
            self._tick_seconds.observe(seconds)

    def source_read(self, outcome: str, seconds: float) -> None:
        self._reads.add(1, (outcome,))
        self._read_seconds.observe(seconds)

    def clear(self) -> None:
        for gauge in (self._batches, self._in_flight, self._backlog, self._backlog_age):
            gauge.clear()
        self._batches_by_runbook.clear()
        self._in_flight_by_runbook.clear()

    async def collect(self, database: Database) -> None:
        batches, in_flight, backlog, oldest = await database.read(read_counts)
        self._batches.set(sum(batches.values()))
        self._in_flight.set(sum(in_flight.values()))
        for runbook, count in batches.items():
            self._batches_by_runbook.set(count, (runbook,))
            self._in_flight_by_runbook.set(in_flight.get(runbook, 0), (runbook,))
        self._backlog.set(backlog)
        self._backlog_age.set(0.0 if oldest is None else max(0, self._clock.now() - oldest) / 1000)

"""Metrics: counters updated while turns run, and gauges read from ledger and bus right before they are served.

`docs/reference/metrics.md` describes every metric, and a test checks that. Only tenants of the registry are label
values: their number is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from lucius.domain.errors import STATUS_OF
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.database import Database
from lucius.ports.ledger import Change, Ledger, Repairs
from lucius.ports.observer import Observer
from lucius.ports.registry import RegistrySnapshot
from lucius.telemetry.event_counts import EventCounts
from lucius.telemetry.gauges import Gauges
from lucius.telemetry.runbook_counts import RunbookCounts
from lucius.telemetry.tallies import Tallies
from lucius.telemetry.tenant_counts import TenantCounts
from lucius.usecases.sightings import Sightings

METRICS_CONTENT_TYPE = CONTENT_TYPE_LATEST
COLLECT_SECONDS_MAX = 5.0
COLLECT_INTERVAL_SECONDS = 1.0
"""The ledger is read at most this often, however often the metrics are requested."""

_TURN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class MetricsObserver(Observer):
    def __init__(self, clock: Clock, is_registered: Callable[[str], bool] = lambda tenant_id: False) -> None:
        """`is_registered`: whether a tenant is in the registry, so that counting it by name is bounded."""
        tallies = Tallies()
        counter, histogram = tallies.counter, tallies.histogram
        self._events = EventCounts(tallies)
        self._gauges = Gauges(tallies, clock)
        self._refused = counter(
            "lucius_commands_refused", "Commands that were refused, by code.", ("code",), [(c,) for c in STATUS_OF]
        )
        self._batches = histogram("lucius_dispatch_batch_size", "Directives in one publish.", _SIZES)
        self._callbacks = counter("lucius_callbacks", "Callbacks, by kind and answer.", ("kind", "outcome"))
        self._replies_refused = counter(
            "lucius_replies_refused", "Messages on reply topics that became dead letters, by code.", ("code",)
        )
        self._messages_refused = counter(
            "lucius_messages_refused", "Foreign and malformed messages that became dead letters, by topic and code.",
            ("topic", "code"),
        )  # fmt: skip
        self._sweeps = counter(
            "lucius_sweeper_actions",
            "What the sweeper did, by kind.",
            ("kind",),
            [("deadline",), ("undispatched",), ("lost_message",)],
        )
        self._repairs = counter(
            "lucius_repairs", "Drift repaired, by kind.", ("kind",), [("slots",), ("wake_ups",), ("outbox",)]
        )
        self._webhooks = counter(
            "lucius_webhooks", "Webhook calls, by outcome.", ("outcome",), [("delivered",), ("failed",), ("given_up",)]
        )
        self._pruned = counter("lucius_jobs_pruned", "Old jobs that were removed from the ledger.")
        self._archived = counter("lucius_jobs_archived", "Jobs that were written to the archive.")
        kinds, outcomes = ("webhook", "json", "email"), ("delivered", "failed", "given_up")
        self._notifications = counter(
            "lucius_notifications", "Tries to send notifications, by kind and outcome.", ("kind", "outcome"),
            [(kind, outcome) for kind in kinds for outcome in outcomes],
        )  # fmt: skip
        self._turn_inputs = histogram("lucius_turn_inputs", "Inputs in one turn.", _SIZES)
        self._turn_seconds = histogram("lucius_turn_seconds", "How long a turn took.", _TURN_SECONDS)
        self._failures = counter("lucius_failures", "Failures that no caller waits for.", ("what",))
        self._circuit = tallies.gauge("lucius_circuit_open", "1 while the bus is unreachable.")
        self._circuit.set(0)
        self._wakeups = tallies.gauge(
            "lucius_wakeups_working", "1 while other processes can wake this one; else it polls."
        )
        self._waits = tallies.gauge("lucius_waits_held", "Calls that are held open, by kind.", ("kind",))
        self._waits_refused = counter(
            "lucius_waits_refused", "Calls not held open because too many were.", ("kind", "scope"),
            [("wait", "principal"), ("wait", "all"), ("stream", "principal"), ("stream", "all")],
        )  # fmt: skip
        for kind in ("wait", "stream"):
            self._waits.set(0, (kind,))
        self._registry_problems = tallies.gauge(
            "lucius_registry_problems", "What keeps the registry from taking effect."
        )
        self._registry_stale = tallies.gauge(
            "lucius_registry_stale_seconds", "Since the registry's source was last seen to hold what is in force."
        )
        self._runbooks = RunbookCounts(tallies, clock)
        self._tenants = TenantCounts(tallies, is_registered)
        self._operations = counter("lucius_operations", "States that operations came to.", ("action", "status"))
        self._operation_jobs = counter(
            "lucius_operation_jobs", "Jobs that operations acted on, by outcome.", ("action", "outcome")
        )
        self._collecting = asyncio.Lock()
        self._collected_at = float("-inf")
        self.registry = CollectorRegistry()
        self.registry.register(tallies)
        ProcessCollector(namespace="lucius", registry=self.registry)

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        self._turn_inputs.observe(inputs)
        self._turn_seconds.observe(seconds)
        self._events.count(changes)
        self._tenants.count(changes)

    def command_refused(self, code: str, tenant_id: str | None = None) -> None:
        self._refused.add(1, (code,))
        self._tenants.refused(tenant_id)

    def callback_answered(self, kind: str, outcome: str) -> None:
        self._callbacks.add(1, (kind, outcome))

    def reply_refused(self, code: str) -> None:
        self._replies_refused.add(1, (code,))

    def message_refused(self, topic: str, code: str) -> None:
        self._messages_refused.add(1, (topic, code))

    def dispatched(self, count: int, lag_seconds: float) -> None:
        self._batches.observe(count)

    def circuit_changed(self, is_open: bool, reason: str) -> None:
        self._circuit.set(1 if is_open else 0)

    def swept(self, kind: str, count: int) -> None:
        self._sweeps.add(count, (kind,))

    def repaired(self, repairs: Repairs) -> None:
        self._repairs.add(repairs.slots, ("slots",))
        self._repairs.add(repairs.wake_ups, ("wake_ups",))
        self._repairs.add(repairs.outbox, ("outbox",))

    def webhook_called(self, outcome: str) -> None:
        self._webhooks.add(1, (outcome,))

    def notification_sent(self, kind: str, outcome: str) -> None:
        self._notifications.add(1, (kind, outcome))

    def jobs_pruned(self, removed: int, archived: int) -> None:
        self._pruned.add(removed)
        self._archived.add(archived)

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        self._runbooks.steps_moved(status, count, runbook)

    def operation_moved(self, operation_id: str, action: str, status: str, sentence: str) -> None:
        self._operations.add(1, (action, status))

    def operation_acted(self, action: str, outcome: str) -> None:
        self._operation_jobs.add(1, (action, outcome))

    def worker_answered(self, outcome: str) -> None:
        self._runbooks.worker_answered(outcome)

    def ticked(self, outcome: str, seconds: float) -> None:
        self._runbooks.ticked(outcome, seconds)

    def source_read(self, outcome: str, seconds: float) -> None:
        self._runbooks.source_read(outcome, seconds)

    def waits_held(self, kind: str, count: int) -> None:
        self._waits.set(count, (kind,))

    def wait_refused(self, kind: str, scope: str) -> None:
        self._waits_refused.add(1, (kind, scope))

    def failed(self, what: str, error: BaseException) -> None:
        # The first word is the kind; the rest may be an id, which must not be a label.
        self._failures.add(1, (what.partition(" ")[0].rstrip(",:") or "unknown",))

    def show_wakeups(self, is_working: bool) -> None:
        self._wakeups.set(1 if is_working else 0)

    def show_registry(self, problems: int, stale_seconds: float) -> None:
        self._registry_problems.set(problems)
        self._registry_stale.set(stale_seconds)

    async def collect(
        self,
        ledger: Ledger,
        bus: Bus,
        snapshot: RegistrySnapshot | None,
        runbooks: Database | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        """Update the gauges. What does not answer in time is left out of the next `render`, and counted.

        `runbooks` is the database with their tables. Without it, or without a snapshot of the registry or sightings of
        workers, the gauges that need it are left out.
        """
        async with self._collecting:
            if time.monotonic() - self._collected_at < COLLECT_INTERVAL_SECONDS:
                return
            self._gauges.clear()
            self._runbooks.clear()
            self._gauges.collect_skew()
            parts = [
                self._try("outbox", self._gauges.collect_outbox(ledger)),
                self._try("lanes", self._gauges.collect_lanes(bus)),
            ]
            if snapshot is not None:
                parts.append(self._try("inflight", self._gauges.collect_inflight(ledger, snapshot)))
            if sightings is not None:
                parts.append(self._try("consumers", self._gauges.collect_consumers(sightings)))
            if runbooks is not None:
                parts.append(self._try("runbooks", self._runbooks.collect(runbooks)))
            await asyncio.gather(*parts)
            self._collected_at = time.monotonic()

    async def _try(self, part: str, collecting: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(collecting, COLLECT_SECONDS_MAX)
        except Exception as error:
            self.failed(f"metrics:{part}", error)

    def render(self) -> bytes:
        """All metrics in Prometheus text format, with the content type `METRICS_CONTENT_TYPE`."""
        return generate_latest(self.registry)

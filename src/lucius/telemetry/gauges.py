"""Gauges of ledger and bus, read right before the metrics are served and not while turns run."""

from __future__ import annotations

from lucius.domain.routing import LANE_COUNT, Mode, lane_topic
from lucius.domain.time import Instant
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger, OutboxRow
from lucius.ports.registry import RegistrySnapshot
from lucius.telemetry.tallies import Tallies
from lucius.usecases.lanes import count_unsent
from lucius.usecases.sightings import Sightings

OUTBOX_ROWS_MAX = 5_000
"""A longer backlog is shown as this number."""
LANE_TOPICS = frozenset(lane_topic(lane) for lane in range(LANE_COUNT))
"""All other topics belong to runbooks."""
TENANTS_MAX = 900
"""Tenants with in-flight gauges: of those that the registry names, the ones with most in flight."""


class Gauges:
    def __init__(self, tallies: Tallies, clock: Clock) -> None:
        self._clock = clock
        gauge = tallies.gauge
        self._backlog = gauge("lucius_outbox_backlog", "Attempts not yet handed to the bus.")
        self._backlog_age = gauge("lucius_outbox_oldest_seconds", "Age of the oldest of them.")
        self._depth = gauge(
            "lucius_lane_depth", "Directives on the bus, by lane, service and state.", ("lane", "service", "state")
        )
        self._lane_age = gauge(
            "lucius_lane_oldest_seconds", "Age of the oldest directive waiting.", ("lane", "service")
        )
        self._redelivered = gauge(
            "lucius_lane_redelivered", "Directives on the bus that were delivered more than once.", ("lane", "service")
        )
        self._unsent = gauge(
            "lucius_lane_unsent",
            "Attempts not yet handed to the bus, by lane, service and what they wait for.",
            ("lane", "service", "waits_for"),
        )
        self._consumers = gauge(
            "lucius_lane_consumers",
            "Instances of a service that ask for directives, each of them for all lanes.",
            ("service",),
        )
        self._runbook_dead = gauge(
            "lucius_runbook_dead_messages", "Messages of runbooks that the bus gave up on.", ("topic", "subscription")
        )
        self._inflight = gauge("lucius_inflight", "Jobs in flight, by scope.", ("scope",))
        self._limit = gauge("lucius_inflight_limit", "How many may be, by scope.", ("scope",))
        self._skew = gauge("lucius_clock_skew_seconds", "How far this machine's clock is ahead of the ledger's.")

    def clear(self) -> None:
        """Clear all gauges, so that no stale value is shown for something that does not answer."""
        for gauge in (
            self._backlog, self._backlog_age, self._depth, self._lane_age, self._redelivered, self._unsent,
            self._consumers, self._runbook_dead, self._inflight, self._limit,
        ):  # fmt: skip
            gauge.clear()

    def collect_skew(self) -> None:
        self._skew.set(self._clock.skew_seconds)

    async def collect_outbox(self, ledger: Ledger) -> None:
        rows = await ledger.outbox(OUTBOX_ROWS_MAX)
        made_at = [row.attempt.created_at for row in rows if isinstance(row, OutboxRow)]
        self._backlog.set(len(rows))
        self._backlog_age.set(self._age(min(made_at, default=None)))
        for (lane, service), unsent in count_unsent(rows).items():
            self._unsent.set(unsent.count - unsent.held, (lane_topic(lane), service, "bus"))
            self._unsent.set(unsent.held, (lane_topic(lane), service, "tenant_cap"))

    async def collect_consumers(self, sightings: Sightings) -> None:
        for service, count in sightings.services_there().items():
            self._consumers.set(count, (service,))

    async def collect_lanes(self, bus: Bus) -> None:
        for depth in await bus.depths():
            labels = (depth.topic, depth.subscription)
            self._depth.set(depth.ready, (*labels, "ready"))
            self._depth.set(depth.locked, (*labels, "locked"))
            self._depth.set(depth.dead, (*labels, "dead"))
            self._lane_age.set(self._age(depth.oldest_at), labels)
            self._redelivered.set(depth.redelivered, labels)
            if depth.topic not in LANE_TOPICS:
                self._runbook_dead.set(depth.dead, labels)

    async def collect_inflight(self, ledger: Ledger, snapshot: RegistrySnapshot) -> None:
        counts = await ledger.inflight()
        settings = snapshot.settings
        limits: dict[str, int | None] = {"global": settings.max_inflight}
        for mode in Mode:
            limits[f"mode:{mode.value}"] = settings.max_inflight_per_mode.get(mode)
        named = sorted(snapshot.tenants.values(), key=lambda tenant: (-counts.get(f"tenant:{tenant.id}", 0), tenant.id))
        for tenant in named[:TENANTS_MAX]:
            own = tenant.max_inflight
            limits[f"tenant:{tenant.id}"] = settings.max_inflight_per_tenant if own is None else own
        for scope, maximum in limits.items():
            self._inflight.set(counts.get(scope, 0), (scope,))
            if maximum is not None:
                self._limit.set(maximum, (scope,))

    def _age(self, since: Instant | None) -> float:
        return 0.0 if since is None else max(0, self._clock.now() - since) / 1000

"""Figures for people: how much was accepted, ended and failed, what waits and why, what fails and how."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from lucius.domain.errors import InfrastructureError
from lucius.domain.job import JOB_TERMINAL
from lucius.domain.protocol import Protocol
from lucius.domain.time import Instant, after
from lucius.ports.clock import Clock
from lucius.ports.ledger import FailureGroups, JobFilter, Ledger, LedgerUnavailable, OpenGroups
from lucius.ports.registry import Registry, Tenant
from lucius.usecases.window_counts import WindowCounts

WINDOWS = {"hour": 3_600, "day": 86_400, "week": 604_800}
"""In seconds."""
SCANNED_MAX = 10_000
"""Failed jobs that are looked at to group them."""
GROUPS_MAX = 200
OPEN_SCANNED_MAX = 5_000
"""Open jobs that are looked at to group them."""
KEPT_SECONDS = 2.0
"""How long figures that read every open job are given again: they cost the more the more jobs are open."""
KEPT_MAX = 100
"""Sets of tenants for which they are kept."""
DURATIONS_JOBS_MAX = 200
"""Jobs of a request type whose steps are measured."""

T = TypeVar("T")


class InFlight(Struct, frozen=True, kw_only=True):
    scope: str
    """`global`, or a tenant."""
    jobs: int
    maximum: int


class TenantFigures(Struct, frozen=True, kw_only=True):
    tenant_id: str
    tenant: Tenant | None
    """None: it is not registered."""
    inflight: int
    max_inflight: int
    counts: Mapping[str, int]
    """In the window: `ACCEPTED`, `REFUSED`, and jobs that ended, by state."""
    oldest_waiting: str | None
    """The oldest job that no service is working on."""

    @property
    def ended(self) -> int:
        return sum(jobs for outcome, jobs in self.counts.items() if outcome in JOB_TERMINAL)

    @property
    def oldest_waiting_at(self) -> Instant | None:
        return None if self.oldest_waiting is None else made_at(self.oldest_waiting)


class StepDurations(Struct, frozen=True, kw_only=True):
    """How long a step took, from when a service first picked it up to its end: further attempts included."""

    step_id: str
    jobs: int
    median_seconds: float
    p95_seconds: float


class Kept(Generic[T]):
    """Answers by tenants, given again for a short while."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._answers: dict[tuple[str, ...] | None, tuple[float, T]] = {}

    async def get(self, tenants: tuple[str, ...] | None, ask: Callable[[], Awaitable[T]]) -> T:
        kept = self._answers.get(tenants)
        if kept is not None and self._monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        asked_at = self._monotonic()
        answer = await ask()
        self._answers.pop(tenants, None)
        while len(self._answers) >= KEPT_MAX:
            del self._answers[next(iter(self._answers))]
        self._answers[tenants] = (asked_at, answer)
        return answer


class Figures:
    def __init__(self, ledger: Ledger, registry: Registry, clock: Clock) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clock = clock
        self._windows = WindowCounts(ledger, clock)
        self._open_jobs: Kept[OpenGroups] = Kept()
        self._oldest_waiting: Kept[dict[str, str]] = Kept()

    async def counts(self, tenants: tuple[str, ...] | None) -> dict[str, dict[str, int]]:
        """Jobs accepted and ended, by state, in each window."""
        return {name: await _asked(self._windows.of(seconds, tenants)) for name, seconds in WINDOWS.items()}

    async def waiting(self, tenants: tuple[str, ...] | None) -> dict[str, int]:
        return await _asked(self._ledger.count_wait_causes(tenants))

    async def inflight(self, tenants: tuple[str, ...] | None) -> list[InFlight]:
        """In all, unless the caller sees only some tenants; then tenants, the fullest first."""
        snapshot, counted = self._registry.snapshot(), await _asked(self._ledger.inflight())
        settings = snapshot.settings
        found = []
        for scope, jobs in counted.items():
            tenant_id = scope.removeprefix("tenant:")
            if tenant_id == scope or (tenants is not None and tenant_id not in tenants):
                continue
            tenant = snapshot.tenants.get(tenant_id)
            own = tenant.max_inflight if tenant else None
            maximum = settings.max_inflight_per_tenant if own is None else own
            found.append(InFlight(scope=tenant_id, jobs=jobs, maximum=maximum))
        found.sort(key=lambda one: (-one.jobs / max(1, one.maximum), one.scope))
        if tenants is None:
            found.insert(0, InFlight(scope="global", jobs=counted.get("global", 0), maximum=settings.max_inflight))
        return found

    async def of_tenants(self, tenants: tuple[str, ...] | None, window: str) -> list[TenantFigures]:
        """Every tenant that is registered, has jobs in flight, or sent something in the window; by id."""
        snapshot, counted = self._registry.snapshot(), await _asked(self._ledger.inflight())
        inflight = {
            scope.removeprefix("tenant:"): jobs for scope, jobs in counted.items() if scope.startswith("tenant:")
        }
        counts = await _asked(self._ledger.counts_by_tenant(self.since(window), tenants))
        oldest = await self._oldest_waiting.get(tenants, lambda: _asked(self._ledger.oldest_waiting(tenants)))
        found = []
        for tenant_id in sorted({*snapshot.tenants, *inflight, *counts}):
            if tenants is not None and tenant_id not in tenants:
                continue
            tenant = snapshot.tenants.get(tenant_id)
            own = tenant.max_inflight if tenant else None
            found.append(
                TenantFigures(
                    tenant_id=tenant_id,
                    tenant=tenant,
                    inflight=inflight.get(tenant_id, 0),
                    max_inflight=snapshot.settings.max_inflight_per_tenant if own is None else own,
                    counts=counts.get(tenant_id, {}),
                    oldest_waiting=oldest.get(tenant_id),
                )
            )
        return found

    async def open_jobs(self, tenants: tuple[str, ...] | None) -> OpenGroups:
        """By protocol version, lane and tenant; up to two seconds old."""
        return await self._open_jobs.get(tenants, lambda: _asked(self._ledger.open_groups(OPEN_SCANNED_MAX, tenants)))

    async def durations(self, protocol: Protocol, tenants: tuple[str, ...] | None) -> list[StepDurations]:
        """Of the newest jobs of this protocol that succeeded, step by step."""
        seconds: dict[str, list[float]] = {step.id: [] for step in protocol.steps}
        for request_type in protocol.request_types:
            for of_job in await _asked(self._ledger.step_millis(request_type, tenants, DURATIONS_JOBS_MAX)):
                for step_id, millis in of_job.items():
                    if step_id in seconds:
                        seconds[step_id].append(millis / 1000)
        return [
            StepDurations(
                step_id=step_id,
                jobs=len(taken),
                median_seconds=_quantile(taken, 0.5),
                p95_seconds=_quantile(taken, 0.95),
            )
            for step_id, taken in seconds.items()
            if taken
        ]

    async def failures(
        self, tenants: tuple[str, ...] | None, created_from: Instant | None, dead_letters: bool
    ) -> FailureGroups:
        """Failed jobs by reason; `dead_letters`: only those that nobody has redriven or dismissed."""
        wanted = JobFilter(tenants=tenants, created_from=created_from, dead_letter=dead_letters)
        return await _asked(self._ledger.failures(wanted, SCANNED_MAX, GROUPS_MAX))

    def since(self, window: str) -> Instant:
        return after(self._clock.now(), -WINDOWS[window])


async def _asked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except LedgerUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error


def made_at(job_id: str) -> Instant:
    """When a job was accepted, to about a millisecond: its id begins with that."""
    return int(job_id.replace("-", "")[:12], 16)


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]

"""Figures for people: how much was accepted, ended and failed, what waits and why, what fails and how."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from msgspec import Struct

from lucius.domain.errors import InfrastructureError
from lucius.domain.time import Instant, after
from lucius.ports.clock import Clock
from lucius.ports.ledger import FailureGroups, JobFilter, Ledger, LedgerUnavailable
from lucius.ports.registry import Registry

WINDOWS = {"hour": 3_600, "day": 86_400, "week": 604_800}
"""In seconds."""
SCANNED_MAX = 10_000
"""Failed jobs that are looked at to group them."""
GROUPS_MAX = 200

T = TypeVar("T")


class InFlight(Struct, frozen=True, kw_only=True):
    scope: str
    """`global`, or a tenant."""
    jobs: int
    maximum: int


class Figures:
    def __init__(self, ledger: Ledger, registry: Registry, clock: Clock) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clock = clock

    async def counts(self, tenants: tuple[str, ...] | None) -> dict[str, dict[str, int]]:
        """Jobs accepted and ended, by state, in each window."""
        now = self._clock.now()
        return {
            name: await _asked(self._ledger.counts(after(now, -seconds), tenants)) for name, seconds in WINDOWS.items()
        }

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

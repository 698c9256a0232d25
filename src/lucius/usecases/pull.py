"""Directives that services pull over HTTP: how long each is locked, and which are still current."""

from __future__ import annotations

from lucius.domain.errors import CallerError
from lucius.domain.protocol import PolicyOverride
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Bus, Delivery
from lucius.ports.engine import Engine
from lucius.ports.registry import Registry, RegistrySnapshot
from lucius.usecases.accept import Acceptance
from lucius.usecases.lane_subscriptions import lock_seconds_of, policies_of


class Pulls:
    def __init__(self, registry: Registry, bus: Bus, engine: Engine, acceptance: Acceptance) -> None:
        self._registry = registry
        self._bus = bus
        self._engine = engine
        self._acceptance = acceptance
        self._snapshot: RegistrySnapshot | None = None
        self._lock_seconds: dict[str, float] = {}
        """By service, for those named by a protocol of the snapshot."""

    async def lock_seconds(self, service: str) -> float:
        """A third of the shortest ack timeout that a step of this service may have. Raises `CallerError`
        (ENVELOPE_INVALID) if the service is unknown."""
        await self._acceptance.declare()
        snapshot = self._registry.snapshot()
        if snapshot is not self._snapshot:
            self._snapshot, self._lock_seconds = snapshot, {}
        known = self._lock_seconds.get(service)
        if known is None:
            policies = policies_of(snapshot, service)
            if not policies:
                return lock_seconds_of(snapshot, [await self._policy_of_old_service(snapshot, service)])
            known = self._lock_seconds[service] = lock_seconds_of(snapshot, policies)
        return known

    async def _policy_of_old_service(self, snapshot: RegistrySnapshot, service: str) -> PolicyOverride:
        """A service that only older versions of a protocol name may still have jobs that need it."""
        if any(depth.subscription == service for depth in await self._bus.depths()):
            return PolicyOverride()
        named = {step.service for protocol in snapshot.protocols.values() for step in protocol.steps}
        detail = f"no protocol names this service; known services: {', '.join(sorted(named))}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/service")

    async def receive(self, service: str, limit: int, lock_seconds: float, wait_seconds: float) -> list[Delivery]:
        taken = await self._bus.receive(LANE_TOPICS, service, limit, lock_seconds, wait_seconds)
        return await self._engine.drop_past(taken)

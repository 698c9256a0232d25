"""The subscriptions of services on the lanes, as a registry asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.protocol import PolicyOverride, resolve_policy
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Subscription
from lucius.ports.registry import RegistrySnapshot

LOCK_SHARE = 3
"""A directive is locked for a third of the ack timeout."""


def lane_subscriptions(snapshot: RegistrySnapshot) -> list[Subscription]:
    """One for every lane and every service that a protocol names."""
    services = sorted({step.service for protocol in snapshot.protocols.values() for step in protocol.steps})
    return [
        Subscription(topic=topic, name=service, where={"service": service}, lock_seconds=lock_seconds)
        for service in services
        for lock_seconds in [lock_seconds_of(snapshot, policies_of(snapshot, service))]
        for topic in LANE_TOPICS
    ]


def policies_of(snapshot: RegistrySnapshot, service: str) -> list[PolicyOverride]:
    """Those of every step that this service does."""
    return [
        step.policy for protocol in snapshot.protocols.values() for step in protocol.steps if step.service == service
    ]


def lock_seconds_of(snapshot: RegistrySnapshot, policies: Sequence[PolicyOverride]) -> float:
    """A third of the shortest ack timeout that a step with one of these policies may have."""
    tenants = [None, *(tenant.policy for tenant in snapshot.tenants.values())]
    timeouts = (
        resolve_policy(policy, tenant, snapshot.settings.policy).ack_timeout_seconds
        for policy in policies
        for tenant in tenants
    )
    return min(timeouts) / LOCK_SHARE
